"""The counters of mode iptables: kube-proxy's figures of restores and rules, and packets that rules count by nfacct."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from kdns.net import FAMILIES, Family
from kdns.netlink.io import nfacct
from kdns.proxy.iptables.base_chains import INVALID_PACKETS, LOCALHOST_PACKETS
from kdns.proxy.plan.plan import Plan
from kdns.proxy.xtables.io.restores import ExpectedRules
from kdns.proxy.xtables.names import FILTER, NAT
from kdns.runtime.metrics import COUNTER, Metric, MetricFamilies, Sample

_SYNC: Final = "kubeproxy_sync_proxy_rules_iptables_"
_BY_TABLE: Final = ("ip_family", "table")
_PACKETS: Final = (
    (
        "kubeproxy_iptables_ct_state_invalid_dropped_packets",
        "Packets of no valid connection, dropped.",
        INVALID_PACKETS,
    ),
    (
        "kubeproxy_iptables_localhost_nodeports_accepted_packets",
        "Packets to node ports of 127.0.0.0/8.",
        LOCALHOST_PACKETS,
    ),
)
"""Metric, help text, and the counter of nfacct."""


class IptablesCounters:
    """Restores that failed, rules by table, and packets."""

    def __init__(self, expected: Mapping[Family, ExpectedRules]) -> None:
        self.partial_failures = Counter[str]()
        self._expected = expected
        self._packets: dict[str, int] = {}

    def register(self, metrics: MetricFamilies) -> None:
        text = "Partial restores that failed."
        metrics.add(Metric(f"{_SYNC}partial_restore_failures", text, ("ip_family",), self._failures, COUNTER))
        rows: tuple[tuple[str, str, Callable[[ExpectedRules, str], int]], ...] = (
            ("total", "Rules of this proxy.", ExpectedRules.total),
            ("last", "Rules that the last restore wrote.", lambda rules, table: rules.written[table]),
        )
        for name, text, value in rows:
            metrics.add(Metric(f"{_SYNC}{name}", text, _BY_TABLE, partial(self._by_table, value)))
        for name, text, counter in _PACKETS:
            metrics.add(Metric(name, text, (), partial(self._counted, counter), COUNTER))

    async def read(self, plan: Plan) -> None:
        del plan
        with suppress(OSError):
            self._packets = await asyncio.to_thread(nfacct.packets)

    def _failures(self) -> Iterable[Sample]:
        return [Sample((family,), self.partial_failures[family]) for family in FAMILIES]

    def _by_table(self, value: Callable[[ExpectedRules, str], int]) -> Iterable[Sample]:
        for family, expected in self._expected.items():
            for table in (FILTER, NAT):
                yield Sample((family, table), value(expected, table))

    def _counted(self, counter: str) -> Iterable[Sample]:
        if counter in self._packets:
            yield Sample((), self._packets[counter])
