"""The counters of mode userspace: what relays saw of each Service port, and what the rules count."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from kdns.proxy.plan.plan import Plan, PortName
from kdns.proxy.sync.io.proxier import Counters
from kdns.proxy.userspace.sessions import PortState
from kdns.runtime.metrics import COUNTER, GAUGE, Metric, MetricFamilies, Sample

_LABELS: Final = ("namespace", "service", "port", "protocol")
_FIELDS: Final = (
    ("active", "Relayed connections now.", GAUGE),
    ("retries", "Attempts to reach another endpoint.", COUNTER),
    ("failures", "Connections for which no endpoint answered.", COUNTER),
    ("received_bytes", "Relayed from clients.", COUNTER),
    ("sent_bytes", "Relayed to clients.", COUNTER),
)
"""Fields of PortState, with their help texts."""


class RelayCounters:
    """The counters of relays, and those of the rules if there are any."""

    def __init__(self, by_port: Mapping[PortName, PortState], kernel: Counters | None) -> None:
        self.by_port, self._kernel = by_port, kernel

    def register(self, metrics: MetricFamilies) -> None:
        for name, text, kind in _FIELDS:
            metrics.add(Metric(f"kdns_relay_{name}", text, _LABELS, partial(self._samples, name), kind))
        if self._kernel:
            self._kernel.register(metrics)

    async def read(self, plan: Plan) -> None:
        if self._kernel:
            await self._kernel.read(plan)

    def _samples(self, field: str) -> list[Sample]:
        return [Sample(tuple(name), float(getattr(port, field))) for name, port in self.by_port.items()]
