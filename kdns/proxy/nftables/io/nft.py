"""Transactions in nft's language (nft(8)), carried out by the kernel.

Small transactions go through libnftables in this process, which takes a millisecond. Large ones go through the program
nft: the memory that it takes to parse them would stay with this process. Where only one of the two is installed, it
does both.
"""

from __future__ import annotations

import asyncio
import ctypes
import ctypes.util
import os
import shutil
import threading
from collections.abc import Sequence
from functools import cache
from typing import Final

from kdns.errors import ApplyError, BusyError
from kdns.netlink.io.nftables import tables
from kdns.netlink.io.requests import Requests
from kdns.netlink.io.transactions import TransactionMonitor
from kdns.netlink.uapi import NETLINK_NETFILTER, NFNL_SUBSYS_NFTABLES
from kdns.proxy.nftables.elements import Request
from kdns.runtime.requirements import CAPABILITY
from kdns.runtime.subprocesses import run_program
from kdns.runtime.tasks import uninterrupted

LARGE_BYTES: Final = 64 * 1024
AT_ONCE_BYTES: Final = 16 * 1024
"""About 200 elements, which take less than a millisecond."""
PROGRAM_S: Final = 600.0
"""How long the program nft may take for a transaction."""
PATIENCE_S: Final = 10.0
"""How long it may go on after this process is to stop."""
_LIBRARY: Final = "libnftables.so.1"
_NOT_PERMITTED: Final = "Operation not permitted"
_TOO_LONG: Final = "Message too long"

monitors: list[TransactionMonitor] = []
"""They hear of each transaction of this process."""


class _Library:
    """libnftables (nftables/libnftables.h): one context, used by one thread at a time."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._run = library.nft_run_cmd_from_buffer
        self._run.argtypes, self._run.restype = (ctypes.c_void_p, ctypes.c_char_p), ctypes.c_int
        self._set_dry_run = library.nft_ctx_set_dry_run
        self._set_dry_run.argtypes, self._set_dry_run.restype = (ctypes.c_void_p, ctypes.c_bool), None
        self._errors = library.nft_ctx_get_error_buffer
        self._errors.argtypes, self._errors.restype = (ctypes.c_void_p,), ctypes.c_char_p
        library.nft_ctx_new.argtypes, library.nft_ctx_new.restype = (ctypes.c_uint32,), ctypes.c_void_p
        self._context = library.nft_ctx_new(0)
        for buffer in (library.nft_ctx_buffer_output, library.nft_ctx_buffer_error):
            buffer.argtypes, buffer.restype = (ctypes.c_void_p,), ctypes.c_int
            buffer(self._context)
        self._lock = threading.Lock()

    def run(self, text: str, *, is_check: bool = False) -> str:
        """Why the transaction failed, or with `is_check` would fail; "" if it did not."""
        with self._lock:
            self._set_dry_run(self._context, is_check)
            failed = self._run(self._context, text.encode())
            errors: str = (self._errors(self._context) or b"").decode(errors="replace").strip()
        return (errors or "nftables rejected the transaction") if failed else ""


@cache
def _library() -> _Library | None:
    """None if it is not installed.

    It waits for the socket with select(2), which aborts the process where the descriptor's number is above 1023. So
    the first use, such as a check at the start, has to come before the process opens many descriptors.
    """
    try:
        return _Library(ctypes.CDLL(_LIBRARY))
    except (OSError, AttributeError):
        return None


async def apply(*commands: str) -> None:
    """Carries out one transaction as a whole; ApplyError if the kernel rejects it.

    It is carried out to its end even when the calling task is cancelled, which takes effect then; but after
    PATIENCE_S more the program nft is killed.
    """
    await uninterrupted(_observed(commands), patience_s=PATIENCE_S)


async def apply_elements(changes: Sequence[Request]) -> None:
    """As `apply`, for elements of sets only: they go to the kernel over netlink, without the program or its library.

    A few are in the kernel sooner than a thread would have begun.
    """
    if sum(len(body) for _, body in changes) > AT_ONCE_BYTES:
        await uninterrupted(asyncio.to_thread(_transact, changes))
    elif changes:
        _transact(changes)


async def check(*commands: str) -> str:
    """Why the kernel would reject this transaction, or "". Nothing is changed.

    BusyError if that is unknown.
    """
    try:
        await _run(commands, is_check=True)
    except BusyError:
        raise
    except ApplyError as error:
        return error.stderr
    return ""


async def refusal() -> str:
    """Why this process may not use nftables, or "". libnftables would print it on standard error."""
    try:
        await tables()
    except ApplyError as error:
        return _with_advice(error.stderr)
    return ""


class ElementSocket:
    """A socket for transactions, used by one thread at a time and kept: its close waits for the kernel to free memory.

    After an error it is replaced: answers to what failed may still come.
    """

    def __init__(self) -> None:
        self._requests: Requests | None = None
        self._lock = threading.Lock()

    def transact(self, changes: Sequence[Request]) -> None:
        """Carries out one transaction; OSError if the kernel refuses."""
        with self._lock:
            kernel, self._requests = self._requests or self._opened(), None
            try:
                kernel.transact(NFNL_SUBSYS_NFTABLES, changes)
            except BaseException:
                for monitor in monitors:
                    monitor.not_own(kernel.port)
                kernel.close()
                raise
            self._requests = kernel

    def _opened(self) -> Requests:
        kernel = Requests(NETLINK_NETFILTER)
        for monitor in monitors:
            monitor.own(kernel.port)
        return kernel

    @property
    def ports(self) -> tuple[int, ...]:
        """The netlink port of the open socket, if there is one."""
        return (self._requests.port,) if self._requests else ()


elements: Final = ElementSocket()


def _transact(changes: Sequence[Request]) -> None:
    try:
        elements.transact(changes)
    except OSError as error:
        raise ApplyError(("netlink",), _with_advice(error.strerror or str(error))) from error


async def _observed(commands: Sequence[str]) -> None:
    for monitor in monitors:
        monitor.begin()
    try:
        await _run(commands)
    finally:
        for monitor in monitors:
            monitor.end()


async def _run(commands: Sequence[str], *, is_check: bool = False) -> None:
    library = _library()
    if library and (sum(map(len, commands)) < LARGE_BYTES or not program_path()):
        work = asyncio.to_thread(library.run, "\n".join(commands), is_check=is_check)
        reason = await uninterrupted(work)  # the thread would go on
        if reason:
            raise ApplyError(("nft",), _with_advice(reason))
    else:
        await _program(commands, *(("--check",) if is_check else ()))


def program_path() -> str | None:
    return shutil.which("nft", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")


async def _program(commands: Sequence[str], *options: str) -> None:
    program = program_path()
    if program is None:
        raise ApplyError(("nft",), "the program is not installed; install the package nftables, 1.0.1 or later")
    argv = (program, *options, "-f", "-")
    try:
        done = await run_program(argv, lines=(f"{command}\n" for command in commands), limit_s=PROGRAM_S)
    except OSError as error:
        raise BusyError(argv, str(error)) from error
    if done.code:
        reason = _with_advice(done.errors.decode(errors="replace").strip()) or f"exit code {done.code}"
        raise (BusyError if done.code < 0 else ApplyError)(argv, reason)


def _with_advice(errors: str) -> str:
    """The first lines of nft's errors, with advice if a capability or room for a transaction is missing."""
    if _TOO_LONG in errors:
        return f"{_TOO_LONG}; increase net.core.wmem_max, which bounds a transaction in a user namespace"
    if _NOT_PERMITTED in errors:
        return f"{_NOT_PERMITTED}; {CAPABILITY}"
    return errors[:2000]
