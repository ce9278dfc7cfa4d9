"""An epoll of its own inside the event loop: sockets are registered once, which is half the cost of a short connection.

Handlers get the events. Sockets are closed after the events that were fetched together, so that none of these meets
another socket that got the same number meanwhile.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from typing import Final, TypeAlias

from kdns import logs

Handler: TypeAlias = Callable[[int], None]

READABLE: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP
WRITABLE: Final = select.EPOLLOUT
FAILED: Final = select.EPOLLERR
ONCE: Final = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
"""Told of each change once: the handler has to go on until nothing is left."""
WHILE_READABLE: Final = select.EPOLLIN

_EVENTS_A_TURN: Final = 256

log = logs.get(__name__)


class Poller:
    """Sockets and who handles their events."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._closing: list[socket.socket] = []
        self._again: dict[Callable[[], None], None] = {}
        self._is_turning = False
        self.loop.add_reader(self._epoll.fileno(), self._turn)

    def add(self, sock: socket.socket, events: int, handler: Handler) -> None:
        """Hand the socket's events to `handler`."""
        self._handlers[sock.fileno()] = handler
        self._epoll.register(sock.fileno(), events)

    def hand_over(self, sock: socket.socket, handler: Handler) -> None:
        """Let somebody else handle the events from now on."""
        self._handlers[sock.fileno()] = handler

    def pause(self, sock: socket.socket, events: int = 0) -> None:
        """Have no events of the socket but these."""
        self._epoll.modify(sock.fileno(), events)

    def remove(self, sock: socket.socket) -> None:
        """Close the socket and hand out none of its events any more."""
        number = sock.fileno()
        if self._handlers.pop(number, None) is not None:
            self._epoll.unregister(number)
        if self._is_turning:
            self._closing.append(sock)
        else:
            sock.close()

    def again(self, call: Callable[[], None]) -> None:
        """Call once more after others had their turn."""
        if not self._again:
            self.loop.call_soon(self._continue)
        self._again[call] = None

    def close(self) -> None:
        """Hand out no events any more."""
        self.loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        self._again.clear()

    def _continue(self) -> None:
        calls, self._again = self._again, {}
        for call in calls:
            call()

    def _handle(self, handler: Handler, events: int) -> None:
        try:
            handler(events)
        except Exception:  # the other sockets' events are told only once
            log.exception("a relay failed")

    def _turn(self) -> None:
        self._is_turning = True
        try:
            for number, events in self._epoll.poll(0, _EVENTS_A_TURN):
                handler = self._handlers.get(number)
                if handler is not None:
                    self._handle(handler, events)
        finally:
            self._is_turning = False
            closing, self._closing = self._closing, []
            for sock in closing:
                sock.close()
