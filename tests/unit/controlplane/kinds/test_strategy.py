"""Services through defaults, allocation and validation; defaults of other kinds.

Ranges: 10.96.0.0/16 (dynamic from 10.96.1.1), node ports 30000-32767 (dynamic from 30086).
"""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network

import pytest
from served_kinds import CATALOGUE, KINDS
from verbs_api import new_registry, without_revision

from kdns.controlplane.apimachinery.errors import Cause, StatusError
from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, ENDPOINTS, NAMESPACE, POD, SERVICE, Json, Kind
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.kinds.catalogue import built_in
from kdns.controlplane.kinds.service.ip_families import fill_on_read
from kdns.controlplane.server.registry import Request
from kdns.controlplane.storage.store import Filter, Store, stored_object_of

PORTS = [{"port": 80}]


class Cluster:
    """A registry and its objects."""

    def __init__(self, *cidrs: str) -> None:
        networks = tuple(ip_network(cidr) for cidr in cidrs or ("10.96.0.0/16",))
        self.registry = new_registry(config=ClusterConfig(service_cidrs=networks))

    def make(self, name: str = "web", **spec: object) -> Json:
        obj = {"metadata": {"name": name, "namespace": "default"}, "spec": {"ports": PORTS, **spec}}
        return self.registry.create(Request(SERVICE, "default"), obj).copy()

    def change(self, old: Json, **spec: object) -> Json:
        wanted = {key: value for key, value in {**old["spec"], **spec}.items() if value is not None}
        return self.update({**old, "spec": wanted})

    def update(self, obj: Json, subresource: str = "", kind: Kind = SERVICE) -> Json:
        request = Request(kind, "default", obj["metadata"]["name"], subresource)
        return self.registry.update(request, without_revision(obj)).copy()

    def delete(self, obj: Json) -> None:
        self.registry.delete(Request(SERVICE, "default", obj["metadata"]["name"]))


def refused(error: StatusError) -> str:
    return f"{error.code} {error.message}"


def test_a_plain_service() -> None:
    made = Cluster().make()
    assert made["spec"] == {
        "type": "ClusterIP",
        "clusterIP": "10.96.1.1",
        "clusterIPs": ["10.96.1.1"],
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "internalTrafficPolicy": "Cluster",
        "sessionAffinity": "None",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
    }
    assert made["status"] == {"loadBalancer": {}}


def test_the_clients_object_is_not_changed() -> None:
    obj = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"ports": [{"port": 80}]}}
    Cluster().registry.create(Request(SERVICE, "default"), obj)
    assert obj == {"metadata": {"name": "web", "namespace": "default"}, "spec": {"ports": [{"port": 80}]}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"clusterIP": "10.96.0.11"},
            (
                '422 Service "b" is invalid: spec.clusterIPs: Invalid value: ["10.96.0.11"]: '
                "failed to allocate IP 10.96.0.11: provided IP is already allocated"
            ),
        ),
        (
            {"clusterIP": "10.97.0.1"},
            (
                '422 Service "b" is invalid: spec.clusterIPs: Invalid value: ["10.97.0.1"]: failed to allocate IP '
                "10.97.0.1: the provided IP (10.97.0.1) is not in the valid range. "
                "The range of valid IPs is 10.96.0.0/16"
            ),
        ),
        (
            {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]},
            (
                '422 Service "b" is invalid: spec.ports[0].nodePort: Invalid value: 30080: '
                "provided port is already allocated"
            ),
        ),
        (
            {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30080},
            (
                "500 Internal error occurred: failed to allocate requested HealthCheck NodePort 30080: "
                "provided port is already allocated"
            ),
        ),
        ({"ports": []}, '422 Service "b" is invalid: spec.ports: Required value'),
        (
            {"sessionAffinity": "x"},
            (
                '422 Service "b" is invalid: spec.sessionAffinity: Unsupported value: "x": '
                'supported values: "ClientIP", "None"'
            ),
        ),
        (
            {"clusterIPs": ["None"]},
            (
                '422 Service "b" is invalid: spec.clusterIPs: Invalid value: ["None"]: '
                "must be empty when `clusterIP` is not specified"
            ),
        ),
        (
            {"ipFamilyPolicy": "RequireDualStack"},
            (
                '422 Service "b" is invalid: spec.ipFamilyPolicy: Invalid value: "RequireDualStack": '
                "this cluster is not configured for dual-stack services"
            ),
        ),
    ],
)
def test_refusals_say_why_and_hold_nothing(spec: Json, message: str) -> None:
    cluster = Cluster()
    cluster.make("a", clusterIP="10.96.0.11", type="NodePort", ports=[{"port": 80, "nodePort": 30080}])
    pools = cluster.registry.services.addresses["IPv4"], cluster.registry.services.ports
    before = [dict(pool.owners) for pool in pools]
    with pytest.raises(StatusError) as raised:
        cluster.make("b", **spec)
    assert refused(raised.value) == message
    assert [pool.owners for pool in pools] == before


def test_a_full_range_is_the_servers_failure() -> None:
    cluster = Cluster("10.0.0.0/30")
    cluster.make("a")
    cluster.make("b")
    with pytest.raises(StatusError) as raised:
        cluster.make("c")
    assert refused(raised.value) == "500 Internal error occurred: failed to allocate a serviceIP: range is full"


def test_a_node_port_that_an_external_name_writes_down_is_not_its_own() -> None:
    cluster = Cluster()
    real = cluster.make("a", type="NodePort", ports=[{"port": 80, "nodePort": 30080}])
    alias = cluster.make("b", type="ExternalName", externalName="x.example", ports=real["spec"]["ports"])
    with pytest.raises(StatusError, match="provided port is already allocated"):
        cluster.change(alias, type="NodePort")
    cluster.delete(alias)
    with pytest.raises(StatusError, match="provided port is already allocated"):
        cluster.make("c", type="NodePort", ports=[{"port": 80, "nodePort": 30080}])


def test_tcp_and_udp_of_one_port_share_a_node_port() -> None:
    ports = [
        {"name": "t", "port": 53},
        {"name": "u", "port": 53, "protocol": "UDP"},
        {"name": "m", "port": 9153},
    ]
    made = Cluster().make(type="NodePort", ports=ports)
    assert [port["nodePort"] for port in made["spec"]["ports"]] == [30086, 30086, 30087]


def test_a_load_balancer_without_node_ports_keeps_explicit_ones() -> None:
    ports = [{"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 81}]
    made = Cluster().make(type="LoadBalancer", allocateLoadBalancerNodePorts=False, ports=ports)
    assert [port.get("nodePort") for port in made["spec"]["ports"]] == [30080, None]


def test_allocated_values_left_out_by_the_client_stay() -> None:
    cluster = Cluster()
    old = cluster.make(type="LoadBalancer", externalTrafficPolicy="Local")
    bare = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]}
    new = cluster.update({**old, "spec": bare})
    assert new["spec"] == old["spec"]


FROM_TO = [
    ("ClusterIP", "NodePort", {"externalTrafficPolicy", "ports"}, set()),
    ("ClusterIP", "LoadBalancer", {"externalTrafficPolicy", "allocateLoadBalancerNodePorts"}, set()),
    ("NodePort", "ClusterIP", set(), {"externalTrafficPolicy"}),
    ("LoadBalancer", "ClusterIP", set(), {"externalTrafficPolicy", "allocateLoadBalancerNodePorts"}),
    ("ClusterIP", "ExternalName", {"externalName"}, {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"}),
    ("ExternalName", "ClusterIP", {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"}, set()),
]


@pytest.mark.parametrize(("before", "after", "gained", "lost"), FROM_TO)
def test_type_transitions(before: str, after: str, gained: set[str], lost: set[str]) -> None:
    cluster = Cluster()
    old = cluster.make(type=before, **({"externalName": "x.example"} if before == "ExternalName" else {}))
    new = cluster.change(old, type=after, **({"externalName": "x.example"} if after == "ExternalName" else {}))
    assert gained <= new["spec"].keys()
    assert not lost & new["spec"].keys()
    has_node_ports = [bool(port.get("nodePort")) for port in new["spec"]["ports"]]
    assert has_node_ports == [after in {"NodePort", "LoadBalancer"}]
    services = cluster.registry.services
    assert len(services.addresses["IPv4"].owners) == (after != "ExternalName")
    assert len(services.ports.owners) == (after in {"NodePort", "LoadBalancer"})
    cluster.delete(new)
    assert not services.addresses["IPv4"].owners | services.ports.owners


def test_node_ports_go_with_the_type_also_when_a_port_went_too() -> None:
    """As in kube-apiserver: they are cleared; new ones from the client are refused."""
    cluster = Cluster()
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    old = cluster.make(type="NodePort", ports=ports)
    fewer = cluster.change(old, type="ClusterIP", ports=old["spec"]["ports"][:1], externalTrafficPolicy=None)
    assert [port.get("nodePort") for port in fewer["spec"]["ports"]] == [None]
    assert not cluster.registry.services.ports.owners
    old = cluster.make("other", type="NodePort", ports=ports)
    changed = [{**old["spec"]["ports"][0], "nodePort": 30001}]
    with pytest.raises(StatusError, match=r"nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"):
        cluster.change(old, type="ClusterIP", ports=changed, externalTrafficPolicy=None)


def test_node_ports_of_a_load_balancer_without_allocation_go_with_the_type() -> None:
    cluster = Cluster()
    old = cluster.make(
        type="LoadBalancer", allocateLoadBalancerNodePorts=False, ports=[{"port": 80, "nodePort": 30001}]
    )
    new = cluster.change(old, type="ClusterIP")
    assert "nodePort" not in new["spec"]["ports"][0]
    assert not cluster.registry.services.ports.owners


@pytest.mark.parametrize(
    ("spec", "code", "text"),
    [
        (
            {"healthCheckNodePort": -1},
            500,
            "failed to allocate requested HealthCheck NodePort -1: provided port is not",
        ),
        (
            {"healthCheckNodePort": 80},
            500,
            "failed to allocate requested HealthCheck NodePort 80: provided port is not",
        ),
        (
            {"healthCheckNodePort": -1, "externalTrafficPolicy": "Cluster"},
            422,
            "spec.healthCheckNodePort: Invalid value: -1",
        ),
        ({"healthCheckNodePort": -1, "type": "NodePort"}, 422, "spec.healthCheckNodePort: Invalid value: -1"),
    ],
)
def test_health_check_ports_that_cannot_be_had(spec: Json, code: int, text: str) -> None:
    """A needed port is allocated before validation; its errors are 500, as in kube-apiserver."""
    wanted = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", **spec}
    with pytest.raises(StatusError) as raised:
        Cluster().make(**wanted)
    assert (raised.value.code, text in raised.value.message) == (code, True), raised.value.message


def test_dual_stack_up_and_down() -> None:
    cluster = Cluster("10.96.0.0/16", "fd00:10:96::/112")
    single = cluster.make()
    both = cluster.change(single, ipFamilyPolicy="PreferDualStack")
    assert both["spec"]["clusterIPs"] == ["10.96.1.1", "fd00:10:96::101"]
    assert both["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
    again = cluster.change(both, ipFamilyPolicy="SingleStack")
    assert again["spec"]["clusterIPs"] == ["10.96.1.1"]
    assert not cluster.registry.services.addresses["IPv6"].owners


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"clusterIP": "None", "selector": {"a": "b"}}, ("SingleStack", ["IPv4"])),
        ({"clusterIP": "None"}, ("RequireDualStack", ["IPv4", "IPv6"])),
    ],
)
def test_headless_families(spec: Json, expected: tuple[str, list[str]]) -> None:
    made = Cluster().make(**spec)["spec"]
    assert (made["ipFamilyPolicy"], made["ipFamilies"], made["clusterIPs"]) == (*expected, ["None"])


def test_old_objects_are_filled_when_read() -> None:
    families = ("IPv4", "IPv6")
    old = {"metadata": {"name": "x"}, "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.5"}}
    filled = fill_on_read(old, families)["spec"]
    assert (filled["clusterIPs"], filled["ipFamilies"]) == (["10.96.0.5"], ["IPv4"])
    alias = {"metadata": {"name": "y"}, "spec": {"type": "ExternalName", "internalTrafficPolicy": "Cluster"}}
    assert fill_on_read(alias, families)["spec"] == {"type": "ExternalName"}


def test_restored_numbers_are_taken_and_conflicts_told() -> None:
    cluster, again = Cluster(), Cluster()
    made = cluster.make(type="NodePort")
    twin = {**made, "metadata": {"name": "x-twin", "namespace": "default"}}
    stored = [stored_object_of(SERVICE, ("default", obj["metadata"]["name"]), obj, 1) for obj in (made, twin)]
    again.registry = new_registry(Store([*stored, *cluster.registry.store.page(NAMESPACE, Filter()).items]))
    assert again.registry.lost == ["default/x-twin: clusterIP 10.96.1.1", "default/x-twin: nodePort 30086"]
    assert again.make("new")["spec"]["clusterIP"] == "10.96.1.2"


def test_load_balancer_status() -> None:
    cluster = Cluster()
    old = cluster.make(type="LoadBalancer")
    status = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    new = cluster.update({**old, "status": status}, "status")
    assert new["status"]["loadBalancer"]["ingress"] == [{"ip": "192.0.2.1", "ipMode": "VIP"}]
    back = cluster.update({**new, "spec": {**new["spec"], "type": "ClusterIP"}})
    assert back["status"] == {"loadBalancer": {}}
    plain = cluster.make("b")
    with pytest.raises(StatusError, match=r"may only be used when `spec\.type` is 'LoadBalancer'"):
        cluster.update({**plain, "status": status}, "status")


def test_trusted_objects_may_lead_to_loopback() -> None:
    cluster = Cluster()
    registry = cluster.registry
    subsets = [{"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": 6443}]}]
    obj = {"metadata": {"name": "kubernetes", "namespace": "default"}, "subsets": subsets}
    with pytest.raises(StatusError, match="may not be in the loopback range"):
        registry.create(Request(ENDPOINTS, "default"), obj)
    with registry.without_validation():
        stored = registry.create(Request(ENDPOINTS, "default"), obj).obj
    labelled = {**stored, "metadata": {**stored["metadata"], "labels": {"a": "b"}}}
    assert cluster.update(labelled, kind=ENDPOINTS)["metadata"]["labels"] == {"a": "b"}


@pytest.mark.parametrize(
    ("kind", "obj", "part", "expected"),
    [
        (NAMESPACE, {"metadata": {"name": "n"}}, "status", {"phase": "Active"}),
        (
            ENDPOINTS,
            {"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": "1.2.3.4"}], "ports": [{"port": 1}]}]},
            "subsets",
            [{"addresses": [{"ip": "1.2.3.4"}], "ports": [{"port": 1, "protocol": "TCP"}]}],
        ),
        (
            ENDPOINT_SLICE,
            {"metadata": {"name": "s"}, "addressType": "IPv4", "ports": [{"port": 1}]},
            "ports",
            [{"name": "", "port": 1, "protocol": "TCP"}],
        ),
        (
            POD,
            {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            "status",
            {"phase": "Pending", "qosClass": "BestEffort"},
        ),
    ],
)
def test_defaults_of_other_kinds(kind: Kind, obj: Json, part: str, expected: object) -> None:
    request = Request(kind, "default" if kind.namespaced else None)
    assert Cluster().registry.create(request, obj).obj[part] == expected


def test_whatever_goes_wrong_takes_back_what_was_allocated() -> None:
    cluster = Cluster()
    made = cluster.make("a")
    numbers = cluster.registry.services

    def broken(*_: object) -> list[Cause]:
        raise ZeroDivisionError

    kinds = cluster.registry.kinds
    kinds.put(SERVICE, replace(kinds[SERVICE], validate=broken))
    with pytest.raises(ZeroDivisionError):
        cluster.make("b", type="NodePort")
    with pytest.raises(ZeroDivisionError):
        cluster.change(made, type="NodePort")
    assert list(numbers.addresses["IPv4"].owners.values()) == [("default", "a")]
    assert numbers.ports.owners == {}


def test_every_stored_kind_has_a_strategy_and_names_of_its_own() -> None:
    assert all(CATALOGUE[kind] for kind in KINDS)
    assert len({(kind.api_version, kind.kind) for kind in CATALOGUE}) == len(list(CATALOGUE))
    assert len({kind.resource for kind in KINDS}) == len(KINDS) == len(set(KINDS))


def test_two_catalogues_have_kinds_of_their_own() -> None:
    widget = Kind("example.com", "v1", "Widget", "widgets", is_inert=True)
    one, other = built_in(), built_in()
    one.put(widget, CATALOGUE[SERVICE])
    assert one.by_type("example.com/v1", "Widget") is one.by_plural["example.com/v1", "widgets"] is widget
    assert one.by_resource("widgets.example.com") is widget
    assert widget in one.namespaced
    assert (other.by_type("example.com/v1", "Widget"), widget in other.stored) == (None, False)
    one.remove(widget)
    assert set(one) == set(other)
