"""The objects every cluster has from the start: namespaces, the node, the API's own Service, the DNS Service.

The API and DNS usually listen on loopback here. Endpoints and slices on loopback addresses are refused from users;
these objects are the server's own and are written past validation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kdns.controlplane.api import Api
from kdns.controlplane.clusterconfig import ClusterConfig, Network
from kdns.controlplane.endpointpods import SERVICE_NAME
from kdns.controlplane.kinds import ENDPOINT_SLICE, ENDPOINTS, LEASE, NAMESPACE, NODE, SERVICE, SERVICE_CIDR, Json, Kind
from kdns.controlplane.mirroring import SKIP
from kdns.controlplane.nodes import HOSTNAME, NODE_LABELS, node_status
from kdns.controlplane.servicecidrs import default_service_cidr, upgraded
from kdns.controlplane.services import address_family
from kdns.controlplane.strategy import Strategies
from kdns.controlplane.topology import ZONE

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
DNS_OFFSET = 10

_MANAGER = "kube-apiserver"
"""Who manages the fields of these objects in managedFields."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server of this process listens: IP address and port."""

    address: str
    port: int


def initial_objects(
    config: ClusterConfig, now: str, api: Listening | None = None, dns: Listening | None = None
) -> list[tuple[Kind, Json]]:
    """The objects in the order in which they are to be made; `now` is RFC 3339."""
    objects = [(NAMESPACE, {"metadata": {"name": name}}) for name in NAMESPACES]
    objects.append((SERVICE_CIDR, default_service_cidr(config)))
    objects.append((NODE, node(config, now)))
    objects.append((LEASE, _node_lease(config, now)))
    if api:
        objects += api_objects(config, api)
    if dns:
        objects += _served("kube-system", "kube-dns", _dns_service(config), dns, "dns", "dns-tcp")
    return objects


def api_objects(config: ClusterConfig, api: Listening) -> list[tuple[Kind, Json]]:
    """Service kubernetes with its Endpoints and slice: the way to the API server."""
    return _served("default", "kubernetes", _api_service(config), api, "https")


def establish(api: Api, strategies: Strategies, objects: Iterable[tuple[Kind, Json]]) -> None:
    """Make the objects that are not there; lead those that are to where the servers listen now.

    Raises StatusError when an address that they need belongs to a Service of an older start.
    """
    with strategies.trusting():
        for kind, obj in objects:
            meta = obj["metadata"]
            key = (meta.get("namespace", ""), meta["name"])
            stored = api.store.get(kind, key)
            if stored is None:
                api.create(kind, key[0], obj, field_manager=_MANAGER)
            elif kind == SERVICE_CIDR:
                if wider := upgraded(stored.obj, obj):
                    api.update(kind, *key, wider, field_manager=_MANAGER)
            elif kind == SERVICE:
                ports = obj["spec"]["ports"]
                led = {**stored.obj, "spec": {**stored.obj["spec"], "ports": ports}}
                api.update(kind, *key, led, field_manager=_MANAGER)
            elif kind == ENDPOINT_SLICE and stored.obj["addressType"] != obj["addressType"]:
                api.delete(kind, *key)
                api.create(kind, key[0], obj, field_manager=_MANAGER)
            elif kind in {ENDPOINTS, ENDPOINT_SLICE}:
                led = {**stored.obj, **obj, "metadata": stored.obj["metadata"]}
                api.update(kind, *key, led, field_manager=_MANAGER)


def node(config: ClusterConfig, now: str) -> Json:
    """The one simulated node: Ready, with an address in each pod range."""
    name = config.node_name
    labels = {**NODE_LABELS, HOSTNAME: name}
    pods_max = min(network.num_addresses for network in config.pod_cidrs)
    cidrs = [str(network) for network in config.pod_cidrs]
    return {
        "metadata": {"name": name, "labels": {**labels, **({ZONE: config.node_zone} if config.node_zone else {})}},
        "spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs},
        "status": node_status({}, name, config.node_addresses, pods_max, now),
    }


def _node_lease(config: ClusterConfig, now: str) -> Json:
    """The lease that a kubelet holds. Differs: it is not renewed, a simulated node does not fail."""
    spec = {"holderIdentity": config.node_name, "leaseDurationSeconds": 40, "renewTime": now.replace("Z", ".000000Z")}
    return {"metadata": {"name": config.node_name, "namespace": "kube-node-lease"}, "spec": spec}


def _nth(network: Network, offset: int) -> str:
    """An address of the range; in a range too small for the offset its last usable one."""
    return str(network[min(offset, network.num_addresses - 2)])


def _api_service(config: ClusterConfig) -> Json:
    ports = [{"name": "https", "port": 443, "protocol": "TCP"}]
    labels = {"component": "apiserver", "provider": "kubernetes"}
    return {"metadata": {"labels": labels}, "spec": {"clusterIP": _nth(config.service_cidrs[0], 1), "ports": ports}}


def _dns_service(config: ClusterConfig) -> Json:
    names = {"dns": "UDP", "dns-tcp": "TCP"}
    ports = [{"name": name, "port": 53, "protocol": protocol} for name, protocol in names.items()]
    labels = {"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"}
    address = _nth(config.service_cidrs[0], DNS_OFFSET)
    return {"metadata": {"labels": labels}, "spec": {"clusterIP": address, "ports": ports}}


def _served(namespace: str, name: str, service: Json, at: Listening, *ports: str) -> list[tuple[Kind, Json]]:
    """The Service, and the Endpoints and slice that lead to where its server listens."""
    where, address = {"name": name, "namespace": namespace}, _reachable(at.address)
    offered = {row["name"]: row["protocol"] for row in service["spec"]["ports"]}
    rows = [{"name": port, "port": at.port, "protocol": offered[port]} for port in ports]
    for row in service["spec"]["ports"]:
        row["targetPort"] = at.port
    subsets = [{"addresses": [{"ip": address}], "ports": rows}]
    endpoints = {"metadata": {**where, "labels": {SKIP: "true"}}, "subsets": subsets}
    endpoint_slice = {
        "metadata": {**where, "labels": {SERVICE_NAME: name}},
        "addressType": address_family(address),
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": rows,
    }
    service["metadata"] |= where
    return [(SERVICE, service), (ENDPOINTS, endpoints), (ENDPOINT_SLICE, endpoint_slice)]


def _reachable(address: str) -> str:
    """A server on all addresses is also on loopback."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
