"""Services through defaults, allocation and validation; defaults of other kinds.

Ranges: 10.96.0.0/16 (dynamic from 10.96.1.1), node ports 30000-32767 (dynamic from 30086).
"""

from dataclasses import replace
from ipaddress import ip_network

import pytest
from object_api import Api, refused, without_revision
from served_kinds import CATALOGUE, KINDS

from kdns.controlplane.apimachinery.errors import Cause, StatusError
from kdns.controlplane.apimachinery.kinds import ENDPOINTS, NAMESPACE, SERVICE, Json, Kind
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.kinds.service.ip_families import fill_on_read
from kdns.controlplane.storage.store import Filter, Store, stored_object_of

PORTS = [{"port": 80}]


class Cluster:
    """A registry and its objects."""

    def __init__(self, *cidrs: str) -> None:
        networks = tuple(ip_network(cidr) for cidr in cidrs or ("10.96.0.0/16",))
        self.api = Api(config=ClusterConfig(service_cidrs=networks))

    def make(self, name: str = "web", **spec: object) -> Json:
        obj = {"metadata": {"name": name, "namespace": "default"}, "spec": {"ports": PORTS, **spec}}
        return self.api.create(SERVICE, obj)

    def change(self, old: Json, **spec: object) -> Json:
        wanted = {key: value for key, value in {**old["spec"], **spec}.items() if value is not None}
        return self.update({**old, "spec": wanted})

    def update(self, obj: Json, subresource: str = "", kind: Kind = SERVICE) -> Json:
        return self.api.update(kind, obj["metadata"]["name"], without_revision(obj), subresource=subresource)

    def delete(self, obj: Json) -> None:
        self.api.delete(SERVICE, obj["metadata"]["name"])


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
    Cluster().api.create(SERVICE, obj)
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
    ],
)
def test_refusals_say_why_and_hold_nothing(spec: Json, message: str) -> None:
    cluster = Cluster()
    cluster.make("a", clusterIP="10.96.0.11", type="NodePort", ports=[{"port": 80, "nodePort": 30080}])
    pools = cluster.api.services.addresses["IPv4"], cluster.api.services.ports
    before = [dict(pool.owners) for pool in pools]
    refused(int(message[:3]), message[4:], cluster.make, "b", **spec)
    assert [pool.owners for pool in pools] == before


def test_a_full_range_is_the_servers_failure() -> None:
    cluster = Cluster("10.0.0.0/30")
    cluster.make("a")
    cluster.make("b")
    refused(500, "Internal error occurred: failed to allocate a serviceIP: range is full", cluster.make, "c")


def test_a_node_port_that_an_external_name_writes_down_is_not_its_own() -> None:
    cluster = Cluster()
    real = cluster.make("a", type="NodePort", ports=[{"port": 80, "nodePort": 30080}])
    alias = cluster.make("b", type="ExternalName", externalName="x.example", ports=real["spec"]["ports"])
    refused(422, "provided port is already allocated", cluster.change, alias, type="NodePort")
    cluster.delete(alias)
    with pytest.raises(StatusError, match="provided port is already allocated"):
        cluster.make("c", type="NodePort", ports=[{"port": 80, "nodePort": 30080}])


def test_node_ports_go_with_the_type_also_when_a_port_went_too() -> None:
    """As in kube-apiserver: they are cleared; new ones from the client are refused."""
    cluster = Cluster()
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    old = cluster.make(type="NodePort", ports=ports)
    fewer = cluster.change(old, type="ClusterIP", ports=old["spec"]["ports"][:1], externalTrafficPolicy=None)
    assert [port.get("nodePort") for port in fewer["spec"]["ports"]] == [None]
    assert not cluster.api.services.ports.owners
    old = cluster.make("other", type="NodePort", ports=ports)
    changed = [{**old["spec"]["ports"][0], "nodePort": 30001}]
    with pytest.raises(StatusError, match=r"nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"):
        cluster.change(old, type="ClusterIP", ports=changed, externalTrafficPolicy=None)


def test_two_ports_do_not_get_one_node_port_by_an_update() -> None:
    cluster = Cluster()
    old = cluster.make(type="NodePort", ports=[{"name": "a", "port": 80}, {"name": "b", "port": 81}])
    one, other = old["spec"]["ports"]
    with pytest.raises(StatusError, match=rf"spec.ports\[1\].nodePort: Duplicate value: {one['nodePort']}"):
        cluster.change(old, ports=[one, {**other, "nodePort": one["nodePort"]}])


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
    again.api = Api(Store([*stored, *cluster.api.store.page(NAMESPACE, Filter()).items]))
    assert again.api.registry.lost == ["default/x-twin: clusterIP 10.96.1.1", "default/x-twin: nodePort 30086"]
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
    wanted = "may only be used when `spec.type` is 'LoadBalancer'"
    refused(422, wanted, cluster.update, {**plain, "status": status}, "status")


def test_trusted_objects_may_lead_to_loopback() -> None:
    cluster = Cluster()
    subsets = [{"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": 6443}]}]
    obj = {"metadata": {"name": "kubernetes", "namespace": "default"}, "subsets": subsets}
    refused(422, "may not be in the loopback range", cluster.api.create, ENDPOINTS, obj)
    with cluster.api.registry.without_validation():
        stored = cluster.api.create(ENDPOINTS, obj)
    labelled = {**stored, "metadata": {**stored["metadata"], "labels": {"a": "b"}}}
    assert cluster.update(labelled, kind=ENDPOINTS)["metadata"]["labels"] == {"a": "b"}


def test_whatever_goes_wrong_takes_back_what_was_allocated() -> None:
    cluster = Cluster()
    made = cluster.make("a")
    numbers = cluster.api.services

    def broken(*_: object) -> list[Cause]:
        raise ZeroDivisionError

    kinds = cluster.api.kinds
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
