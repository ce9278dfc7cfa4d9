"""The counters of mode userspace: what relays saw of each Service port, and what the capture counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kdns.proxy.plan.plan import Plan, PortName
from kdns.proxy.sync.io.proxier import Counters
from kdns.proxy.userspace.sessions import PortCounters, Sessions
from kdns.runtime.metrics import COUNTER, GAUGE, Metric, MetricFamilies, Sample

_LABELS: Final = ("namespace", "service", "port", "protocol")
_FIELDS: Final = (
    ("active", "Relayed connections now.", False),
    ("retries", "Attempts to reach another endpoint.", True),
    ("failures", "Connections for which no endpoint answered.", True),
    ("received_bytes", "Relayed from clients.", True),
    ("sent_bytes", "Relayed to clients.", True),
)
"""Field of PortCounters, help text, and whether it only grows."""


class RelayCounters:
    """The counters of relays, and those of the capture where there is one."""

    def __init__(self, sessions: Sessions, capture: Counters | None) -> None:
        self._sessions, self._capture = sessions, capture

    @property
    def by_port(self) -> Mapping[PortName, PortCounters]:
        """The counters of the relays of each Service port."""
        return self._sessions.counters

    def register(self, metrics: MetricFamilies) -> None:
        """Adds `kdns_relay_…` and the families of the capture."""
        for name, text, is_counter in _FIELDS:
            metrics.add(
                Metric(f"kdns_relay_{name}", text, _LABELS, self._samples(name), COUNTER if is_counter else GAUGE)
            )
        if self._capture:
            self._capture.register(metrics)

    async def read(self, plan: Plan) -> None:
        """Reads the counters of the capture."""
        if self._capture:
            await self._capture.read(plan)

    def _samples(self, field: str) -> Callable[[], Iterable[Sample]]:
        return lambda: [Sample(tuple(name), float(getattr(counters, field))) for name, counters in self.by_port.items()]
