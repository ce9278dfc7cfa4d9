"""Transactions of nftables: text in nft's language (nft(8)) by the program nft, elements of sets over netlink."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Sequence
from typing import Final

from kdns.errors import ApplyError, BusyError
from kdns.netlink.io import transactions
from kdns.netlink.io.nftables import tables
from kdns.netlink.io.requests import Requests
from kdns.netlink.uapi import NETLINK_NETFILTER, NFNL_SUBSYS_NFTABLES
from kdns.proxy.nftables.elements import Request
from kdns.runtime.requirements import CAPABILITY
from kdns.runtime.subprocesses import run_program
from kdns.runtime.tasks import uninterrupted

AT_ONCE_BYTES: Final = 16 * 1024
"""About 200 elements, which take less than a millisecond."""
PROGRAM_S: Final = 600.0
"""How long the program nft may take for a transaction."""
PATIENCE_S: Final = 10.0
"""How long it may go on after this process is to stop."""
_NOT_PERMITTED: Final = "Operation not permitted"
_TOO_LONG: Final = "Message too long"


async def apply(*commands: str) -> None:
    """Carries out one transaction as a whole; ApplyError if the kernel rejects it.

    It is carried out to its end even when the calling task is cancelled, which takes effect then; but after
    PATIENCE_S more the program is killed.
    """
    await uninterrupted(_run(commands), patience_s=PATIENCE_S)


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
        await _run(commands, "--check")
    except BusyError:
        raise
    except ApplyError as error:
        return error.stderr
    return ""


async def refusal() -> str:
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
                transactions.not_own(kernel.port)
                kernel.close()
                raise
            self._requests = kernel

    def _opened(self) -> Requests:
        kernel = Requests(NETLINK_NETFILTER)
        transactions.own(kernel.port)
        return kernel


elements: Final = ElementSocket()


def _transact(changes: Sequence[Request]) -> None:
    try:
        elements.transact(changes)
    except OSError as error:
        raise ApplyError(("netlink",), _with_advice(error.strerror or str(error))) from error


def program_path() -> str | None:
    return shutil.which("nft", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")


async def _run(commands: Sequence[str], *options: str) -> None:
    program = program_path()
    if program is None:
        raise ApplyError(("nft",), "the program is not installed; install the package nftables, 1.0.1 or later")
    lines = (f"{command}\n" for command in commands)
    try:
        with transactions.own_program() as started:
            argv = (program, *options, "-f", "-")
            done = await run_program(argv, lines=lines, limit_s=PROGRAM_S, started=started)
    except OSError as error:
        raise BusyError(("nft",), str(error)) from error
    if done.code:
        reason = _with_advice(done.errors.decode(errors="replace").strip()) or f"exit code {done.code}"
        raise (BusyError if done.code < 0 else ApplyError)(("nft",), reason)


def _with_advice(errors: str) -> str:
    """The first lines of nft's errors, with advice if a capability or room for a transaction is missing."""
    if _TOO_LONG in errors:
        return f"{_TOO_LONG}; increase net.core.wmem_max, which bounds a transaction in a user namespace"
    if _NOT_PERMITTED in errors:
        return f"{_NOT_PERMITTED}; {CAPABILITY}"
    return errors[:2000]
