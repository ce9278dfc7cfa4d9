"""What all relays of a node share: the poller, the pipes, the decisions about clients, and the descriptors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from kdns import logs
from kdns.aio.connections import Kind, maximum
from kdns.aio.dataplane.userspace.poller import Poller
from kdns.aio.dataplane.userspace.splice import Pipes
from kdns.proxy.userspace.sessions import Sessions

DATAGRAM_BYTES: Final = 65535
LOG_EVERY_S: Final = 60.0

log = logs.get(__name__)


class DescriptorBudget:
    """The descriptors that relays have in use, and their limit."""

    def __init__(self, limit: int, now_s: Callable[[], float]) -> None:
        self.limit, self.used = limit, 0
        self._now_s, self._logged_s = now_s, -LOG_EVERY_S

    def take(self, count: int) -> bool:
        """Whether so many descriptors are within the limit; then they are in use."""
        if self.used + count <= self.limit:
            self.used += count
            return True
        self.log_exhausted()
        return False

    def log_exhausted(self) -> None:
        """Log that clients are turned away, at most once in LOG_EVERY_S."""
        if self._now_s() - self._logged_s >= LOG_EVERY_S:
            self._logged_s = self._now_s()
            log.warning("no descriptors left for relays: new clients are reset", used=self.used, limit=self.limit)

    def give(self, count: int) -> None:
        """So many descriptors are not in use any more."""
        self.used -= count


class Connection(Protocol):
    """A TCP connection that a relay has accepted."""

    def reset(self) -> None:
        """Reset it."""


class RelayResources:
    """What a relay needs beside its own listener. To be made inside of a running loop."""

    def __init__(
        self, sessions: Sessions, *, limit: int | None = None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.sessions, self.now_s = sessions, now_s
        self.poller = Poller()
        self.loop = self.poller.loop
        self.pipes = Pipes()
        self.connections: set[Connection] = set()
        self.datagram = memoryview(bytearray(DATAGRAM_BYTES))
        """A buffer for the datagram that is being relayed."""
        self.descriptors = DescriptorBudget(maximum(Kind.RELAYS) if limit is None else limit, now_s)

    def close(self) -> None:
        """Reset the connections that are left: a FIN would mean that all data was sent."""
        for connection in list(self.connections):
            connection.reset()
        self.poller.close()
        self.pipes.close()
