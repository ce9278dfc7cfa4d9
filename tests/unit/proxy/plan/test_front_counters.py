"""Counters that go on while what they are read from begins anew."""

import pytest

from kdns.cluster.objects import Service, ServiceMeta, ServicePort, ServiceSpec
from kdns.cluster.state import State
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.plan import front_counters
from kdns.proxy.plan.config import NodeView, ProxyConfig
from kdns.proxy.plan.front_counters import LABELS, FrontCounters
from kdns.proxy.plan.plan import FrontKey, Plan
from kdns.proxy.plan.planner import plan

ONE, TWO, STRANGE = (FrontKey(f"10.96.0.{number}", "TCP", 80) for number in (1, 2, 9))
WEB, DNS = (("d", name, "p", "TCP", "IPv4") for name in ("web", "dns"))


def planned(*names: str) -> Plan:
    """A plan of Services that have these fronts: web two, dns one."""
    state = State()
    rows = {
        "web": ServiceSpec(cluster_ip=ONE.address, external_ips=(TWO.address,), ports=(ServicePort(80, "p"),)),
        "dns": ServiceSpec(cluster_ip="10.96.0.3", ports=(ServicePort(80, "p"),)),
    }
    for name in names:
        state.upsert(Service(ServiceMeta(name, "d"), rows[name]))
    return plan(state, NodeView("here"), ProxyConfig(NFTABLES))


@pytest.mark.parametrize(
    ("readings", "total"),
    [
        ([{ONE: 5}], 5),
        ([{ONE: 5}, {ONE: 5}, {ONE: 7}], 7),
        ([{ONE: 5}, {ONE: 2}, {ONE: 3}], 8),  # made anew, and two since
        ([{ONE: 5}, {}, {ONE: 2}], 7),  # made anew, and read before anything came
        ([{ONE: 5, TWO: 1}, {ONE: 6, TWO: 1}], 7),
        ([{ONE: 5, STRANGE: 100}], 5),
    ],
)
def test_totals_are_what_was_gained(readings: list[dict[FrontKey, int]], total: int) -> None:
    whole, tally = planned("web"), FrontCounters()
    for reading in readings:
        tally.read(whole.ipv4, reading)
    assert tally.highest(whole) == [(WEB, total)]


def test_services_that_go_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    both, tally = planned("web", "dns"), FrontCounters()
    tally.read(both.ipv4, {FrontKey("10.96.0.3", "TCP", 80): 2, ONE: 5})
    tally.read(both.ipv4, {FrontKey("10.96.0.3", "TCP", 80): 2, ONE: 6})
    assert tally.highest(both) == [(WEB, 6), (DNS, 2)]
    assert {len(labels) for labels, _ in tally.highest(both)} == {len(LABELS)}
    assert tally.highest(planned("dns")) == [(DNS, 2)]
    tally.read(both.ipv4, {ONE: 1})
    assert tally.highest(both) == [(DNS, 2), (WEB, 1)]
    monkeypatch.setattr(front_counters, "MAX_SERVICE_PORTS", 1)
    assert tally.highest(both) == [(DNS, 2)]
