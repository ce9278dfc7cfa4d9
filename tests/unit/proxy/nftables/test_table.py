"""What a table does about single changes: how they are ordered, and what waits for the sweep."""

from __future__ import annotations

from itertools import takewhile

import nft_walk
import pytest
from small_cluster import CONFIG, ENDPOINTS, NODE_VIEW, endpoints, service, state

from kdns.cluster.objects import Object
from kdns.proxy.nftables.fronts import endpoint_ids
from kdns.proxy.nftables.table import Table
from kdns.proxy.nftables.transaction import Transaction, commands
from kdns.proxy.plan.endpoints import ServiceEndpoint
from kdns.proxy.plan.planner import Planner, plan


class Followed:
    """A table of IPv4 that follows a state."""

    def __init__(self, *objects: tuple[Object, ...]) -> None:
        self.state = state(*objects)
        self.planner = Planner(self.state, NODE_VIEW, CONFIG)
        self.table = Table(self.planner.plan.ipv4)

    def change(self, *objects: Object) -> Transaction:
        changes = [change for each in objects if (change := self.state.upsert(each))]
        difference = self.planner.changed(changes)["IPv4"]
        return self.table.follow(self.planner.plan.ipv4, difference)

    def sweep(self) -> Transaction:
        done = self.table.sweep()
        self.table.swept(done)
        return done


def test_an_endpoint_too_many_stays_for_packets_on_their_way() -> None:
    followed = Followed(service(1, endpoints(1, "p1", "p2", "r1"), protocols=("TCP",), externalIPs=[]))
    shrunk = followed.change(*endpoints(1, "p1"))
    assert "endpoints-tcp" not in shrunk.delete
    grown = followed.change(*endpoints(1, "p1", "r2"))
    assert grown.delete["endpoints-tcp"][0] == ("10.96.0.1", 80, 1)
    assert grown.add["endpoints-tcp"]["10.96.0.1", 80, 1] == ("10.1.1.3", 8080)
    swept = followed.sweep()
    assert sorted(swept.delete["endpoints-tcp"]) == [("10.96.0.1", 80, 2), ("198.51.101.1", 80, 2)]
    assert not followed.sweep()


def test_the_maps_of_a_former_policy_stay_for_packets_on_their_way() -> None:
    """And the chains behind them until the sweep after the next: old kernels count elements just deleted."""
    local, cluster = (
        service(1, endpoints(1, "p1"), protocols=("TCP",), external=policy, sessionAffinity="ClientIP")
        for policy in ("Local", "Cluster")
    )
    followed = Followed(local)
    changed = followed.change(cluster[0])
    assert not {"any-endpoint", "local-endpoint"} & changed.delete.keys()
    assert "external-local" not in "".join(commands(changed))
    swept = followed.sweep()
    assert {"any-endpoint", "local-endpoint", "any-endpoint-nodeports"} <= swept.delete.keys()
    assert not swept.remove_chains
    gone = followed.sweep().remove_chains
    assert len(gone) == 2
    assert all(name.startswith("local-endpoint-") for name in gone)
    assert not followed.sweep()
    followed.change(local[0])
    assert not followed.change(cluster[0]).delete.get("local-endpoint")
    back = followed.change(local[0])
    assert list(back.add["local-endpoint"]) == back.delete["local-endpoint"]
    assert not followed.sweep().delete


def test_a_list_of_affinity_that_nobody_uses_stays_and_comes_back_with_the_endpoints_of_then() -> None:
    with_affinity, without = (
        service(1, endpoints(1, "p1", "p2", "r1"), protocols=("TCP",), externalIPs=[], sessionAffinity=affinity)[0]
        for affinity in ("ClientIP", "None")
    )
    followed = Followed((with_affinity, *endpoints(1, "p1", "p2", "r1")))
    assert "endpoints-by-id-tcp" not in followed.change(without).delete
    back = followed.change(with_affinity, *endpoints(1, "p1", "p2"))
    (gone,) = {key[2] for key in back.delete["endpoints-by-id-tcp"]} - {
        key[2] for key in back.add["endpoints-by-id-tcp"]
    }
    assert gone == next(number for number, _ in endpoint_ids([ServiceEndpoint("10.1.1.2", 8080, is_local=False)]))
    assert not followed.sweep().delete.get("endpoints-by-id-tcp")
    followed.change(without)
    assert len(followed.sweep().delete["endpoints-by-id-tcp"]) == 4
    assert not followed.sweep()


def test_a_change_with_affinity_is_one_of_elements_and_of_the_draw() -> None:
    web = service(1, endpoints(1, "p1", "p2", "r1"), protocols=("TCP",), sessionAffinity="ClientIP", externalIPs=[])
    followed = Followed(web)
    changed = followed.change(*endpoints(1, "p1", "r1"))
    places = [("10.96.0.1", 80), ("198.51.101.1", 80)]
    assert [key[:2] for key in changed.delete["endpoints-by-id-tcp"]] == places
    assert changed.delete["endpoint-ids-tcp"] == [(*place, 1) for place in places]
    assert "endpoints-by-id-tcp" not in changed.add
    assert not changed.maps
    assert {len(chain.rules) for name, chain in changed.chains.items() if not name.startswith("masquerade-")} == {6}
    followed.change(*service(1, protocols=("TCP",), externalIPs=[]))
    (gone,) = followed.sweep().remove_maps
    assert gone.startswith("affinity-")


@pytest.mark.parametrize(("kept", "wanted"), [("p1", ["p1"]), ("r1", ["r1"]), ("r2", ["p1", "r1"])])
def test_who_is_known_goes_to_the_same_endpoint_if_it_is_still_there(kept: str, wanted: list[str]) -> None:
    table = Table(plan(state(service(1, endpoints(1, "p1", "r1"), sessionAffinity="ClientIP")), NODE_VIEW, CONFIG).ipv4)
    rules = nft_walk.read(table.whole())
    ((number, _),) = endpoint_ids([ServiceEndpoint(ENDPOINTS[kept][0], 8080)])
    (clients,) = (name for name in rules.elements if name.startswith("affinity-") and "/tcp/" in name)
    rules.elements[clients]["192.0.2.7"] = str(number)
    ends = nft_walk.walk(rules, nft_walk.At("192.0.2.7", "10.96.0.1", "tcp", 80), [])
    assert [end.daddr for end in ends] == [ENDPOINTS[end][0] for end in wanted]


def test_endpoints_with_the_same_number_get_two() -> None:
    alike = [ServiceEndpoint(address, 80) for address in ("10.196.84.20", "10.24.43.192")]
    ((first, _),), ((second, _),) = (endpoint_ids([each]) for each in alike)
    assert first == second
    assert [number for number, _ in endpoint_ids(alike)] == [first, first + 16]


def test_the_number_of_rules_does_not_depend_on_the_number_of_services() -> None:
    few, many = (
        Table(plan(state(*(service(number, endpoints(number, "p1", "r1")) for number in some)), NODE_VIEW, CONFIG).ipv4)
        for some in (range(1, 2), range(1, 200))
    )
    assert rules(few.whole()) == rules(many.whole())


def rules(text: str) -> list[str]:
    """Everything but elements."""
    return sorted(line for line in text.splitlines() if "element" not in line and "flush chain" not in line)


def test_a_takeover_empties_what_it_keeps_and_removes_the_rest() -> None:
    made = plan(
        state(service(1, endpoints(1, "p1"), protocols=("TCP",), sessionAffinity="ClientIP")), NODE_VIEW, CONFIG
    )
    table = Table(made.ipv4)
    (kept,) = (name for name in " ".join(table.takeover({})).split() if name.startswith("affinity-"))
    there = {
        "map": ["service-ips", kept, "affinity-old"],
        "set": ["cluster-ips", "a-set"],
        "chain": ["services", "old"],
    }
    assert list(takewhile(lambda command: not command.startswith("table "), table.takeover(there))) == [
        "add table ip kdns",
        "flush table ip kdns",
        "flush set ip kdns cluster-ips",
        "delete set ip kdns a-set",
        "flush map ip kdns service-ips",
        "delete map ip kdns affinity-old",
        "delete chain ip kdns old",
    ]
