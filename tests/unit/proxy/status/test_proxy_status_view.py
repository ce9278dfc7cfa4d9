"""A plan on the status page: what Services do not get, and warnings about them."""

from dataclasses import replace

from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state

from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.plan.planner import plan
from kdns.proxy.status.view import SHOWN, plan_section, refused_section, running_advice


def test_what_is_refused_and_what_is_warned_of() -> None:
    config = replace(CONFIG, mode=replace(NFTABLES, protocols=frozenset({"TCP"}), supported_endpoints=1))
    planned = plan(
        state(*(service(number, endpoints(number, "p1", "r1")) for number in range(1, 40))), NODE_VIEW, config
    )
    (table,) = plan_section(planned).tables
    assert [row[:2] for row in table.rows] == [("IPv4", "39"), ("IPv6", "39")]
    refused, warnings = refused_section(planned, {("shop", "s1"): "no such match"}).tables
    assert refused.rows[0] == ("shop/s1", "rules that the kernel rejects", "no such match")
    assert len(refused.rows) == SHOWN + 1
    assert refused.rows[-1] == ("…", "", f"and {1 + len(planned.refusals) - SHOWN} more")
    assert warnings.rows[0] == ("shop/s1", "mode nftables supports 1 endpoints of a Service, and it has 2")
    assert len(warnings.rows) == 39
    advice = [one.text for one in running_advice(planned, {("shop", "s1"): "no such match"}, 2)]
    assert advice[0] == "The kernel rejects rules of Service shop/s1: no such match"
    assert len(advice) == len(planned.refusals) + 2
    assert advice[-1] == "Another program changed the rules 2 times."
