"""This process: signals, memory, and the garbage collector."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from platform import uname
from typing import Final, NoReturn

from kdns.errors import InputError

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
RELOAD_SIGNALS: Final = tuple(signal.Signals[name] for name in ("SIGUSR1", "SIGHUP") if hasattr(signal, name))
"""CoreDNS reloads at the first one, dnsmasq and BIND at the second one. Windows has neither."""
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_STDIN: Final = 0
_CPU_MAX: Final = Path("/sys/fs/cgroup/cpu.max")
_ARCHITECTURES: Final[Mapping[str, str]] = {
    "x86_64": "amd64",
    "AMD64": "amd64",
    "aarch64": "arm64",
    "i386": "386",
    "i686": "386",
    "armv6l": "arm",
    "armv7l": "arm",
    "loongarch64": "loong64",
}

_GC_THRESHOLDS: Final = (20_000, 20, 10)
"""gc.set_threshold after the start: with Python's 700 the collector takes a tenth of the time of a create, which
allocates hundreds of containers, hardly any in a cycle."""


def stop_event() -> asyncio.Event:
    """The first of the STOP_SIGNALS sets it. The second one ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stopped() -> None:
        stop.set()
        for number in STOP_SIGNALS:
            _leave(loop, number)

    for number in STOP_SIGNALS:
        _handle(loop, number, stopped)
    _unblock(STOP_SIGNALS)
    return stop


def reload_event(stop: asyncio.Event) -> asyncio.Event:
    """Set by each of the RELOAD_SIGNALS; SIGHUP of a closed terminal sets `stop`, an ignored one stays so."""
    reload = asyncio.Event()
    loop, has_terminal = asyncio.get_running_loop(), os.isatty(_STDIN)

    def hung_up() -> None:
        is_closed = has_terminal and not os.isatty(_STDIN)
        (stop if is_closed else reload).set()

    for number in RELOAD_SIGNALS:
        if number.name != "SIGHUP":
            _handle(loop, number, reload.set)
        elif signal.getsignal(number) is not signal.SIG_IGN:
            _handle(loop, number, hung_up)
    _unblock(RELOAD_SIGNALS)
    return reload


def _handle(loop: asyncio.AbstractEventLoop, number: signal.Signals, callback: Callable[[], None]) -> None:
    """On Windows the loop learns of a signal when it wakes up for something else."""
    try:
        loop.add_signal_handler(number, callback)
    except NotImplementedError:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(callback))


def _leave(loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
    try:
        loop.remove_signal_handler(number)
    except NotImplementedError:
        signal.signal(number, signal.SIG_DFL)


def _unblock(signals: Iterable[signal.Signals]) -> None:
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)


def start_again() -> NoReturn:
    """execve(2); signals that come before the program has its events are acted on then. Raises OSError."""
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_BLOCK, (*STOP_SIGNALS, *RELOAD_SIGNALS))
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - its own arguments


def platform() -> tuple[str, str]:
    """In Go's names (GOOS and GOARCH)."""
    machine, system = uname().machine, sys.platform
    return {"win32": "windows"}.get(system, system.rstrip("0123456789")), _ARCHITECTURES.get(machine, machine)


@contextmanager
def signals_blocked() -> Iterator[None]:
    """For the start of a process that calls `ignore_signals`; signals that come meanwhile act at the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*STOP_SIGNALS, *RELOAD_SIGNALS))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals() -> None:
    """Ignores stop and reload signals, also those that came while they were blocked."""
    for number in (*STOP_SIGNALS, *RELOAD_SIGNALS):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*STOP_SIGNALS, *RELOAD_SIGNALS))


def die_with(parent: int) -> None:
    """Ends this process by SIGKILL when its parent ends, also when that has ended already; Linux only (prctl(2))."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def ending(status: int) -> str:
    """Returns how a child ended, of asyncio's returncode: `status 3`, or the signal that ended it, such as SIGKILL."""
    try:
        return f"status {status}" if status >= 0 else signal.Signals(-status).name
    except ValueError:  # one without a name, such as a real-time signal
        return f"signal {-status}"


def processors() -> int:
    """Within the affinity of this process, and the quota of its cgroup (v2)."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = _CPU_MAX.read_text(encoding="ascii").split()
        allowed = min(allowed, -(-int(quota) // int(period)))  # "max" is not a number: no quota
    return max(allowed, 1)


@contextmanager
def pid_file(path: str) -> Iterator[None]:
    """The file is removed at the end, unless it is a device or another process wrote its id. Raises InputError."""
    if not path:
        yield
        return
    file, text = Path(path), f"{os.getpid()}\n"
    try:
        file.write_text(text, encoding="ascii")
    except OSError as error:
        raise InputError(f"--pidfile {path}: cannot be written: {error.strerror}") from error
    try:
        yield
    finally:
        with suppress(OSError, UnicodeDecodeError):
            if file.is_file() and file.read_text(encoding="ascii") == text:
                file.unlink()


def trim_memory() -> None:
    """Returns freed memory to the system; glibc keeps it otherwise, other C libraries have no such call."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def exempt_from_gc() -> None:
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


@contextmanager
def gc_paused(freeze: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """For the load of many API objects, which hold no cycles; at the end they are exempt (gc.freeze), if `freeze`.

    With 150,000 endpoints one full collection takes a third of a second, in which nothing is answered.
    """
    if not gc.isenabled():  # within another gc_paused
        yield
        return
    gc.disable()
    try:
        yield
        if freeze():
            exempt_from_gc()
    finally:
        gc.enable()
