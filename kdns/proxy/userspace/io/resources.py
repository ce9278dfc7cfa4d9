"""Resources that all relays of a node share: poller, pipes, decisions about clients, and descriptors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from kdns import logs
from kdns.net import Address
from kdns.proxy.userspace.io.splice import Pipes
from kdns.proxy.userspace.sessions import Sessions
from kdns.runtime.connections import ConnectionKind, maximum
from kdns.runtime.poller import Poller

DATAGRAM_BYTES: Final = 65535


class DescriptorBudget:
    """The descriptors that relays have in use, and their limit.

    A client may hold as many as are free: alone it gets half of them, and n that take all they can get leave one part
    of n + 1 to others. A client is an address, since the Pods of a node may have one network of 64 bits.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0
        self._clients: Counter[Address] = Counter()
        self._exhausted = logs.RareWarning(
            __name__, "no descriptors left for relays: new clients are reset", limit=limit
        )
        self._unshared = logs.RareWarning(__name__, "a client has its share of the descriptors for relays", limit=limit)

    def take(self, count: int, client: Address) -> bool:
        """False if the client's share or the limit has fewer descriptors left; else they are in use."""
        free = self.limit - self.used
        if count > free:
            self.log_exhausted()
            return False
        held = self._clients[client] + count
        if held > free:
            self._unshared.log(client=str(client), held=held - count)
            return False
        self._clients[client] = held
        self.used += count
        return True

    def log_exhausted(self) -> None:
        """Logs that clients are turned away, at most once a minute."""
        self._exhausted.log(used=self.used)

    def give(self, count: int, client: Address) -> None:
        self.used -= count
        self._clients[client] -= count
        if not self._clients[client]:
            del self._clients[client]


class RelayResources:
    """The resources of a relay beside its own listener. Created inside of a running loop."""

    def __init__(self, sessions: Sessions, limit: int | None, now_s: Callable[[], float]) -> None:
        self.sessions, self.now_s = sessions, now_s
        self.poller = Poller()
        self.loop = self.poller.loop
        self.pipes = Pipes()
        self.connections: set[Callable[[], None]] = set()
        """Resets one TCP connection each."""
        self.datagram = memoryview(bytearray(DATAGRAM_BYTES))
        """A buffer for the datagram that is being relayed."""
        self.descriptors = DescriptorBudget(maximum(ConnectionKind.RELAYS) if limit is None else limit)

    def reset(self) -> None:
        """Resets the connections: a FIN would mean that all data was sent."""
        for reset in list(self.connections):
            reset()

    def close(self) -> None:
        self.reset()
        self.poller.close()
        self.pipes.close()
