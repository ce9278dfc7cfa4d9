"""Processes under measurement: started on one core, their CPU time and memory read, and ended again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CPUCLOCK_SCHED: Final = 2
"""The kernel's linux/posix-timers.h: the time on a core, in nanoseconds."""
START_S: Final = 120.0
"""How long a server may take until it answers."""
STOP_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Cores:
    """The servers' core and everybody else's; the same one on a machine with a single core."""

    server: frozenset[int]
    others: frozenset[int]

    @classmethod
    def of_this_machine(cls) -> Cores:
        """One core for the server under measurement, the rest for those who ask."""
        first, *rest = sorted(os.sched_getaffinity(0))
        return cls(frozenset({first}), frozenset(rest or {first}))


def exit_at_sigterm() -> None:
    """The signal's default action would leave the servers running."""
    signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


@contextmanager
def running(argv: Sequence[str], cores: frozenset[int], log: Path) -> Iterator[subprocess.Popen[str]]:
    """A program on these cores, its standard output readable line by line; ended with its children at the end."""
    exit_at_sigterm()
    with (
        log.open("w") as errors,
        subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},  # a user's second start compiles no module
        ) as process,
    ):
        os.sched_setaffinity(process.pid, cores)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                for pid in (*descendants(process.pid), process.pid):
                    os.kill(pid, 9)


def read_until(process: subprocess.Popen[str], last: str, log: Path) -> list[str]:
    """The lines a program prints, up to the one that begins with `last`; what follows is read and dropped.

    SystemExit if the program ends before, or takes longer than START_S, which ends it.
    """
    lines: list[str] = []
    assert process.stdout  # noqa: S101 - `running` always opens a pipe
    limit = threading.Timer(START_S, process.kill)
    limit.start()
    try:
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if line.startswith(last):
                threading.Thread(target=process.stdout.read, daemon=True).start()
                return lines
    finally:
        limit.cancel()
    raise SystemExit(f"{process.args!r} ended before it was ready: {lines}\n{log.read_text()[-2000:]}")


def descendants(pid: int) -> Iterator[int]:
    """All processes below one, by what /proc says now."""
    try:
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except FileNotFoundError:
        return
    for child in children:
        yield child
        yield from descendants(child)


def cpu_s(pid: int) -> float:
    """User and system time of a process and everything below it, all threads, in seconds.

    The kernel's clock of a process counts nanoseconds; /proc/PID/stat counts in 10 ms (clock_getcpuclockid(3)).
    """
    return sum(map(own_cpu_s, (pid, *descendants(pid))))


def own_cpu_s(pid: int) -> float:
    """User and system time of all threads of one process, in seconds; 0 if it has ended."""
    with suppress(OSError):
        return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)
    return 0.0


def memory_mib(pid: int) -> float:
    """What a process and everything below it hold in memory, in MiB; shared pages count once in all (Pss, proc(5))."""
    total = 0
    for one in (pid, *descendants(pid)):
        lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def free_port() -> int:
    """A port that was free on loopback for UDP and TCP a moment ago."""
    while True:
        with socket.socket(type=socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
            udp.bind(("127.0.0.1", 0))
            port: int = udp.getsockname()[1]
            try:
                tcp.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def asked(port: int, packet: bytes, *, within_s: float = START_S) -> bytes:
    """The first answer to a query that is sent again each 0.2 s; SystemExit without one."""
    deadline_s = time.monotonic() + within_s
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.2)
        sock.connect(("127.0.0.1", port))
        while time.monotonic() < deadline_s:
            try:
                sock.send(packet)
                return sock.recv(65535)
            except (TimeoutError, ConnectionRefusedError):
                time.sleep(0.05)
    raise SystemExit(f"no answer on port {port} within {within_s:g} s")
