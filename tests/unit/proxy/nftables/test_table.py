"""What a table does about single changes: how they are ordered, and what waits for the sweep."""

from collections import deque
from collections.abc import Callable
from typing import Final

import nft_walk
import pytest
from small_cluster import ENDPOINTS, Followed, endpoints, planned, service

from kdns.cluster.objects import Object
from kdns.proxy.nftables.base_chains import base_chains
from kdns.proxy.nftables.numbers import MAX_NUMBER, ChainNumbers, EndpointIds, Numbers
from kdns.proxy.nftables.objects import Chain, Transaction, commands
from kdns.proxy.nftables.sets import CLIENTS, NUMBERED
from kdns.proxy.nftables.table import Table
from kdns.proxy.plan.endpoints import ServiceEndpoint
from kdns.proxy.plan.plan import PortName

WEB: Final = PortName("shop", "s1", "tcp", "TCP")


class FollowedTable(Followed):
    """A table of IPv4 that follows a state."""

    def __init__(self, *objects: tuple[Object, ...]) -> None:
        super().__init__(*objects)
        self.table = Table(self.plan.ipv4)
        deque(self.table.loaded(), 0)

    def follow(self, *objects: Object) -> Transaction:
        return self.table.follow(self.plan.ipv4, self.change(objects)["IPv4"])

    def sweep(self) -> Transaction:
        done = self.table.sweep()
        self.table.swept()
        return done


def test_an_endpoint_too_many_stays_for_packets_on_their_way() -> None:
    followed = FollowedTable(service(1, endpoints(1, "p1", "p2", "r1"), protocols=("TCP",), externalIPs=[]))
    shrunk = followed.follow(*endpoints(1, "p1"))
    assert "endpoints-tcp" not in shrunk.delete
    grown = followed.follow(*endpoints(1, "p1", "r2"))
    assert grown.delete["endpoints-tcp"][0] == ("10.96.0.1", 80, 1)
    assert grown.add["endpoints-tcp"]["10.96.0.1", 80, 1] == ("10.1.1.3", 8080)
    swept = followed.sweep()
    assert sorted(swept.delete["endpoints-tcp"]) == [("10.96.0.1", 80, 2), ("198.51.101.1", 80, 2)]
    assert not followed.sweep()


def test_the_maps_of_a_former_policy_stay_for_packets_on_their_way() -> None:
    local, cluster = (
        service(1, endpoints(1, "p1"), protocols=("TCP",), external=policy, sessionAffinity="ClientIP")
        for policy in ("Local", "Cluster")
    )
    followed = FollowedTable(local)
    changed = followed.follow(cluster[0])
    assert not {"any-endpoint", "local-endpoint"} & changed.delete.keys()
    assert "external-local" not in "".join(commands(changed))
    swept = followed.sweep()
    assert {"any-endpoint", "local-endpoint", "any-endpoint-nodeports"} <= swept.delete.keys()
    assert not followed.sweep()
    followed.follow(local[0])
    assert not followed.follow(cluster[0]).delete.get("local-endpoint")
    back = followed.follow(local[0])
    assert list(back.add["local-endpoint"]) == back.delete["local-endpoint"]
    assert not followed.sweep().delete


def test_a_list_of_affinity_that_nobody_uses_stays_and_comes_back_with_the_endpoints_of_then() -> None:
    with_affinity, without = (
        service(1, endpoints(1, "p1", "p2", "r1"), protocols=("TCP",), externalIPs=[], sessionAffinity=affinity)[0]
        for affinity in ("ClientIP", "None")
    )
    followed = FollowedTable((with_affinity, *endpoints(1, "p1", "p2", "r1")))
    assert "endpoints-by-id-tcp" not in followed.follow(without).delete
    back = followed.follow(with_affinity, *endpoints(1, "p1", "p2"))
    (gone,) = {key[2] for key in back.delete["endpoints-by-id-tcp"]} - {
        key[2] for key in back.add["endpoints-by-id-tcp"]
    }
    assert gone == EndpointIds().of(WEB, ServiceEndpoint("10.1.1.2", 8080))
    assert not followed.sweep().delete.get("endpoints-by-id-tcp")
    followed.follow(without)
    assert len(followed.sweep().delete["endpoints-by-id-tcp"]) == 4
    assert not followed.sweep()


def test_a_change_with_affinity_is_one_of_elements_and_of_the_draw() -> None:
    web = service(1, endpoints(1, "p1", "p2", "r1"), protocols=("TCP",), sessionAffinity="ClientIP", externalIPs=[])
    followed = FollowedTable(web)
    changed = followed.follow(*endpoints(1, "p1", "r1"))
    places = [("10.96.0.1", 80), ("198.51.101.1", 80)]
    assert [key[:2] for key in changed.delete["endpoints-by-id-tcp"]] == places
    assert changed.delete["endpoint-ids-tcp"] == [(*place, 1) for place in places]
    assert "endpoints-by-id-tcp" not in changed.add
    assert {name for name in changed.chains if not name.startswith("masquerade-")} == {
        "endpoint-ids-tcp-2-10800s",
        "endpoint-ids-nodeports-tcp-2-10800s",
    }


def test_a_change_of_endpoints_sends_neither_verdicts_nor_chains() -> None:
    """To replace a verdict, the kernel validates the whole table, and a chain costs more than a thousand elements."""
    web = service(1, endpoints(1, "p1", "p2", "r1"), external="Local")
    followed = FollowedTable(web)
    followed.follow(*endpoints(1, "p1", "r1"))
    followed.follow(*endpoints(1, "p1"))
    for changed in (
        followed.follow(*endpoints(1, "p1", "p2", "r1")),
        followed.follow(*endpoints(1, "r2", "p2")),
        followed.follow(*endpoints(1, "p1")),
    ):
        assert not changed.chains
        assert changed.add
        assert NUMBERED.isdisjoint({*changed.add, *changed.delete})
    assert NUMBERED.isdisjoint(followed.sweep().delete)


def test_chains_that_no_front_uses_stay_until_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdns.proxy.nftables.table.UNUSED_CHAINS_MAX", 12)
    followed = FollowedTable(service(1, endpoints(1, "p1"), protocols=("TCP",)))
    unused = []
    for timeout_s in range(1, 6):
        affinity = {"clientIP": {"timeoutSeconds": timeout_s}}
        followed.follow(*service(1, protocols=("TCP",), sessionAffinity="ClientIP", sessionAffinityConfig=affinity))
        unused.append(followed.table.has_many_unused)
    assert unused[0] is False
    assert unused[-1] is True


def test_chains_have_numbers_of_their_own() -> None:
    """Also where two have the same hash."""
    numbers = ChainNumbers()
    texts = [f"endpoints-tcp-{count}" for count in range(1000)]
    first = [numbers.of(text) for text in texts]
    assert len(set(first)) == 1000
    assert first == [numbers.of(text) for text in texts]
    assert all(0 < each < 1 << 32 for each in first)


@pytest.mark.parametrize(("kept", "wanted"), [("p1", ["p1"]), ("r1", ["r1"]), ("r2", ["p1", "r1"])])
def test_who_is_known_goes_to_the_same_endpoint_if_it_is_still_there(kept: str, wanted: list[str]) -> None:
    table = Table(planned(service(1, endpoints(1, "p1", "r1"), sessionAffinity="ClientIP")).ipv4)
    rules = nft_walk.read(table.whole())
    number = EndpointIds().of(WEB, ServiceEndpoint(ENDPOINTS[kept][0], 8080))
    rules.elements[CLIENTS.name][f"192.0.2.7 . {number & 0xFFFF0000}"] = str(number)
    ends = nft_walk.walk(rules, nft_walk.At("192.0.2.7", "10.96.0.1", "tcp", 80), [])
    assert [end.daddr for end in ends] == [ENDPOINTS[end][0] for end in wanted]


def test_numbers_are_the_same_in_another_order_unless_two_values_have_one_hash() -> None:
    values = list(range(300))
    forwards, backwards = Numbers[int](MAX_NUMBER), Numbers[int](MAX_NUMBER)
    numbers = [forwards.of(value) for value in values]
    assert len(set(numbers)) == len(values)
    assert (
        sum(backwards.of(each) != number for each, number in zip(reversed(values), reversed(numbers), strict=True)) < 10
    )
    forwards.release_all_but(values[:100])
    forwards.of(1000)
    assert [forwards.of(value) for value in values[:100]] == numbers[:100]


def test_values_beyond_the_last_number_share_one_until_one_is_free() -> None:
    numbers = Numbers[int](1)
    assert sorted(numbers.of(each) for each in range(MAX_NUMBER)) == list(range(1, MAX_NUMBER + 1))
    assert numbers.of(-1) == numbers.of(-2) == 0
    numbers.release(7)
    assert numbers.of(-1) != 0
    numbers.release(-2)
    assert numbers.of(-2) == 0


def test_endpoint_ids_are_all_different_and_mostly_end_in_zeros() -> None:
    ids = EndpointIds()
    few, many = ({ids.of(WEB, ServiceEndpoint("10.1.0.1", port)) for port in range(count)} for count in (1000, 20000))
    assert len(few) == 1000
    assert not {each & 0xF for each in few} - {0}
    assert len(many) == 20000
    assert len({each & 0xFFFF0000 for each in many}) == 1


@pytest.mark.parametrize("affinity", ["None", "ClientIP"])
def test_the_number_of_rules_does_not_depend_on_the_number_of_services(affinity: str) -> None:
    few, many = (
        Table(
            planned(
                *(
                    service(number, endpoints(number, "p1", "r1"), sessionAffinity=affinity, external="Local")
                    for number in some
                )
            ).ipv4
        )
        for some in (range(1, 2), range(1, 200))
    )
    assert rules(few.whole()) == rules(many.whole())


def rules(text: str) -> list[str]:
    """Everything but elements."""
    return sorted(line for line in text.splitlines() if "element" not in line and "flush chain" not in line)


def test_a_takeover_fills_what_it_keeps_and_removes_the_rest_when_nothing_leads_to_it() -> None:
    made = planned(service(1, endpoints(1, "p1"), protocols=("TCP",), sessionAffinity="ClientIP"))
    table = Table(made.ipv4)
    deque(table.loaded(), 0)
    there = {
        "map": ["service-ips", CLIENTS.name, "affinity-old"],
        "set": ["cluster-ips", "a-set"],
        "chain": ["services", "nat-output", "old"],
    }
    before, after = table.before_elements(there), table.after_elements(there)
    assert before[:3] == ("add table ip kdns", "flush chain ip kdns services", "flush chain ip kdns nat-output")
    assert "hook output priority -100" in before[3]
    assert "hook prerouting" not in before[3]
    assert not any(each.startswith("delete") for each in before)
    assert "hook prerouting priority -100" in after[0]
    assert after[1:] == (
        "flush chain ip kdns old",
        "delete set ip kdns a-set",
        "delete map ip kdns affinity-old",
        "delete chain ip kdns old",
    )


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda _there, _rules: None, ""),
        (lambda there, _rules: there["chain"].remove("services"), "chain services"),
        (lambda there, _rules: there["chain"].append("others"), "chain others"),
        (lambda there, _rules: there["map"].remove("service-ips"), "map service-ips"),
        (lambda there, _rules: there["set"].append("others"), "set others"),
        (lambda there, _rules: there.clear(), "chain cluster-ips-check"),
        (lambda _there, rules: rules.pop("services"), "chain services"),
        (lambda _there, rules: rules.update({"nat-output": 2}), "chain nat-output"),
    ],
)
def test_a_table_that_somebody_changed_differs(
    change: Callable[[dict[str, list[str]], dict[str, int]], None], wanted: str
) -> None:
    family_plan = planned(service(1, endpoints(1, "p1"))).ipv4
    table, rules = Table(family_plan), {}
    there: dict[str, list[str]] = {"chain": [], "map": [], "set": []}
    chains = [chain for each in table.loaded() for chain in each.chains.values()]
    for each in (*base_chains(family_plan), *chains):
        there[each.sort].append(each.name)
        if isinstance(each, Chain) and each.rules:
            rules[each.name] = len(each.rules)
    change(there, rules)
    assert table.difference(there, rules) == wanted


def test_a_new_table_has_no_effect_before_its_elements_are_there() -> None:
    table = Table(planned(service(1, endpoints(1, "p1"))).ipv4)
    deque(table.loaded(), 0)
    assert not any("hook" in before_element for before_element in table.before_elements({}))
    (hooks,) = table.after_elements({})
    assert hooks.count("hook") == 8
