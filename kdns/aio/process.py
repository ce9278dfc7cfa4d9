"""This process: how it is asked to stop, how many files it may open, and memory that it has no use for any more."""

from __future__ import annotations

import asyncio
import ctypes
import resource
import signal
from contextlib import suppress
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def stop_event() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; the second one ends the process as usual."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stopped() -> None:
        stop.set()
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stopped)
    return stop


def raise_open_files_limit() -> None:
    """Let this process open as many files as it may: the usual 1024 is less than its TCP clients can take.

    Go programs such as CoreDNS do the same when they start.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # macOS names a limit that it does not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def give_back() -> None:
    """Give the system the memory that was only needed for a moment; the C library would keep it for the next time."""
    with suppress(OSError, AttributeError):  # it is glibc's
        ctypes.CDLL(None).malloc_trim(0)
