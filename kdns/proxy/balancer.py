"""Which endpoint a client of a relay gets: each in turn, or with session affinity the one it had before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kdns.proxy.backends import Backend
from kdns.proxy.plan import PortName, PortPlan

MAX_CLIENTS: Final = 65536
"""Clients that a Service port remembers; beyond, the one that was away longest is forgotten."""


class Kept(NamedTuple):
    """The endpoint of a client, and when it last connected."""

    backend: Backend
    used_s: float


@dataclass(slots=True)
class _Turn:
    """What is remembered of one Service port; clients in the order of their last connection."""

    count: int
    clients: dict[str, Kept] = field(default_factory=dict)
    affinity_s: int = 0


class Balancer:
    """Round robin over the endpoints of every Service port, and who keeps which.

    `draw(n)` says with which of n endpoints a Service port begins, so that not all nodes begin with the same.
    """

    def __init__(self, draw: Callable[[int], int] = lambda count: 0 * count) -> None:
        self._draw = draw
        self._turns: dict[PortName, _Turn] = {}

    def choose(
        self, port: PortPlan, backends: Sequence[Backend], client: str, now_s: float, *, anew: bool = False
    ) -> Backend:
        """One of the backends, of which there is at least one; `anew`: whatever the client had before has failed."""
        turn = self._turns.get(port.name)
        if turn is None:
            turn = self._turns[port.name] = _Turn(self._draw(len(backends)))
        if not port.affinity_s:
            return self._next(turn, backends)
        turn.affinity_s = port.affinity_s
        kept = turn.clients.pop(client, None)
        if anew or kept is None or now_s - kept.used_s >= port.affinity_s or kept.backend not in backends:
            backend = self._next(turn, backends)
        else:
            backend = kept.backend
        turn.clients[client] = Kept(backend, now_s)
        if len(turn.clients) > MAX_CLIENTS:
            del turn.clients[next(iter(turn.clients))]
        return backend

    def _next(self, turn: _Turn, backends: Sequence[Backend]) -> Backend:
        chosen = backends[turn.count % len(backends)]
        turn.count += 1
        return chosen

    def clients(self, name: PortName) -> list[str]:
        """The clients that are remembered, the one that was away longest first."""
        return list(self._turns[name].clients) if name in self._turns else []

    def forget(self, name: PortName) -> None:
        """The Service port is gone."""
        self._turns.pop(name, None)

    def sweep(self, now_s: float) -> None:
        """Forget the clients whose time is over."""
        for turn in self._turns.values():
            while turn.clients:
                client, kept = next(iter(turn.clients.items()))
                if now_s - kept.used_s < turn.affinity_s:
                    break
                del turn.clients[client]
