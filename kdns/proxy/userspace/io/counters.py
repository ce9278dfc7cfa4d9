"""The counters of mode userspace: what relays saw of each Service port, and what the rules count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kdns.proxy.plan.plan import Plan, PortName
from kdns.proxy.sync.io.proxier import Counters
from kdns.proxy.userspace.sessions import PortState
from kdns.runtime.metrics import COUNTER, GAUGE, Metric, MetricFamilies, Sample

_LABELS: Final = ("namespace", "service", "port", "protocol")
_FIELDS: Final = (
    ("active", "Relayed connections now.", False),
    ("retries", "Attempts to reach another endpoint.", True),
    ("failures", "Connections for which no endpoint answered.", True),
    ("received_bytes", "Relayed from clients.", True),
    ("sent_bytes", "Relayed to clients.", True),
)
"""Field of PortState, help text, and whether it only grows."""


class RelayCounters:
    """The counters of relays, and those of the rules if there are any."""

    def __init__(self, by_port: Mapping[PortName, PortState], kernel: Counters | None) -> None:
        self.by_port, self._kernel = by_port, kernel

    def register(self, metrics: MetricFamilies) -> None:
        for name, text, is_counter in _FIELDS:
            metrics.add(
                Metric(f"kdns_relay_{name}", text, _LABELS, self._samples(name), COUNTER if is_counter else GAUGE)
            )
        if self._kernel:
            self._kernel.register(metrics)

    async def read(self, plan: Plan) -> None:
        if self._kernel:
            await self._kernel.read(plan)

    def _samples(self, field: str) -> Callable[[], Iterable[Sample]]:
        return lambda: [Sample(tuple(name), float(getattr(port, field))) for name, port in self.by_port.items()]
