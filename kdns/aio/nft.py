"""The kernel's nftables: transactions in nft's language, and news of what others did to kdns's tables.

Small transactions go through libnftables in this process, which takes a millisecond; large ones through the program
nft, since what it takes to parse them would stay with this process. Without the library, nft does both.
"""

from __future__ import annotations

import asyncio
import ctypes
import ctypes.util
import shutil
from functools import cache
from typing import Final

from kdns.errors import ApplyError

LARGE_BYTES: Final = 64 * 1024
_LIBRARY: Final = "libnftables.so.1"


class _Library:
    """libnftables (its header nftables/libnftables.h): one context, used by one thread at a time."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._run = library.nft_run_cmd_from_buffer
        self._run.argtypes, self._run.restype = (ctypes.c_void_p, ctypes.c_char_p), ctypes.c_int
        self._errors = library.nft_ctx_get_error_buffer
        self._errors.argtypes, self._errors.restype = (ctypes.c_void_p,), ctypes.c_char_p
        library.nft_ctx_new.argtypes, library.nft_ctx_new.restype = (ctypes.c_uint32,), ctypes.c_void_p
        self._context = library.nft_ctx_new(0)
        for buffer in (library.nft_ctx_buffer_output, library.nft_ctx_buffer_error):
            buffer.argtypes, buffer.restype = (ctypes.c_void_p,), ctypes.c_int
            buffer(self._context)

    def run(self, text: str) -> str:
        """What is wrong with the transaction, "" if it is done."""
        failed = self._run(self._context, text.encode())
        said: str = (self._errors(self._context) or b"").decode(errors="replace").strip()
        return (said or "nftables refused the transaction") if failed else ""


@cache
def _library() -> _Library | None:
    try:
        return _Library(ctypes.CDLL(_LIBRARY))
    except (OSError, AttributeError):
        return None


async def apply(text: str) -> None:
    """Carry out one transaction, whole or not at all; ApplyError says why not."""
    library = _library()
    if library and len(text) < LARGE_BYTES:
        reason = await asyncio.to_thread(library.run, text)
        if reason:
            raise ApplyError(("nft",), reason)
        return
    await _program(text)


async def _program(text: str) -> None:
    program = shutil.which("nft")
    if program is None:
        raise ApplyError(("nft",), "the program is not installed; wanted: the package nftables, 1.0.1 or later")
    process = await asyncio.create_subprocess_exec(
        program,
        "-f",
        "-",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate(text.encode())
    if process.returncode:
        raise ApplyError((program, "-f", "-"), said.decode(errors="replace").strip())
