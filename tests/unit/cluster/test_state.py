"""The cluster's state: what counts as a change, a relist compared in place, and indexes that keep step."""

from ipaddress import ip_address

import pytest
from cluster_objects import endpoint_slice, pod, service

from kdns.cluster.objects import (
    EndpointSlice,
    Meta,
    Namespace,
    Object,
    Pod,
    PodMeta,
    PodStatus,
    Service,
    ServiceMeta,
    ServiceSpec,
)
from kdns.cluster.state import Change, Index, State


def ip(text: str) -> bytes:
    return ip_address(text).packed


OBJECTS: list[tuple[Object, Object]] = [
    (service("web", "10.0.0.1"), service("web", "10.0.0.2")),
    (endpoint_slice("web-1", "web", "10.1.0.1"), endpoint_slice("web-1", "web", "10.1.0.1", ready=False)),
    (pod("p", "10.2.0.1"), pod("p", "10.2.0.1", phase="Failed")),
]


@pytest.mark.parametrize(("first", "second"), OBJECTS, ids=lambda obj: type(obj).__name__)
def test_changes_hold_both_sides(first: Object, second: Object) -> None:
    state, kind, key = State(), type(first), first.key
    assert state.delete(kind, key) is None
    assert state.upsert(first) == Change(key, None, first)
    assert state.upsert(first) is None
    assert state.upsert(second) == Change(key, first, second)
    assert set(state.objects(kind)) == {key}
    assert state.delete(kind, key) == Change(key, second, None)
    assert state.delete(kind, key) is None
    assert set(state.objects(kind)) == set()


def test_a_namespace_has_only_its_name() -> None:
    state, space = State(), Namespace(Meta("shop"))
    assert state.upsert(space) == Change(("", "shop"), None, space)
    assert state.upsert(Namespace(Meta("shop"))) is None
    assert state.delete(Namespace, ("", "shop")) == Change(("", "shop"), space, None)


def test_a_list_is_compared_in_place() -> None:
    state = State()
    for name, address in (("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")):
        state.upsert(service(name, address))
    kept = state.services["shop", "a"]
    listed = [service("a", "10.0.0.1"), service("b", "10.0.0.9"), service("d", "10.0.0.4")]
    changes = [state.upsert(one) for one in listed]
    assert [change and (change.old is None, change.new is None) for change in changes] == [
        None,
        (False, False),
        (True, False),
    ]
    assert Service not in state.synced
    deleted = state.retain(Service, {one.key for one in listed})
    assert [(change.key, change.new) for change in deleted] == [(("shop", "c"), None)]
    assert state.synced == {Service}
    assert state.services["shop", "a"] is kept, "what is equal stays the same object"
    known = {address: set(state.services_by_ip[ip(address)]) for address in ("10.0.0.1", "10.0.0.2", "10.0.0.3")}
    assert known == {"10.0.0.1": {("shop", "a")}, "10.0.0.2": set(), "10.0.0.3": set()}


def test_a_list_of_one_kind_leaves_the_others() -> None:
    state = State()
    for one in (service("a", "10.0.0.1"), pod("p", "10.2.0.1"), Namespace(Meta("shop"))):
        state.upsert(one)
    assert [change.key for change in state.retain(Pod, ())] == [("shop", "p")]
    assert (set(state.services), set(state.namespaces)) == ({("shop", "a")}, {("", "shop")})


@pytest.mark.parametrize(
    ("one", "virtual"),
    [
        (service("a", "10.0.0.1", "fd00::1"), ("10.0.0.1", "fd00::1")),
        (Service(ServiceMeta("a", "shop"), ServiceSpec(cluster_ip="10.0.0.1")), ("10.0.0.1",)),
        (service("a", "None"), ()),
        (service("a"), ()),
        (service("a", "10.0.0.1", type="ExternalName"), ()),
    ],
)
def test_services_by_address(one: Service, virtual: tuple[str, ...]) -> None:
    state = State()
    state.upsert(one)
    assert one.virtual_ips == virtual
    assert [list(state.services_by_ip[ip(address)]) for address in virtual] == [[one.key]] * len(virtual)
    state.delete(Service, one.key)
    assert [list(state.services_by_ip[ip(address)]) for address in virtual] == [[]] * len(virtual)


def test_slices_move_between_services() -> None:
    state = State()
    state.upsert(endpoint_slice("s1", "web", "10.1.0.1", "10.1.0.2"))
    state.upsert(endpoint_slice("s2", "web", "10.1.0.2"))
    assert set(state.slices_by_service["shop", "web"]) == {("shop", "s1"), ("shop", "s2")}
    assert list(state.slices_by_ip[ip("10.1.0.2")]) == [("shop", "s1"), ("shop", "s2")]
    state.upsert(endpoint_slice("s1", "db", "10.1.0.3"))
    assert set(state.slices_by_service["shop", "web"]) == {("shop", "s2")}
    assert set(state.slices_by_service["shop", "db"]) == {("shop", "s1")}
    assert [len(state.slices_by_ip[ip(address)]) for address in ("10.1.0.1", "10.1.0.2", "10.1.0.3")] == [0, 1, 1]
    state.upsert(endpoint_slice("s1", "", "10.1.0.3"))
    state.delete(EndpointSlice, ("shop", "s2"))
    assert state.slices_by_service == {}
    assert list(state.slices_by_ip[ip("10.1.0.3")]) == [("shop", "s1")], "an orphan has addresses too"


@pytest.mark.parametrize(
    ("one", "found"),
    [
        (pod("p", "10.2.0.1", "fd00::1"), ("10.2.0.1", "fd00::1")),
        (pod("p", "10.2.0.1", phase="Pending"), ("10.2.0.1",)),
        (Pod(PodMeta("p", "shop"), PodStatus("Running", "10.2.0.1")), ("10.2.0.1",)),
        (pod("p", "10.2.0.1", phase="Succeeded"), ()),
        (pod("p", "10.2.0.1", phase="Failed"), ()),
        (pod("p", "10.2.0.1", phase="Unknown"), ()),
        (pod("p", "10.2.0.1", deletion_timestamp="2026-01-01T00:00:00Z"), ()),
        (pod("p"), ()),
    ],
)
def test_pods_that_can_be_reached(one: Pod, found: tuple[str, ...]) -> None:
    state = State()
    state.upsert(one)
    assert tuple(address for address in ("10.2.0.1", "fd00::1") if state.pods_by_ip[ip(address)]) == found
    state.delete(Pod, one.key)
    assert not any(state.pods_by_ip[ip(address)] for address in ("10.2.0.1", "fd00::1"))


def test_an_index_is_searched_by_range_in_either_order_of_events() -> None:
    addresses = ["10.0.0.9", "10.0.0.1", "10.0.1.1", "a00::1", "9.255.255.255"]
    early, late = Index(), Index()
    assert list(early.between(ip("0.0.0.0"), ip("255.255.255.255"))) == []
    for number, address in enumerate(addresses):
        for index in (early, late):
            index.move(("shop", str(number)), (), (ip(address), b""))
    for index in (early, late):
        matching = index.between(ip("10.0.0.0"), ip("10.0.0.255"))
        assert list(matching) == [ip("10.0.0.1"), ip("10.0.0.9")], "no IPv6 address between, though its bytes would be"
        index.move(("shop", "1"), (ip(addresses[1]),), ())
        index.move(("shop", "x"), (), (ip(addresses[0]),))
        index.move(("shop", "0"), (ip(addresses[0]),), ())
        assert list(index.between(ip("10.0.0.0"), ip("10.0.0.255"))) == [ip("10.0.0.9")]
        assert list(index[ip("10.0.0.9")]) == [("shop", "x")]
        assert list(index[b""]) == []
