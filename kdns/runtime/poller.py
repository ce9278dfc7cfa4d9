"""An epoll instance inside the event loop. Sockets are registered once, which halves the cost of a short connection.

Sockets are closed only after all events of one epoll_wait(2) were handled. So no event reaches another socket that has
got the same descriptor number meanwhile.
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
"""Edge-triggered: the handler has to read until nothing comes, and write until nothing goes."""
WHILE_READABLE: Final = select.EPOLLIN

_MAX_EVENTS: Final = 256

log = logs.get(__name__)


class Poller:
    """Sockets and the handlers of their events."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._closing: list[socket.socket] = []
        self._calls: dict[Callable[[], None], None] = {}
        self._is_polling = False
        self.loop.add_reader(self._epoll.fileno(), self._poll)

    def add(self, sock: socket.socket, events: int, handler: Handler) -> None:
        self._handlers[sock.fileno()] = handler
        self._epoll.register(sock.fileno(), events)

    def set_handler(self, sock: socket.socket, handler: Handler) -> None:
        self._handlers[sock.fileno()] = handler

    def set_events(self, sock: socket.socket, events: int) -> None:
        """Waits for no events of the socket but these."""
        self._epoll.modify(sock.fileno(), events)

    def remove(self, sock: socket.socket) -> None:
        """Closes the socket; its handler is not called any more."""
        number = sock.fileno()
        if self._handlers.pop(number, None) is not None:
            self._epoll.unregister(number)
        if self._is_polling:
            self._closing.append(sock)
        else:
            sock.close()

    def call_soon(self, call: Callable[[], None]) -> None:
        if not self._calls:
            self.loop.call_soon(self._continue)
        self._calls[call] = None

    def close(self) -> None:
        self.loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        self._calls.clear()

    def _continue(self) -> None:
        calls, self._calls = self._calls, {}
        for call in calls:
            call()

    def _poll(self) -> None:
        self._is_polling = True
        try:
            for number, events in self._epoll.poll(0, _MAX_EVENTS):
                handler = self._handlers.get(number)
                if handler is None:
                    continue
                try:
                    handler(events)
                except Exception:  # events of other sockets come only once, and have to be handled
                    log.exception("handler of a socket failed")
        finally:
            self._is_polling = False
            closing, self._closing = self._closing, []
            for sock in closing:
                sock.close()
