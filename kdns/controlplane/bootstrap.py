"""Builds the API, and the objects of every cluster: Namespaces, the Node, and the Services of API and DNS.

The API and DNS usually listen on loopback. Clients may not write endpoints with loopback addresses, so these objects
are written without validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kdns.controlplane.apimachinery.annotations import ZONE
from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import (
    ENDPOINT_SLICE,
    ENDPOINTS,
    NAMESPACE,
    NODE,
    SERVICE,
    SERVICE_CIDR,
    Json,
    Kind,
)
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.endpoints.mirroring_controller import SKIP
from kdns.controlplane.endpoints.pod_endpoints import SERVICE_NAME
from kdns.controlplane.kinds.catalogue import Catalogue
from kdns.controlplane.kinds.service.allocator import Choose
from kdns.controlplane.kinds.service.service_cidr import default_service_cidr
from kdns.controlplane.kinds.service.spec import address_family, spec_of
from kdns.controlplane.server.registry import Registry, Request
from kdns.controlplane.simulation.nodes.node_status import NODE_ANNOTATIONS, node_labels, node_status
from kdns.controlplane.storage.object_meta import NAME_LETTERS, timestamp
from kdns.controlplane.storage.store import Store
from kdns.net import Network

_SUFFIX_LENGTH: Final = 5


def assembled_api(
    config: ClusterConfig,
    store: Store,
    now_s: Callable[[], float],
    choose: Choose,
    choose_names: Choose,
    *,
    grace: bool = False,
    kinds: Catalogue | None = None,
) -> Registry:
    """An API over the objects of the store.

    `choose(n)` is a random number below n, which picks addresses and ports. uids and generated names come from
    `choose_names`.
    """

    def suffix() -> str:
        return "".join(NAME_LETTERS[choose_names(len(NAME_LETTERS))] for _ in range(_SUFFIX_LENGTH))

    def uid() -> str:
        return _uid(choose_names(_UUIDS))

    return Registry(store, config, choose, now_s, uid, suffix, grace=grace, kinds=kinds)


_UUIDS = (1 << 128) - 1  # for 1 << 128 random.randrange draws twice on average


def _uid(number: int) -> str:
    """A UUID of version 4 (RFC 9562 §5.4) from the bits of a number."""
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
DNS_OFFSET = 10

_MANAGER = "kube-apiserver"
"""The field manager of these objects."""
_INVALID = 422


@dataclass(frozen=True, slots=True)
class Listening:
    """The IP address and port of a server of this process."""

    address: str
    port: int


def initial_objects(
    config: ClusterConfig, now: str, api: Listening | None = None, dns: Listening | None = None
) -> list[tuple[Kind, Json]]:
    """In the order of creation; `now` is RFC 3339."""
    objects = [(NAMESPACE, {"metadata": {"name": name}}) for name in NAMESPACES]
    objects.append((SERVICE_CIDR, default_service_cidr(config)))
    objects.append((NODE, node(config, now)))
    if api:
        objects += api_objects(config, api)
    if dns:
        objects += _served("kube-system", "kube-dns", _dns_service(config), dns, "dns", "dns-tcp")
    return objects


def establish_cluster(registry: Registry, *, api: Listening | None = None, dns: Listening | None = None) -> list[str]:
    """`establish` for the initial objects."""
    return establish(registry, initial_objects(registry.config, timestamp(registry.now_s()), api, dns))


def api_objects(config: ClusterConfig, api: Listening) -> list[tuple[Kind, Json]]:
    """Service kubernetes with its Endpoints and EndpointSlice."""
    return _served("default", "kubernetes", api_service(config), api, "https")


def missing_dns_service(api: Registry, config: ClusterConfig) -> list[tuple[Kind, Json]]:
    """Service kube-dns if it does not exist.

    This allocates its address before other Services can request it; the DNS server listens later.
    """
    (kind, obj), *_ = _served("kube-system", "kube-dns", _dns_service(config), Listening("", 53), "dns", "dns-tcp")
    return [] if api.store.get(kind, ("kube-system", "kube-dns")) else [(kind, obj)]


def establish(api: Registry, objects: Iterable[tuple[Kind, Json]]) -> list[str]:
    """Creates the objects that do not exist, and updates the others to the servers' present addresses.

    A Service whose cluster IP is taken gets another address. Returns a message for each such change and failed write.
    """
    problems: list[str] = []
    with api.without_validation():
        for kind, obj in objects:
            meta = obj["metadata"]
            key = (meta.get("namespace", ""), meta["name"])
            try:
                problem = _establish(api, kind, key, obj)
            except StatusError as error:
                problem = f"could not be reconciled: {error.message}"
            if problem:
                problems.append(f"{kind.kind} {'/'.join(filter(None, key))} {problem}")
    return problems


def _establish(api: Registry, kind: Kind, key: tuple[str, str], obj: Json) -> str:
    """Returns the problem, or "". Raises StatusError."""
    stored = api.store.get(kind, key)
    if stored is None:
        return _create(api, kind, key[0], obj)
    if kind == SERVICE_CIDR:
        _add_family(api, stored.obj, obj)
    elif kind == SERVICE:
        ports = obj["spec"]["ports"]
        updated = {**stored.obj, "spec": {**stored.obj["spec"], "ports": ports}}
        api.update(Request(kind, *key, manager=_MANAGER), updated)
    elif kind == ENDPOINT_SLICE and stored.obj["addressType"] != obj["addressType"]:
        api.delete(Request(kind, *key))
        api.create(Request(kind, key[0], manager=_MANAGER), obj)
    elif kind in {ENDPOINTS, ENDPOINT_SLICE}:
        updated = {**stored.obj, **obj, "metadata": stored.obj["metadata"]}
        api.update(Request(kind, *key, manager=_MANAGER), updated)
    return ""


def _add_family(api: Registry, stored: Json, default: Json) -> None:
    """Adds the range of a second IP family, which kdns was started with, to the default ServiceCIDR."""
    configured, cidrs = default["spec"]["cidrs"], stored["spec"]["cidrs"]
    if len(configured) > 1 and cidrs == configured[:1]:
        request = Request(SERVICE_CIDR, "", stored["metadata"]["name"], manager=_MANAGER)
        api.update(request, {**stored, "spec": default["spec"]})


def _create(api: Registry, kind: Kind, namespace: str, obj: Json) -> str:
    """Returns "", or that a Service got another cluster IP because its own is taken."""
    try:
        api.create(Request(kind, namespace, manager=_MANAGER), obj)
    except StatusError as error:
        if kind != SERVICE or error.code != _INVALID:
            raise
    else:
        return ""
    spec = {**obj["spec"]}
    address = spec.pop("clusterIP")
    instead = api.create(Request(kind, namespace, manager=_MANAGER), {**obj, "spec": spec}).obj["spec"]["clusterIP"]
    owner = _owner(api, address)
    why = f"Service {owner} has {address}" if owner else f"{address} cannot be allocated"
    return f"has the cluster IP {instead}, since {why}"


def _owner(api: Registry, address: str) -> str:
    """Namespace and name of the Service with this cluster IP, or ""."""
    for service in api.list(Request(SERVICE)).items:
        if address in (spec_of(service).get("clusterIPs") or ()):
            return f"{service['metadata']['namespace']}/{service['metadata']['name']}"
    return ""


def node(config: ClusterConfig, now: str) -> Json:
    name = config.node_name
    labels = node_labels(name, config.platform, {ZONE: config.node_zone} if config.node_zone else {})
    pods_max = min(network.num_addresses for network in config.pod_cidrs)
    cidrs = [str(network) for network in config.pod_cidrs]
    return {
        "metadata": {"name": name, "labels": labels, "annotations": NODE_ANNOTATIONS},
        "spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs},
        "status": node_status({}, name, config.node_addresses, pods_max, now, config.platform),
    }


def _nth(network: Network, offset: int) -> str:
    return str(network[min(offset, network.num_addresses - 2)])


def api_service(config: ClusterConfig) -> Json:
    ports = [{"name": "https", "port": 443, "protocol": "TCP"}]
    labels = {"component": "apiserver", "provider": "kubernetes"}
    where = {"name": "kubernetes", "namespace": "default"}
    address = _nth(config.service_cidrs[0], 1)
    return {"metadata": {**where, "labels": labels}, "spec": {"clusterIP": address, "ports": ports}}


def _dns_service(config: ClusterConfig) -> Json:
    names = {"dns": "UDP", "dns-tcp": "TCP"}
    ports = [{"name": name, "port": 53, "protocol": protocol} for name, protocol in names.items()]
    labels = {"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"}
    address = _nth(config.service_cidrs[0], DNS_OFFSET)
    return {"metadata": {"labels": labels}, "spec": {"clusterIP": address, "ports": ports}}


def _served(namespace: str, name: str, service: Json, at: Listening, *ports: str) -> list[tuple[Kind, Json]]:
    """A Service, with the Endpoints and EndpointSlice of the address where its server listens."""
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
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
