"""Two sockets joined in the kernel (splice(2)): bytes go through a pipe and never come here.

Each direction ends by itself: the end of what one side sends is passed on, and the other may go on sending. A reset
of one side resets the other. When a side takes nothing, no more is read for it than a pipe holds.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from fcntl import fcntl
from typing import Final

from kdns.aio.poller import FAILED, ONCE, READABLE, WRITABLE, Poller
from kdns.proxy.relaying import PortCounters

PIPE_BYTES: Final = 256 * 1024
ROUNDS: Final = 8
"""Fills of the pipe that one direction moves before others have their turn."""
IDLE_PIPES: Final = 64
_F_SETPIPE_SZ: Final = 1031
_NO_LINGER: Final = struct.pack("ii", 1, 0)


class Pipes:
    """Empty pipes for whoever has bytes under way: connections that are silent hold none."""

    def __init__(self) -> None:
        self._idle: list[tuple[int, int]] = []

    def take(self) -> tuple[int, int]:
        """Where to read and where to write."""
        if self._idle:
            return self._idle.pop()
        pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with suppress(OSError):  # a user's pipes may be limited: then they stay smaller
            fcntl(pipe[1], _F_SETPIPE_SZ, PIPE_BYTES)
        return pipe

    def give(self, pipe: tuple[int, int], *, is_empty: bool = True) -> None:
        """Take a pipe back."""
        if is_empty and len(self._idle) < IDLE_PIPES:
            self._idle.append(pipe)
        else:
            os.close(pipe[0])
            os.close(pipe[1])

    def close(self) -> None:
        """Close those that nobody has."""
        while self._idle:
            for number in self._idle.pop():
                os.close(number)


class _Leg:
    """One direction."""

    __slots__ = ("is_over", "pending", "pipe", "readable", "source", "target", "writable")

    def __init__(self, source: socket.socket, target: socket.socket, *, readable: bool, writable: bool) -> None:
        self.source, self.target = source.fileno(), target
        self.readable, self.writable = readable, writable
        self.pipe: tuple[int, int] | None = None
        self.pending = 0
        self.is_over = False


class Splice:
    """A client joined with its endpoint; `ended` is called once when both are closed.

    The endpoint's socket is with the poller already, and `events` are those that it had last.
    """

    __slots__ = ("_client", "_counters", "_down", "_ended", "_endpoint", "_pipes", "_poller", "_up", "is_open")

    def __init__(
        self,
        poller: Poller,
        pipes: Pipes,
        client: socket.socket,
        endpoint: socket.socket,
        events: int,
        counters: PortCounters,
        ended: Callable[[Splice], None],
    ) -> None:
        self._poller, self._pipes, self._counters, self._ended = poller, pipes, counters, ended
        self._client, self._endpoint = client, endpoint
        self._up = _Leg(client, endpoint, readable=True, writable=True)
        self._down = _Leg(endpoint, client, readable=bool(events & READABLE), writable=True)
        self.is_open = True
        poller.hand_over(endpoint, self._endpoint_event)
        poller.add(client, ONCE, self._client_event)
        self._pump()

    def _client_event(self, events: int) -> None:
        self._event(self._client, self._up, self._down, events)

    def _endpoint_event(self, events: int) -> None:
        self._event(self._endpoint, self._down, self._up, events)

    def _event(self, sock: socket.socket, sending: _Leg, taking: _Leg, events: int) -> None:
        if events & FAILED and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.reset()
            return
        if events & READABLE:
            sending.readable = True
        if events & WRITABLE:
            taking.writable = True
        self._pump()

    def _pump(self) -> None:
        if not self.is_open:
            return
        try:
            is_busy = self._move(self._up)
            is_busy = self._move(self._down) or is_busy
        except OSError:
            self.reset()
            return
        if self._up.is_over and self._down.is_over:
            self._close()
        elif is_busy:
            self._poller.again(self._pump)

    def _move(self, leg: _Leg) -> bool:
        """Move what can be moved, and say whether there is more to do."""
        for _ in range(ROUNDS):
            if not leg.pending and not self._fill(leg):
                break
            if not leg.writable or leg.pipe is None:
                break
            try:
                count = os.splice(leg.pipe[0], leg.target.fileno(), leg.pending, flags=os.SPLICE_F_NONBLOCK)
            except BlockingIOError:
                leg.writable = False
                break
            leg.pending -= count
            if leg is self._up:
                self._counters.received_bytes += count
            else:
                self._counters.sent_bytes += count
        else:
            return True
        if leg.pipe is not None and not leg.pending:
            self._pipes.give(leg.pipe)
            leg.pipe = None
        return False

    def _fill(self, leg: _Leg) -> bool:
        """Whether something was there to fill the pipe with; its end is passed on."""
        if not leg.readable or leg.is_over:
            return False
        if leg.pipe is None:
            leg.pipe = self._pipes.take()
        try:
            leg.pending = os.splice(leg.source, leg.pipe[1], PIPE_BYTES, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            leg.readable = False
            return False
        if leg.pending:
            return True
        leg.is_over = True
        leg.target.shutdown(socket.SHUT_WR)
        return False

    def reset(self) -> None:
        """End both sides as a reset ends them."""
        if self.is_open:
            for sock in (self._client, self._endpoint):
                forget(sock)
            self._close()

    def _close(self) -> None:
        self.is_open = False
        for leg in (self._up, self._down):
            if leg.pipe is not None:
                self._pipes.give(leg.pipe, is_empty=not leg.pending)
                leg.pipe = None
        self._poller.remove(self._client)
        self._poller.remove(self._endpoint)
        self._ended(self)


def forget(sock: socket.socket) -> None:
    """Let closing the socket reset its connection."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
