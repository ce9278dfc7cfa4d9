"""The load balancer controller from a table: Services in, ingress addresses, finalizers and Events out.

The pool is 192.0.2.1 to 192.0.2.2 and 2001:db8::1; 198.51.100.0/24 is somebody else's.
"""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdns.cli.flags import address_ranges
from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import SERVICE, Json
from kdns.controlplane.cluster_config import AddressRange
from kdns.controlplane.controllers.load_balancers import FINALIZER, LoadBalancers
from kdns.controlplane.controllers.reconciler import Action, Change, Request
from kdns.controlplane.kinds.service.spec import ingress_of
from kdns.errors import InputError

POOL = (*address_ranges("--lb-pool", "192.0.2.1-192.0.2.2"), *address_ranges("--lb-pool", "2001:db8::1/128"))
POOL_TEXT = "192.0.2.1-192.0.2.2,2001:db8::1/128"
FAILED = "Error syncing load balancer: failed to ensure load balancer: "


class World:
    """Services, and the controller that is told of each of its own writes."""

    def __init__(self, pool: tuple[AddressRange, ...] = POOL) -> None:
        self.controller = LoadBalancers(pool)
        self.services: dict[Key, Json] = {}
        self.told: list[str] = []
        self.revisions = count(1)

    def put(self, name: str, obj: Json | None) -> None:
        """Store a Service and let everything that follows happen."""
        queue = list(self.tell(name, obj))
        while queue:
            request = queue.pop(0)
            result = self.controller.reconcile(Request(request, 0))
            self.told += [f"{event.reason}: {event.message}" for event in result.events]
            for action in result.actions:
                meta = action.obj["metadata"]
                gone = meta.get("deletionTimestamp") and not meta.get("finalizers")
                queue += self.tell(meta["name"], None if gone else action.obj)

    def tell(self, name: str, obj: Json | None) -> list[tuple[str, ...]]:
        key = ("x", name)
        self.services.pop(key, None)
        if obj is not None:
            self.services[key] = obj
        return list(self.controller.observe(Change(SERVICE, key, obj, next(self.revisions))))

    def ips(self, name: str) -> list[str]:
        return [entry.get("ip") or entry["hostname"] for entry in ingress_of(self.services["x", name])]

    def all_ips(self) -> list[str]:
        return [ip for _, name in self.services for ip in self.ips(name)]

    def delete(self, name: str) -> None:
        obj = self.services["x", name]
        if obj["metadata"].get("finalizers"):
            self.put(name, {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
        else:
            self.put(name, None)


def service(name: str = "a", *, ingress: tuple[Json, ...] = (), **spec: object) -> Json:
    meta = {"name": name, "namespace": "x", "uid": name, "resourceVersion": "1"}
    base = {"type": "LoadBalancer", "ipFamilies": ["IPv4"]}
    status = {"loadBalancer": {"ingress": list(ingress)} if ingress else {}}
    return {"metadata": meta, "spec": {**base, **spec}, "status": status}


BOTH: Json = {"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "RequireDualStack"}
ELSEWHERE = {"ip": "198.51.100.1", "ipMode": "Proxy"}
CASES: list[tuple[str, Json, list[str], str | None]] = [
    # what, Service, its ingress, how the Warning ends
    ("from the pool", service(), ["192.0.2.1"], None),
    ("both families", service(**BOTH), ["2001:db8::1", "192.0.2.1"], None),
    ("asked for", service(loadBalancerIP="192.0.2.2"), ["192.0.2.2"], None),
    ("asked for one of two", service(**BOTH, loadBalancerIP="192.0.2.2"), ["2001:db8::1", "192.0.2.2"], None),
    ("outside", service(loadBalancerIP="9.9.9.9"), [], f"the requested IP 9.9.9.9 is not in the pool {POOL_TEXT}"),
    (
        "of no family",
        service(loadBalancerIP="2001:db8::1"),
        [],
        "the requested IP 2001:db8::1 is of no IP family of the Service",
    ),
    ("of a class", service(loadBalancerClass="example.com/lb"), [], None),
    ("no load balancer", service(type="NodePort"), [], None),
    ("given by hand", service(ingress=(ELSEWHERE,)), ["198.51.100.1"], None),
    ("a name by hand", service(ingress=({"hostname": "lb.example"},)), ["lb.example"], None),
    ("one by hand", service(**BOTH, ingress=(ELSEWHERE,)), ["2001:db8::1", "198.51.100.1"], None),
    ("from before a restart", service(ingress=({"ip": "192.0.2.2", "ipMode": "VIP"},)), ["192.0.2.2"], None),
    ("one family too many", service(ingress=({"ip": "2001:db8::1", "ipMode": "VIP"},)), ["192.0.2.1"], None),
]


@pytest.mark.parametrize(("obj", "ips", "warning"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_one_service(obj: Json, ips: list[str], warning: str | None) -> None:
    world = World()
    world.put("a", obj)
    assert world.ips("a") == ips
    warned = [said for said in world.told if said.startswith("SyncLoadBalancerFailed")]
    assert warned == ([f"SyncLoadBalancerFailed: {FAILED}{warning}"] if warning else [])


def test_without_a_pool_everything_is_pending() -> None:
    world = World(())
    world.put("a", service())
    assert (world.ips("a"), world.told, world.services["x", "a"]["metadata"].get("finalizers")) == ([], [], None)


def test_without_the_pool_of_yesterday_a_service_can_be_deleted() -> None:
    world = World(())
    obj = service(ingress=({"ip": "192.0.2.1", "ipMode": "VIP"},))
    obj["metadata"]["finalizers"] = [FINALIZER]
    world.put("a", obj)
    assert world.ips("a") == ["192.0.2.1"]
    world.delete("a")
    assert world.services == {}


def test_a_full_pool_serves_when_an_address_is_free_again() -> None:
    world = World()
    for name in "abcd":
        world.put(name, service(name))
    assert [world.ips(name) for name in "abcd"] == [["192.0.2.1"], ["192.0.2.2"], [], []]
    failure = f"SyncLoadBalancerFailed: {FAILED}no IPv4 address is free in the pool {POOL_TEXT}"
    assert world.told.count(failure) == 2
    world.delete("b")
    assert [world.ips(name) for name in "acd"] == [["192.0.2.1"], ["192.0.2.2"], []]
    world.put("a", {**world.services["x", "a"], "spec": {"type": "NodePort"}, "status": {"loadBalancer": {}}})
    assert [world.ips(name) for name in "acd"] == [[], ["192.0.2.2"], ["192.0.2.1"]]
    assert "finalizers" not in world.services["x", "a"]["metadata"]


def test_the_lowest_free_address_is_given() -> None:
    world = World(address_ranges("--lb-pool", "192.0.2.1-192.0.2.9"))
    for name in "abcd":
        world.put(name, service(name))
    for name in "ca":
        world.delete(name)
    for name in "efg":
        world.put(name, service(name))
    assert [world.ips(name) for name in "efg"] == [["192.0.2.1"], ["192.0.2.3"], ["192.0.2.5"]]


def test_an_address_that_somebody_has_is_waited_for() -> None:
    world = World()
    world.put("a", service("a"))
    world.put("b", service("b", loadBalancerIP="192.0.2.1"))
    assert world.ips("b") == []
    in_use = f"SyncLoadBalancerFailed: {FAILED}the requested IP 192.0.2.1 is in use by Service x/a"
    assert world.told[-1] == in_use
    world.delete("a")
    assert world.ips("b") == ["192.0.2.1"]


def test_another_loadbalancerip_moves_the_service() -> None:
    world = World()
    world.put("a", service())
    world.told.clear()
    moved = world.services["x", "a"]
    world.put("a", {**moved, "spec": {**moved["spec"], "loadBalancerIP": "192.0.2.2"}})
    assert world.ips("a") == ["192.0.2.2"]
    assert world.told == ["LoadbalancerIP:  -> 192.0.2.2", "EnsuredLoadBalancer: Ensured load balancer"]


def test_events_of_a_life() -> None:
    world = World()
    world.put("a", service(type="ClusterIP"))
    world.put("a", service())
    world.delete("a")
    assert world.told == [
        "Type: ClusterIP -> LoadBalancer",
        "EnsuringLoadBalancer: Ensuring load balancer",
        "EnsuredLoadBalancer: Ensured load balancer",
        "DeletingLoadBalancer: Deleting load balancer",
        "DeletedLoadBalancer: Deleted load balancer",
    ]
    assert world.services == {}


def test_an_address_by_hand_outlives_that_of_the_pool() -> None:
    world = World()
    world.put("a", service(**BOTH, ingress=(ELSEWHERE,)))
    world.put("a", {**world.services["x", "a"], "spec": {"type": "ClusterIP"}})
    assert world.ips("a") == ["198.51.100.1"]


def test_refused_writes_are_told() -> None:
    world = World()
    world.put("a", service())
    told = world.controller.failed(
        Request(("x", "a"), 0), Action("update", SERVICE, service(), "status"), StatusError(422, "Invalid", "no")
    )
    assert told
    assert told.message == "Error syncing load balancer: failed to update load balancer status: no"


STEPS = st.lists(
    st.tuples(
        st.sampled_from("abcde"),
        st.sampled_from(["make", "delete", "retype", "ask", "by hand"]),
        st.integers(1, 4),
        st.booleans(),
    ),
    max_size=30,
)


@given(STEPS)
def test_no_address_is_given_twice(steps: list[tuple[str, str, int, bool]]) -> None:
    world = World(address_ranges("--lb-pool", "192.0.2.0/29"))
    by_hand: set[str] = set()
    for name, verb, last, dual in steps:
        stored = world.services.get(("x", name))
        spec: Json = {"ipFamilies": ["IPv4", "IPv6"]} if dual else {}
        if verb == "make" and stored is None:
            world.put(name, service(name, **spec))
        elif verb == "delete" and stored:
            world.delete(name)
        elif verb == "retype" and stored:
            world.put(name, {**stored, "spec": {**stored["spec"], "type": "ClusterIP"}, "status": {"loadBalancer": {}}})
        elif verb == "ask" and stored:
            asked = {"loadBalancerIP": f"192.0.2.{last}"}
            world.put(name, {**stored, "spec": {**stored["spec"], **asked, "type": "LoadBalancer"}})
        elif verb == "by hand" and stored and stored["spec"]["type"] == "LoadBalancer":
            by_hand.add(f"192.0.2.{last}")
            ingress = [{"ip": f"192.0.2.{last}", "ipMode": "VIP"}]
            world.put(name, {**stored, "status": {"loadBalancer": {"ingress": ingress}}})
        given_out = [ip for ip in world.all_ips() if ip not in by_hand]
        assert len(given_out) == len(set(given_out))
        restarted = World(address_ranges("--lb-pool", "192.0.2.0/29"))
        for (_, other), obj in world.services.items():
            restarted.tell(other, obj)
        assert all(not restarted.controller.reconcile(Request(key, 0)).actions for key in world.services)


RANGES = [
    ("", []),
    ("192.0.2.0/29", [("192.0.2.1", "192.0.2.6")]),
    ("192.0.2.0/31", [("192.0.2.0", "192.0.2.1")]),
    ("192.0.2.7/32", [("192.0.2.7", "192.0.2.7")]),
    ("192.0.2.7", [("192.0.2.7", "192.0.2.7")]),
    ("192.0.2.0-192.0.2.3", [("192.0.2.0", "192.0.2.3")]),
    ("2001:db8::/126, 192.0.2.9 - 192.0.2.11", [("2001:db8::1", "2001:db8::3"), ("192.0.2.9", "192.0.2.11")]),
]


@pytest.mark.parametrize(("text", "expected"), RANGES)
def test_pools(text: str, expected: list[tuple[str, str]]) -> None:
    ranges = address_ranges("--lb-pool", text)
    assert [(str(pool.address(pool.first)), str(pool.address(pool.last))) for pool in ranges] == expected


@pytest.mark.parametrize("text", ["x", "192.0.2.1/29", "192.0.2.2-192.0.2.1", "192.0.2.1-2001:db8::1", "192.0.2.1,"])
def test_pools_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="--lb-pool"):
        address_ranges("--lb-pool", text)
