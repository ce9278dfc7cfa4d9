"""The repair loops: what they find, what they say, what they write.

The range is 10.0.0.0/28, node ports are 30000-30007.
"""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from stepping import Stepper

from kdns.controlplane.controllers.service.repair import ROUND_S, AddressRepair, PortRepair
from kdns.controlplane.meta.cluster_config import ClusterConfig
from kdns.controlplane.meta.kinds import IP_ADDRESS, SERVICE, Json
from kdns.controlplane.resources.service.allocator import Transaction
from kdns.controlplane.resources.service.service_cidr import ip_address_of, service_of
from kdns.controlplane.storage.watch import StoredObject, stored_object_of

CONFIG = ClusterConfig(service_cidrs=(ip_network("10.0.0.0/28"),), node_port_range=range(30000, 30008))
WEB = ("default", "web")
PARENT = {"resource": "services", "namespace": "default", "name": "web"}
OTHER = {"group": "example.com", "resource": "things", "name": "mine"}


def service(name: str, address: str, node_port: int = 0) -> Json:
    port = {"port": 80, "protocol": "TCP", **({"nodePort": node_port} if node_port else {})}
    spec = {
        "type": "NodePort" if node_port else "ClusterIP",
        "clusterIP": address,
        "clusterIPs": [address],
        "ipFamilies": ["IPv4"],
        "ports": [port],
    }
    return {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}, "spec": spec}


def address(name: str = "10.0.0.5", *, labels: Json | None = None, age_s: int = 0, parent: Json | None = None) -> Json:
    """The IPAddress of Service web, with differences."""
    obj = ip_address_of(WEB, name)
    stamp = f"2023-11-14T22:{(13 * 60 + 20 - age_s) // 60:02}:{(13 * 60 + 20 - age_s) % 60:02}Z"
    marks = {"uid": f"uid-{name}", "creationTimestamp": stamp}
    obj["metadata"] |= {**marks, **({"labels": labels} if labels is not None else {})}
    obj["spec"]["parentRef"] = parent or obj["spec"]["parentRef"]
    return obj


def version(obj: Json) -> StoredObject:
    kind = IP_ADDRESS if "parentRef" in obj["spec"] else SERVICE
    meta = obj["metadata"]
    return stored_object_of(kind, (meta.get("namespace", ""), meta["name"]), obj, 7)


def found(*objects: Json, node_ports: range = CONFIG.node_port_range) -> Stepper:
    """A cluster that finds these objects at its start, whatever made them so."""
    config = ClusterConfig(service_cidrs=CONFIG.service_cidrs, node_port_range=node_ports)
    padding = (
        [] if any("parentRef" in obj["spec"] for obj in objects) else [address("10.9.9.9", labels={}, parent=OTHER)]
    )
    return Stepper(config, tuple(version(obj) for obj in (*objects, *padding)), 100)


def said(cluster: Stepper) -> list[tuple[str, str]]:
    assert all(event.type == "Warning" for event in cluster.told)
    return [(event.reason, event.message) for event in cluster.told]


def owner(cluster: Stepper, name: str) -> tuple[str, str] | None:
    return service_of(cluster.api.get(IP_ADDRESS, "", name))


WRONG = "the ClusterIP [IPv4]: 10.0.0.5 for Service default/web has a wrong reference; repairing"
ROWS: list[tuple[str, list[Json], list[tuple[str, str]], str]] = [
    ("nothing", [service("web", "10.0.0.5"), address()], [], ""),
    (
        "missing",
        [service("web", "10.0.0.5")],
        [("ClusterIPNotAllocated", "Cluster IP [IPv4]: 10.0.0.5 is not allocated; repairing")],
        "repair",
    ),
    (
        "another spelling",
        [service("web", "010.0.0.005")],
        [("ClusterIPNotAllocated", "Cluster IP [IPv4]: 10.0.0.5 is not allocated; repairing")],
        "repair",
    ),
    (
        "of something else",
        [service("web", "10.0.0.5"), address(labels={}, parent=OTHER)],
        [("ClusterIPNotAllocated", WRONG)],
        "repair",
    ),
    (
        "of no Service",
        [service("web", "10.0.0.5"), address(parent={**PARENT, "name": "gone"})],
        [("ClusterIPNotAllocated", WRONG)],
        "repair",
    ),
    (
        "of a Service with another address",
        [
            service("web", "10.0.0.5"),
            service("old", "10.0.0.6"),
            address(parent={**PARENT, "name": "old"}),
            address("10.0.0.6", parent={**PARENT, "name": "old"}),
        ],
        [("ClusterIPNotAllocated", WRONG)],
        "repair",
    ),
    ("without labels", [service("web", "10.0.0.5"), address(labels={})], [], "repair"),
]


@pytest.mark.parametrize(("objects", "wanted", "counted"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_addresses_are_repaired(objects: list[Json], wanted: list[tuple[str, str]], counted: str) -> None:
    cluster = found(*objects)
    cluster.run(AddressRepair(cluster.registry.services.metrics))
    assert said(cluster) == wanted
    assert owner(cluster, "10.0.0.5") == WEB
    assert cluster.requeue_after_s[-1] == ROUND_S
    repairs = cluster.registry.services.metrics.address_repairs
    assert repairs == ({(counted,): 1} if counted else {})
    again = AddressRepair(cluster.registry.services.metrics)
    cluster.told.clear()
    cluster.run(again)
    assert said(cluster) == [], "all is well now"


def test_what_only_people_can_repair() -> None:
    objects = [service("web", "10.0.0.5"), service("twin", "10.0.0.5"), address()]
    objects += [service("far", "10.9.0.1"), service("edge", "10.0.0.15"), service("odd", "10.0.0.500")]
    cluster = found(*objects)
    cluster.run(AddressRepair(cluster.registry.services.metrics))
    out = "is not within any configured Service CIDR; please recreate service"
    assert said(cluster) == [
        ("ClusterIPOutOfRange", f"Cluster IP [IPv4]: 10.0.0.15 {out}"),
        ("ClusterIPOutOfRange", f"Cluster IP [IPv4]: 10.9.0.1 {out}"),
        ("ClusterIPNotValid", "Cluster IP 10.0.0.500 is not a valid IP; please recreate Service"),
        (
            "ClusterIPAlreadyAllocated",
            "Cluster IP [IPv4]:10.0.0.5 was assigned to multiple services; please recreate service",
        ),
    ]
    assert [event.about["metadata"]["name"] for event in cluster.told] == ["edge", "far", "odd", "twin"]
    assert cluster.registry.services.metrics.address_repairs == {("outOfRange",): 2, ("invalid",): 1, ("duplicate",): 1}
    assert cluster.registry.lost == ["default/web: clusterIP 10.0.0.5"]
    cluster.api.delete(SERVICE, "default", "twin")
    assert owner(cluster, "10.0.0.5") == WEB, "the address of another is not released"
    assert cluster.service("new")["spec"]["clusterIP"] != "10.0.0.5"


LEAKED = "IPAddress: 10.0.0.5 for Service default/web appears to have leaked: cleaning up"
MODIFIED = (
    "IPAddress 10.0.0.5 appears to have been modified, not referencing a Service "
    "&ParentReference{Group:example.com,Resource:things,Namespace:,Name:mine,}: cleaning up"
)
ORPHANS: list[tuple[str, list[Json], list[tuple[str, str]], float]] = [
    ("old", [address(age_s=61)], [("IPAddressNotAllocated", LEAKED)], ROUND_S),
    ("young", [address(age_s=20)], [], 41),
    ("not ours", [address(labels={}, age_s=100)], [], ROUND_S),
    ("of something else", [address(parent=OTHER)], [("IPAddressNotAllocated", MODIFIED)], ROUND_S),
    (
        "of a Service that has another",
        [service("web", "10.0.0.6"), address("10.0.0.6"), address()],
        [
            (
                "IPAddressWrongReference",
                "IPAddress: 10.0.0.5 for Service default/web has a wrong reference; cleaning up",
            )
        ],
        ROUND_S,
    ),
]


@pytest.mark.parametrize(
    ("objects", "wanted", "requeue_after_s"), [row[1:] for row in ORPHANS], ids=[row[0] for row in ORPHANS]
)
def test_orphans_are_deleted(objects: list[Json], wanted: list[tuple[str, str]], requeue_after_s: float) -> None:
    cluster = found(*objects)
    cluster.run(AddressRepair(cluster.registry.services.metrics))
    assert said(cluster) == wanted
    assert ("10.0.0.5" in cluster.names(IP_ADDRESS)) == (not wanted)
    assert cluster.requeue_after_s[-1] == requeue_after_s


def test_a_young_orphan_is_deleted_when_its_time_comes() -> None:
    cluster = found(address(age_s=20))
    repair = AddressRepair(cluster.registry.services.metrics)
    cluster.run(repair)
    cluster.now_s += cluster.requeue_after_s[-1]
    cluster.look(repair, "addresses")
    assert said(cluster) == [("IPAddressNotAllocated", LEAKED)]
    assert cluster.service("web", clusterIP="10.0.0.5")["spec"]["clusterIP"] == "10.0.0.5"


def test_a_deleted_object_comes_back_and_the_address_stays_taken() -> None:
    cluster = found()
    repair = AddressRepair(cluster.registry.services.metrics)
    cluster.run(repair)
    ip = cluster.service("web")["spec"]["clusterIP"]
    cluster.api.delete(IP_ADDRESS, "", ip)
    assert cluster.service("next")["spec"]["clusterIP"] != ip
    cluster.settle()
    cluster.look(repair, "addresses")
    assert owner(cluster, ip) == WEB


def test_large_rounds_are_cut() -> None:
    config = ClusterConfig(service_cidrs=(ip_network("10.0.0.0/16"),))
    objects = [service(f"s{n}", f"10.0.{n // 250}.{n % 250 + 1}") for n in range(1, 1200)]
    objects.append(address("10.9.9.9", labels={}, parent=OTHER))
    cluster = Stepper(config, tuple(map(version, objects)), 100)
    repair = AddressRepair(cluster.registry.services.metrics)
    cluster.run(repair)
    while cluster.requeue_after_s[-1] == 0:
        cluster.look(repair, "addresses")
        cluster.settle()
    assert len(cluster.requeue_after_s) >= 12, "at most a hundred writes at once"
    assert len(cluster.names(IP_ADDRESS)) == 1200


def ports_of(cluster: Stepper) -> dict[int, tuple[str, str]]:
    return cluster.registry.services.ports.owners


def test_ports_that_several_have_or_no_range() -> None:
    cluster = found(service("a", "10.0.0.1", 30001), service("b", "10.0.0.2", 30001), service("c", "10.0.0.3", 40000))
    numbers = cluster.registry.services
    cluster.run(PortRepair(numbers.ports, numbers.metrics))
    assert said(cluster) == [
        ("PortAlreadyAllocated", "Port 30001 was assigned to multiple services; please recreate service"),
        ("PortOutOfRange", "Port 40000 is not within the port range 30000-30007; please recreate service"),
    ]
    assert numbers.metrics.port_repairs == {("duplicate",): 1, ("outOfRange",): 1}
    assert ports_of(cluster) == {30001: ("default", "a")}
    cluster.api.delete(SERVICE, "default", "b")
    assert ports_of(cluster) == {30001: ("default", "a")}


@pytest.mark.parametrize("holder", [None, ("default", "gone")])
def test_ports_that_are_not_taken(holder: tuple[str, str] | None) -> None:
    cluster = found(service("a", "10.0.0.1", 30001))
    numbers = cluster.registry.services
    numbers.ports.let_go(30001, ("default", "a"))
    if holder:
        numbers.ports.remember(30001, holder)
    cluster.run(PortRepair(numbers.ports, numbers.metrics))
    assert said(cluster) == [("PortNotAllocated", "Port 30001 is not allocated; repairing")]
    assert ports_of(cluster) == {30001: ("default", "a")}


def test_leaked_ports_are_free_after_three_rounds() -> None:
    cluster = found(service("a", "10.0.0.1", 30001))
    numbers = cluster.registry.services
    numbers.ports.allocate(30005, ("default", "crashed"), Transaction())
    repair = PortRepair(numbers.ports, numbers.metrics)
    cluster.run(repair)
    assert set(ports_of(cluster)) == {30001, 30005}
    cluster.look(repair, "ports")
    assert set(ports_of(cluster)) == {30001, 30005}
    cluster.look(repair, "ports")
    assert set(ports_of(cluster)) == {30001}
    assert numbers.metrics.port_repairs == {("leak",): 1}
    assert numbers.ports.pool.used == 1


def test_failed_repairs_are_counted() -> None:
    cluster = found()
    numbers = cluster.registry.services
    assert AddressRepair(numbers.metrics).failed(("addresses",), Exception()) is None
    assert PortRepair(numbers.ports, numbers.metrics).failed(("ports",), Exception()) is None
    assert (numbers.metrics.failed_address_repairs, numbers.metrics.failed_port_repairs) == (1, 1)
