"""What a table does about single changes: how they are ordered, and what waits for the sweep."""

from __future__ import annotations

from itertools import takewhile

from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state

from kdns.cluster.objects import Object
from kdns.proxy.nftchange import Transaction, lines
from kdns.proxy.nfttable import Table
from kdns.proxy.planner import Planner, plan


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
    assert "external-local" not in "".join(lines(changed))
    swept = followed.sweep()
    assert {"any-endpoint", "local-endpoint", "any-endpoint-nodeports"} <= swept.delete.keys()
    assert not swept.remove_chains
    (gone,) = followed.sweep().remove_chains
    assert gone.startswith("local-endpoint-")
    assert not followed.sweep()
    followed.change(local[0])
    assert not followed.change(cluster[0]).delete.get("local-endpoint")
    back = followed.change(local[0])
    assert list(back.add["local-endpoint"]) == back.delete["local-endpoint"]
    assert not followed.sweep().delete


def test_clients_of_an_endpoint_that_comes_back_are_forgotten() -> None:
    followed = Followed(service(1, endpoints(1, "p1", "p2"), protocols=("TCP",), sessionAffinity="ClientIP"))
    assert not followed.change(*endpoints(1, "p1")).sets
    (name,) = followed.change(*endpoints(1, "p1", "p2")).empty
    assert name.endswith("/10.1.0.3/8080")
    followed.change(*endpoints(1, "p1"))
    assert followed.sweep().remove_sets == (name,)
    assert list(followed.change(*endpoints(1, "p1", "p2")).sets) == [name]


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
        "map": ["service-ips", "a-map"],
        "set": ["cluster-ips", kept, "affinity-1s-old"],
        "chain": ["services", "old"],
    }
    assert list(takewhile(lambda command: not command.startswith("table "), table.takeover(there))) == [
        "add table ip kdns",
        "flush table ip kdns",
        "flush set ip kdns cluster-ips",
        "delete set ip kdns affinity-1s-old",
        "flush map ip kdns service-ips",
        "delete map ip kdns a-map",
        "delete chain ip kdns old",
    ]
