"""Which endpoint a client of a relay gets: round robin, or with session affinity the endpoint it had before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kdns.proxy.plan.endpoints import ServiceEndpoint
from kdns.proxy.plan.plan import PortName, PortPlan

MAX_CLIENTS: Final = 65536
"""Affinity entries of a Service port; beyond, the one that was used longest ago is deleted."""


class Affinity(NamedTuple):
    """The endpoint of a client, and when the client last connected."""

    endpoint: ServiceEndpoint
    used_s: float


@dataclass(slots=True)
class _PortState:
    """One Service port: the round robin's counter, and affinity by client in the order of last use."""

    count: int
    clients: dict[str, Affinity] = field(default_factory=dict)
    affinity_s: int = 0


class Balancer:
    """Round robin and session affinity of all Service ports.

    `draw(n)` is the index of the endpoint, of n, with which a Service port begins, so that nodes begin with different
    ones.
    """

    def __init__(self, draw: Callable[[int], int] = lambda count: 0 * count) -> None:
        self._draw = draw
        self._ports: dict[PortName, _PortState] = {}

    def choose(
        self, port: PortPlan, endpoints: Sequence[ServiceEndpoint], client: str, now_s: float, *, anew: bool = False
    ) -> ServiceEndpoint:
        """Returns one of the endpoints, which are not empty.

        With `anew` the client's affinity is ignored.
        """
        state = self._ports.get(port.name)
        if state is None:
            state = self._ports[port.name] = _PortState(self._draw(len(endpoints)))
        if not port.affinity_s:
            return self._next(state, endpoints)
        state.affinity_s = port.affinity_s
        last = state.clients.pop(client, None)
        if anew or last is None or now_s - last.used_s >= port.affinity_s or last.endpoint not in endpoints:
            endpoint = self._next(state, endpoints)
        else:
            endpoint = last.endpoint
        state.clients[client] = Affinity(endpoint, now_s)
        if len(state.clients) > MAX_CLIENTS:
            del state.clients[next(iter(state.clients))]
        return endpoint

    def _next(self, state: _PortState, endpoints: Sequence[ServiceEndpoint]) -> ServiceEndpoint:
        endpoint = endpoints[state.count % len(endpoints)]
        state.count += 1
        return endpoint

    def clients(self, name: PortName) -> list[str]:
        """Returns the clients with affinity, the one that connected longest ago first."""
        return list(self._ports[name].clients) if name in self._ports else []

    def forget(self, name: PortName) -> None:
        self._ports.pop(name, None)

    def sweep(self, now_s: float) -> None:
        for state in self._ports.values():
            while state.clients:
                client, last = next(iter(state.clients.items()))
                if now_s - last.used_s < state.affinity_s:
                    break
                del state.clients[client]
