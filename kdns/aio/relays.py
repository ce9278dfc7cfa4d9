"""What all relays of a node share: the poller, the pipes, the plan's answers, and how many descriptors there may be."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Final, Protocol

from kdns import logs
from kdns.aio.poller import Poller
from kdns.aio.splice import Pipes
from kdns.errors import ListenError
from kdns.proxy.relaying import Relaying

RESERVED: Final = 256
"""Descriptors that are left to everything else in the process."""
DATAGRAM_BYTES: Final = 65535
TOLD_EVERY_S: Final = 60.0
BACKLOG: Final = 4096
KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 300), (socket.TCP_KEEPINTVL, 60), (socket.TCP_KEEPCNT, 5))
"""Clients and endpoints that vanish without a word are noticed after ten minutes; those that are only silent stay."""
IP_PKTINFO: Final = 8
_MOST: Final = 1 << 20

log = logs.get(__name__)


def descriptor_limit() -> int:
    """How many descriptors the process may have, after asking for as many as it can get."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _MOST if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


class Room:
    """Descriptors that relays use, and the bound."""

    def __init__(self, limit: int, now_s: Callable[[], float]) -> None:
        self.limit, self.used = limit, 0
        self._now_s, self._told_s = now_s, -TOLD_EVERY_S

    def take(self, count: int) -> bool:
        """Count these in, if there is room; if not, the log says so now and then."""
        if self.used + count <= self.limit:
            self.used += count
            return True
        self.tell()
        return False

    def tell(self) -> None:
        """Say that there is no room, if that was not said just now."""
        if self._now_s() - self._told_s >= TOLD_EVERY_S:
            self._told_s = self._now_s()
            log.warning("no room for more clients: new ones are turned away", used=self.used, limit=self.limit)

    def give(self, count: int) -> None:
        """Count these out."""
        self.used -= count


class Connection(Protocol):
    """A TCP connection that a relay has taken."""

    def reset(self) -> None:
        """End it."""


class Shared:
    """What a relay needs beside its own listener. To be made inside of a running loop."""

    def __init__(
        self, relaying: Relaying, *, limit: int | None = None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.relaying, self.now_s = relaying, now_s
        self.poller = Poller()
        self.loop = self.poller.loop
        self.pipes = Pipes()
        self.connections: set[Connection] = set()
        self.datagram = memoryview(bytearray(DATAGRAM_BYTES))
        """For the one that is just being passed on."""
        self.room = Room(descriptor_limit() - RESERVED if limit is None else limit, now_s)

    def close(self) -> None:
        """Reset the connections that are left: an end would look as if everything had been said."""
        for connection in list(self.connections):
            connection.reset()
        self.poller.close()
        self.pipes.close()


def listener(address: str, kind: int, ports: Iterable[int]) -> socket.socket:
    """A socket at the first port that can be had, ready for clients; ListenError says why there is none."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    tried, failure = 0, "no port is left"
    for tried in ports:
        with ExitStack() as undone:
            try:
                made = undone.enter_context(socket.socket(family, kind))
                _set_up(made, family, kind)
                made.bind((address, tried))
                if kind == socket.SOCK_STREAM:
                    made.listen(BACKLOG)
            except PermissionError:
                failure = f"ports below {_first_free()} need the capability NET_BIND_SERVICE"
                break
            except OSError as error:
                failure = error.strerror or str(error)
            else:
                undone.pop_all()
                return made
    where = f"[{address}]" if ":" in address else address
    raise ListenError(f"{where}:{tried}/{'tcp' if kind == socket.SOCK_STREAM else 'udp'}", failure)


def _set_up(made: socket.socket, family: int, kind: int) -> None:
    made.setblocking(False)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    else:
        made.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
    if kind == socket.SOCK_STREAM:  # what clients' sockets inherit
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        quicken(made)


def quicken(sock: socket.socket) -> None:
    """Send small pieces at once, and notice when the other side is gone for good."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _first_free() -> str:
    try:
        with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", encoding="ascii") as knob:  # noqa: PTH123 - a knob
            return knob.read().strip()
    except OSError:
        return "1024"
