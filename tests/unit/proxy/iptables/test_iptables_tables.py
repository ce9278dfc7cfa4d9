"""How restores are put together: what one commit has, what stays, and what a change writes."""

from collections.abc import Mapping
from typing import Any, Final

import ipt_walk
import msgspec
import pytest
from small_cluster import NODE_VIEW, Followed, endpoints, service

from kdns.cluster.objects import Endpoint, EndpointSlice, Object, Service
from kdns.net import Family
from kdns.proxy.iptables.base_chains import JUMPS, Features
from kdns.proxy.iptables.mode import IPTABLES
from kdns.proxy.iptables.tables import LARGE, Tables
from kdns.proxy.plan.planner import Difference

HERE: Final[dict[str, Any]] = {"mode": IPTABLES, "node_port_addresses": ()}
STALE: Final = ["KUBE-SEP-A", "KUBE-SVL-A", "KUBE-SVC-A", "KUBE-EXT-A", "KUBE-FW-A"]
OTHERS: Final = ["KUBE-MARK-DROP", "MY-CHAIN", "KUBE-SVC"]


class FollowedTables(Followed):
    """IPv4 tables that follow a state, and what a kernel has of them."""

    def __init__(self, *objects: tuple[Object, ...], features: Features | None = None, **changed: Any) -> None:
        super().__init__(*objects, **{**HERE, **changed})
        self.tables = Tables(self.plan.ipv4, features or Features())
        self.kernel = ipt_walk.Kernel()
        self.kernel.restore(self.tables.whole({}))

    def restore_of(self, differences: Mapping[Family, Difference]) -> str:
        return self.tables.follow(self.plan.ipv4, differences["IPv4"])

    def follow(self, *objects: Object) -> str:
        text = self.restore_of(self.change(objects))
        self.kernel.restore(text)
        return text


def web(number: int = 1, *ends: str, **spec: object) -> tuple[Object, ...]:
    return service(number, endpoints(number, *(ends or ("p1", "r1"))), protocols=("TCP",), **spec)  # type: ignore[arg-type]


def crowd(size: int) -> tuple[EndpointSlice, ...]:
    (ipv4, _) = endpoints(1, "p1")
    many = tuple(Endpoint((f"10.9.{number // 250}.{number % 250}",)) for number in range(size))
    return (msgspec.structs.replace(ipv4, endpoints=many),)


def sections(text: str) -> list[list[str]]:
    return [part.strip().splitlines() for part in text.split("COMMIT\n") if part.strip()]


def declared(lines: list[str]) -> list[str]:
    return [line[1:].split()[0] for line in lines if line.startswith(":")]


def test_everything_is_one_commit_a_table_unless_told_otherwise() -> None:
    followed = FollowedTables(*(web(number) for number in range(1, 40)))
    assert [lines[0] for lines in sections(followed.tables.whole({}))] == ["*nat", "*filter", "*mangle"]


@pytest.mark.parametrize("bound", [1, 4, 10, 60])
def test_commits_are_bounded_and_a_ports_chains_are_of_one(bound: int) -> None:
    followed = FollowedTables(*(web(number) for number in range(1, 20)), features=Features(chains_per_section=bound))
    whole = sections(followed.tables.whole({"nat": STALE}))
    nat = [lines for lines in whole if lines[0] == "*nat"]
    of_a_port = 4  # KUBE-SVC, KUBE-EXT and two KUBE-SEP
    fixed = 3  # what masquerades, and the canary
    assert all(len(declared(lines)) <= max(bound, of_a_port, fixed, len(STALE)) for lines in nat)
    for lines in nat:
        own = set(declared(lines))
        for line in lines:
            target = ipt_walk.target_of(line)
            assert not target.startswith("KUBE-SEP-") or target in own, "an endpoint's chain is written with its list"
    places = {name: index for index, lines in enumerate(nat) for name in declared(lines)}
    assert places["KUBE-SERVICES"] == max(index for name, index in places.items() if name not in STALE)
    assert min(places[name] for name in STALE) > places["KUBE-SERVICES"]
    assert whole[-1] == ["*mangle", ":KUBE-PROXY-CANARY - [0:0]", '-A KUBE-PROXY-CANARY -m comment --comment "kdns"']


def test_stale_chains_go_before_what_they_lead_to_and_others_stay() -> None:
    followed = FollowedTables(web())
    there = {"nat": [*STALE, *OTHERS], "filter": [*STALE, "KUBE-FIREWALL"], "mangle": []}
    lines = followed.tables.whole(there).splitlines()
    deleted = [line.split()[1] for line in lines if line.startswith("-X")]
    assert deleted == ["KUBE-FW-A", "KUBE-EXT-A", "KUBE-SVC-A", "KUBE-SVL-A", "KUBE-SEP-A"]
    assert not [line for line in lines if line.split()[0].lstrip(":") in OTHERS]


def test_the_kubelets_firewall_chain_is_emptied_only_to_be_filled() -> None:
    there = {"filter": ["KUBE-FIREWALL"]}
    for is_written in (True, False):
        tables = FollowedTables(web(), localhost_node_ports=is_written).tables
        assert (":KUBE-FIREWALL " in tables.whole(there)) is is_written
        assert ":KUBE-FIREWALL " in tables.whole({})


def test_what_changes_no_rule_writes_nothing() -> None:
    followed = FollowedTables(web(1, created="2026-01-01T00:00:00Z"))
    assert followed.follow(*web(1, created="2025-01-01T00:00:00Z")) == ""
    assert followed.follow() == ""


def test_a_change_writes_chains_that_differ_and_single_rules_of_shared_ones() -> None:
    followed = FollowedTables(*(web(number) for number in range(1, 50)))
    text = followed.follow(*web(7, "p1", "r1", "r2"))
    assert sorted(name[:9] for name in declared(text.splitlines())) == ["KUBE-SEP-", "KUBE-SVC-"]
    moved = followed.follow(*web(7, "p1", "r1", "r2", externalIPs=["198.51.100.77"]))
    commands = [line.split()[:4] for line in moved.splitlines() if line.startswith("-")]
    assert commands == [
        ["-D", "KUBE-SERVICES", "-d", "198.51.100.7/32"],
        ["-I", "KUBE-SERVICES", "-d", "198.51.100.77/32"],
    ]


def test_of_two_rules_of_a_node_port_the_counting_one_stays_first() -> None:
    followed = FollowedTables(web(1), features=Features(nfacct=True))
    followed.follow(*web(2))
    ports = [rule.split()[:2] for rule in followed.kernel.tables["nat"]["KUBE-NODEPORTS"]]
    assert ports == [["-d", "127.0.0.0/8"], ["-p", "tcp"]] * 2


def test_a_change_of_many_is_committed_in_parts_too() -> None:
    followed = FollowedTables(features=Features(chains_per_section=8))
    text = followed.follow(*(each for number in range(1, 10) for each in web(number)))
    assert max(len(declared(lines)) for lines in sections(text)) <= 8
    followed.kernel.restore(followed.restore_of(followed.delete(Service, *(f"s{number}" for number in range(1, 10)))))
    fresh = FollowedTables().kernel
    assert followed.kernel.tables == fresh.tables


def test_endpoints_of_a_large_cluster_have_no_comments() -> None:
    followed = FollowedTables(web(1), web(2))
    before = followed.kernel.tables["nat"]
    assert all("--comment" in rule for name, rules in before.items() if name.startswith("KUBE-SEP-") for rule in rules)
    text = followed.follow(*crowd(LARGE))
    written = [line for line in text.splitlines() if line.startswith("-A KUBE-SEP-")]
    assert len(written) == 2 * LARGE
    assert not [line for line in written if "--comment" in line]
    whole = followed.tables.whole({}).splitlines()
    assert not [line for line in whole if line.startswith("-A KUBE-SEP-") and "--comment" in line]
    assert all("--comment" in line for line in whole if line.startswith("-A KUBE-SERVICES"))
    followed.follow(*endpoints(1, "p1"))
    assert "--comment" in next(
        line for line in followed.tables.whole({}).splitlines() if line.startswith("-A KUBE-SEP-")
    )


def test_a_change_of_chains_that_are_gone_is_refused_and_everything_heals_them() -> None:
    """A partial restore fails where somebody changed the chains; the shell writes everything then."""
    followed = FollowedTables(web())
    followed.kernel.flush("nat")
    with pytest.raises((KeyError, ValueError)):
        followed.follow(*web(1, "r2"))
    followed.kernel.restore(followed.tables.whole(followed.kernel.names))
    assert followed.kernel.tables["nat"] == FollowedTables(web(1, "r2")).kernel.tables["nat"]


STATES: Final = {
    "without endpoints": web(1, "p1 unready"),
    "with an endpoint": web(1, "p1"),
    "with others": web(1, "r1", "r2"),
    "with policy Local": web(1, "p1", "r1", external="Local", internal="Local"),
    "with policy Local and none here": web(1, "r1", external="Local", internal="Local"),
    "with source ranges": web(1, "p1", loadBalancerSourceRanges=["10.0.0.0/8"]),
    "with source ranges and no endpoints": web(1, "p1 unready", loadBalancerSourceRanges=["10.0.0.0/8"]),
}


@pytest.mark.parametrize("bound", [0, 1])
@pytest.mark.parametrize("is_restart", [False, True])
@pytest.mark.parametrize(
    ("before", "after"), [(state, other) for state in STATES for other in STATES if state != other]
)
def test_no_commit_leaves_a_service_to_nobody(before: str, after: str, bound: int, *, is_restart: bool) -> None:
    """While a restore is carried out, a packet to a Service gets an endpoint or an end."""
    followed = FollowedTables(STATES[before], features=Features(chains_per_section=bound))
    for jump in JUMPS:
        followed.kernel.restore(f"*{jump.table}\n-I {jump.chain} {jump}\nCOMMIT\n")
    if is_restart:
        new = FollowedTables(STATES[after], features=Features(chains_per_section=bound))
        text = new.tables.whole(followed.kernel.names)
    else:
        text = followed.restore_of(followed.change(STATES[after]))
    local = [str(address) for address in NODE_VIEW.addresses]
    for commit in text.split("COMMIT\n"):
        followed.kernel.restore(f"{commit}COMMIT\n" if commit else "")
        for destination, port in (("10.96.0.1", 80), ("198.51.100.1", 80), ("198.51.101.1", 80), (local[0], 30001)):
            at = ipt_walk.At("203.0.113.7", destination, "tcp", port)
            ends = ipt_walk.walk(followed.kernel, at, local)
            assert all(end.is_dnat or end.ended in {"drop", "reject"} for end in ends), (destination, commit)
