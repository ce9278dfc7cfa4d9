"""Two TCP sockets spliced by the kernel (splice(2)): data goes through pipes, and not through this process.

A FIN is relayed by itself: the other direction stays open until it ends too. A reset of one side resets the other.
For a side that does not read, no more is read from the other side than a pipe holds.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from fcntl import fcntl
from typing import Final

from kdns.proxy.userspace.sessions import PortState
from kdns.runtime.poller import FAILED, ONCE, READABLE, WRITABLE, Poller

PIPE_BYTES: Final = 256 * 1024
ROUNDS: Final = 8
"""How often one direction fills its pipe before others have their turn."""
IDLE_PIPES: Final = 64
_F_SETPIPE_SZ: Final = 1031
_NO_LINGER: Final = struct.pack("ii", 1, 0)


class Pipes:
    """Empty pipes for directions that have data under way: idle connections hold none."""

    def __init__(self) -> None:
        self._idle: list[tuple[int, int]] = []

    def take(self) -> tuple[int, int]:
        """Returns a pipe: the descriptors to read from and to write to."""
        if self._idle:
            return self._idle.pop()
        pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with suppress(OSError):  # pipe-user-pages-soft may limit it: then the pipe stays smaller
            fcntl(pipe[1], _F_SETPIPE_SZ, PIPE_BYTES)
        return pipe

    def give(self, pipe: tuple[int, int], *, is_empty: bool = True) -> None:
        """Puts a pipe back; one that is not empty is closed."""
        if is_empty and len(self._idle) < IDLE_PIPES:
            self._idle.append(pipe)
        else:
            os.close(pipe[0])
            os.close(pipe[1])

    def close(self) -> None:
        while self._idle:
            for number in self._idle.pop():
                os.close(number)


class _Direction:
    """One direction."""

    __slots__ = ("has_ended", "pending", "pipe", "readable", "source", "target", "writable")

    def __init__(self, source: socket.socket, target: socket.socket, *, readable: bool, writable: bool) -> None:
        self.source, self.target = source.fileno(), target
        self.readable, self.writable = readable, writable
        self.pipe: tuple[int, int] | None = None
        self.pending = 0
        self.has_ended = False


class Splice:
    """A client spliced with its endpoint; `ended` is called once, when both sockets are closed.

    The poller has the endpoint's socket already; `events` are the last ones of it.
    """

    __slots__ = ("_client", "_down", "_ended", "_endpoint", "_pipes", "_poller", "_port", "_up", "is_open")

    def __init__(
        self,
        poller: Poller,
        pipes: Pipes,
        client: socket.socket,
        endpoint: socket.socket,
        events: int,
        port: PortState,
        ended: Callable[[], None],
    ) -> None:
        self._poller, self._pipes, self._port, self._ended = poller, pipes, port, ended
        self._client, self._endpoint = client, endpoint
        self._up = _Direction(client, endpoint, readable=True, writable=True)
        self._down = _Direction(endpoint, client, readable=bool(events & READABLE), writable=True)
        self.is_open = True
        poller.set_handler(endpoint, self._endpoint_event)
        poller.add(client, ONCE, self._client_event)
        self._pump()

    def _client_event(self, events: int) -> None:
        self._event(self._client, self._up, self._down, events)

    def _endpoint_event(self, events: int) -> None:
        self._event(self._endpoint, self._down, self._up, events)

    def _event(self, sock: socket.socket, sending: _Direction, taking: _Direction, events: int) -> None:
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
        if self._up.has_ended and self._down.has_ended:
            self._close()
        elif is_busy:
            self._poller.call_soon(self._pump)

    def _move(self, direction: _Direction) -> bool:
        """Move what can be moved now; whether there is more to move at once."""
        for _ in range(ROUNDS):
            if not direction.pending and not self._fill(direction):
                break
            if not direction.writable or direction.pipe is None:
                break
            try:
                count = os.splice(
                    direction.pipe[0], direction.target.fileno(), direction.pending, flags=os.SPLICE_F_NONBLOCK
                )
            except BlockingIOError:
                direction.writable = False
                break
            direction.pending -= count
            if direction is self._up:
                self._port.received_bytes += count
            else:
                self._port.sent_bytes += count
        else:
            return True
        if direction.pipe is not None and not direction.pending:
            self._pipes.give(direction.pipe)
            direction.pipe = None
        return False

    def _fill(self, direction: _Direction) -> bool:
        """Returns whether data was read into the pipe; at its end the FIN is relayed."""
        if not direction.readable or direction.has_ended:
            return False
        if direction.pipe is None:
            direction.pipe = self._pipes.take()
        try:
            direction.pending = os.splice(direction.source, direction.pipe[1], PIPE_BYTES, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            direction.readable = False
            return False
        if direction.pending:
            return True
        direction.has_ended = True
        direction.target.shutdown(socket.SHUT_WR)
        return False

    def reset(self) -> None:
        if self.is_open:
            for sock in (self._client, self._endpoint):
                reset_on_close(sock)
            self._close()

    def _close(self) -> None:
        self.is_open = False
        for direction in (self._up, self._down):
            if direction.pipe is not None:
                self._pipes.give(direction.pipe, is_empty=not direction.pending)
                direction.pipe = None
        self._poller.remove(self._client)
        self._poller.remove(self._endpoint)
        self._ended()


def reset_on_close(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
