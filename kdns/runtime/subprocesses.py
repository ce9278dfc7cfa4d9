"""Runs other programs to their end, with bounds on their time and on their output.

A program that hangs must not keep its caller from working and from stopping, and one that prints without end must not
take this process's memory.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from kdns import logs

LIMIT_S: Final = 60.0
SLOW_S: Final = 30.0
ERROR_BYTES: Final = 64 * 1024
_KILLED_S: Final = 5.0
"""The wait for the end of a killed program: one in an uninterruptible system call ends later."""
_CHUNK_BYTES: Final = 64 * 1024

log = logs.get(__name__)


class Completed(NamedTuple):
    """How a program ended: its exit code, or the negative number of a signal, and its output."""

    code: int
    output: bytes
    errors: bytes


async def run_program(
    argv: tuple[str, ...],
    *,
    lines: Iterable[str] | None = None,
    limit_s: float = LIMIT_S,
    output_bytes: int = 0,
    started: Callable[[int], None] | None = None,
) -> Completed:
    """After `limit_s`, or more than `output_bytes`, kills the program and those that it started, and raises OSError.

    With 0 bytes its output is discarded. `started` gets its process id. `lines` are its input, in a file in memory: a
    pipe could end early, and the program would take a part of them for all.
    """
    if lines is None:
        return await _run(argv, asyncio.subprocess.DEVNULL, limit_s, output_bytes, started)
    descriptor = os.memfd_create("input")
    try:
        await asyncio.to_thread(_fill, descriptor, lines)
        return await _run(argv, descriptor, limit_s, output_bytes, started)
    finally:
        os.close(descriptor)


def _fill(descriptor: int, lines: Iterable[str]) -> None:
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.writelines(line.encode() for line in lines)
    os.lseek(descriptor, 0, os.SEEK_SET)


async def _run(
    argv: tuple[str, ...], stdin: int, limit_s: float, output_bytes: int, started: Callable[[int], None] | None
) -> Completed:
    """A process group of its own keeps Ctrl-C away from the program."""
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv, stdin=stdin, stdout=pipe if output_bytes else null, stderr=pipe, process_group=0
        )
    )
    try:
        process = await asyncio.shield(starting)  # if it were cancelled, asyncio would kill the program alone
    except asyncio.CancelledError:
        with suppress(OSError):
            await _kill(await starting)
        raise
    slow = asyncio.get_running_loop().call_later(SLOW_S, _log_slow, argv[0], process.pid)
    has_ended = False
    try:
        async with asyncio.timeout(limit_s) as limit:
            if started:
                started(process.pid)
            output, errors = await asyncio.gather(
                _read(process.stdout, output_bytes, is_whole=True), _read(process.stderr, ERROR_BYTES, is_whole=False)
            )
            await process.wait()
        has_ended = True
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TimeoutError(errno.ETIMEDOUT, f"still running after {limit_s:g} s: killed") from error
    finally:
        slow.cancel()
        if not has_ended:
            await _kill(process)
    return Completed(process.returncode or 0, output, errors)


async def _read(stream: asyncio.StreamReader | None, most_bytes: int, *, is_whole: bool) -> bytes:
    """Reads a stream to its end and returns its first bytes; with `is_whole` OSError if it has more."""
    output = bytearray()
    while stream and (chunk := await stream.read(_CHUNK_BYTES)):
        room_bytes = most_bytes - len(output)
        if is_whole and len(chunk) > room_bytes:
            raise OSError(errno.EFBIG, f"more than {most_bytes} bytes of output: killed")
        output += chunk[:room_bytes]
    return bytes(output)


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Closes its pipes before it waits: asyncio sees the end of a program when its output was read to the end."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process._transport.close()  # type: ignore[attr-defined] # noqa: SLF001 - asyncio has no other way
    with suppress(TimeoutError):
        async with asyncio.timeout(_KILLED_S):
            await process.wait()


def _log_slow(program: str, pid: int) -> None:
    log.warning("program is slow", program=program, pid=pid, after_s=SLOW_S)
