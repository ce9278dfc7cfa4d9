"""The kernel's nftables: transactions in nft's language.

Small transactions go through libnftables in this process, which takes a millisecond; large ones through the program
nft, since what it takes to parse them would stay with this process. Where only one of the two is there, it does both.
"""

from __future__ import annotations

import asyncio
import ctypes
import ctypes.util
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from kdns.errors import ApplyError

LARGE_BYTES: Final = 64 * 1024
_LIBRARY: Final = "libnftables.so.1"
_REFUSED: Final = "Operation not permitted"

observers: list[Callable[[bool], None]] = []
"""Told True before each transaction of this process, and False when it has ended, whichever way."""


class _Library:
    """libnftables (its header nftables/libnftables.h): one context, used by one thread at a time."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._run = library.nft_run_cmd_from_buffer
        self._run.argtypes, self._run.restype = (ctypes.c_void_p, ctypes.c_char_p), ctypes.c_int
        self._only_check = library.nft_ctx_set_dry_run
        self._only_check.argtypes, self._only_check.restype = (ctypes.c_void_p, ctypes.c_bool), None
        self._errors = library.nft_ctx_get_error_buffer
        self._errors.argtypes, self._errors.restype = (ctypes.c_void_p,), ctypes.c_char_p
        library.nft_ctx_new.argtypes, library.nft_ctx_new.restype = (ctypes.c_uint32,), ctypes.c_void_p
        self._context = library.nft_ctx_new(0)
        for buffer in (library.nft_ctx_buffer_output, library.nft_ctx_buffer_error):
            buffer.argtypes, buffer.restype = (ctypes.c_void_p,), ctypes.c_int
            buffer(self._context)
        self._lock = threading.Lock()

    def run(self, text: str, *, is_check: bool = False) -> str:
        """What is wrong with the transaction, "" if it is done, or would be."""
        with self._lock:
            self._only_check(self._context, is_check)
            failed = self._run(self._context, text.encode())
            said: str = (self._errors(self._context) or b"").decode(errors="replace").strip()
        return (said or "nftables refused the transaction") if failed else ""


@cache
def _library() -> _Library | None:
    try:
        return _Library(ctypes.CDLL(_LIBRARY))
    except (OSError, AttributeError):
        return None


def prepare() -> None:
    """Open the library's socket now, for a process that is going to have many: it waits for it with select(2).

    That ends a process in which the socket's number is above 1023.
    """
    _library()


async def apply(*commands: str) -> None:
    """Carry out one transaction, whole or not at all; ApplyError says why not.

    Once begun it is carried out to its end, also when the task that waits for it is cancelled.
    """
    await asyncio.shield(asyncio.ensure_future(_applied(commands)))


async def refusal(*commands: str) -> str:
    """Why the kernel would refuse this transaction, "" if it would carry it out. It looks at it all and does none."""
    try:
        await _run(commands, is_check=True)
    except ApplyError as error:
        return error.stderr
    return ""


async def _applied(commands: Sequence[str]) -> None:
    for observer in observers:
        observer(True)
    try:
        await _run(commands)
    finally:
        for observer in observers:
            observer(False)


async def _run(commands: Sequence[str], *, is_check: bool = False) -> None:
    library = _library()
    if library and (sum(map(len, commands)) < LARGE_BYTES or not _program_path()):
        reason = await asyncio.to_thread(library.run, "\n".join(commands), is_check=is_check)
        if reason:
            raise ApplyError(("nft",), _advised(reason))
    else:
        await _program(commands, *(("--check",) if is_check else ()))


def _program_path() -> str | None:
    return shutil.which("nft", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")


async def _program(commands: Sequence[str], *options: str) -> None:
    """Have nft do it. It reads from a file in memory, so that half of the text is never all there is.

    They are megabytes at the start, so they are never put together here.
    """
    program = _program_path()
    if program is None:
        raise ApplyError(("nft",), "the program is not installed; wanted: the package nftables, 1.0.1 or later")
    argv = (program, *options, "-f", "-")
    given = os.memfd_create("nft")
    try:
        with os.fdopen(os.dup(given), "wb") as file:
            file.writelines(f"{command}\n".encode() for command in commands)
        os.lseek(given, 0, os.SEEK_SET)
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=given, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        _, said = await process.communicate()
    except OSError as error:
        raise ApplyError(argv, str(error)) from error
    finally:
        os.close(given)
    if process.returncode:
        raise ApplyError(argv, _advised(said.decode(errors="replace").strip()))


def _advised(said: str) -> str:
    """The first lines of what nft said, with what to do where the process lacks the right."""
    if _REFUSED in said:
        return f"{_REFUSED}; wanted: the capability CAP_NET_ADMIN, as root has it or a container is given it"
    return said[:2000]
