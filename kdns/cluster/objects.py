"""The Kubernetes objects that kdns reads, with the fields that it uses.

msgspec decodes them from the API's JSON; other fields are skipped and cost no memory. Field names are the API's, in
snake case. resourceVersion is not decoded, so versions of an object with equal used fields are equal.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

from kdns.cluster.endpoints import Conditions, Endpoint, Endpoints, Hints, Named, Slim, TargetRef

__all__ = [
    "ClientIPConfig",
    "Conditions",
    "Endpoint",
    "EndpointPort",
    "EndpointSlice",
    "Hints",
    "Ingress",
    "Key",
    "LoadBalancerStatus",
    "Meta",
    "Named",
    "Namespace",
    "Node",
    "NodeAddress",
    "NodeLabels",
    "NodeMeta",
    "NodeSpec",
    "NodeStatus",
    "Object",
    "Pod",
    "PodIP",
    "PodMeta",
    "PodStatus",
    "Service",
    "ServiceCIDR",
    "ServiceCIDRSpec",
    "ServiceImport",
    "ServiceImportSpec",
    "ServiceLabels",
    "ServiceMeta",
    "ServicePort",
    "ServiceSpec",
    "ServiceStatus",
    "SessionAffinityConfig",
    "SliceAnnotations",
    "SliceLabels",
    "SliceMeta",
    "Slim",
    "Taint",
    "TargetRef",
]

Key: TypeAlias = tuple[str, str]
"""(namespace, name); the namespace is "" for cluster-scoped objects."""


class Keyed:
    """Base of objects with a key."""

    __slots__ = ()
    metadata: Any

    @property
    def key(self) -> Key:
        return self.metadata.namespace, self.metadata.name


class Meta(Slim, frozen=True):
    """metadata with the name only."""

    name: str
    namespace: str = ""


Port: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=65535)]
"""0 if not set. An object with an invalid number does not decode."""


class ServicePort(Slim, frozen=True):
    """spec.ports[] of a Service; the protocol defaults to TCP as in the API."""

    port: Port
    name: str | None = ""
    protocol: str = "TCP"
    node_port: Port | None = 0


class ClientIPConfig(Slim, frozen=True):
    """spec.sessionAffinityConfig.clientIP; seconds."""

    timeout_seconds: int | None = None


class SessionAffinityConfig(Slim, frozen=True):
    """spec.sessionAffinityConfig."""

    client_ip: ClientIPConfig | None = None


class ServiceSpec(Slim, frozen=True):
    """spec of a Service."""

    type: str = "ClusterIP"
    cluster_ip: str = ""
    cluster_ips: tuple[str, ...] = ()
    external_name: str = ""
    ports: tuple[ServicePort, ...] | None = ()
    ip_families: tuple[str, ...] | None = ()
    external_ips: tuple[str, ...] | None = ()
    load_balancer_source_ranges: tuple[str, ...] | None = ()
    session_affinity: str = "None"
    session_affinity_config: SessionAffinityConfig | None = None
    external_traffic_policy: str = "Cluster"
    internal_traffic_policy: str | None = "Cluster"
    health_check_node_port: Port = 0


class Ingress(Slim, frozen=True):
    """status.loadBalancer.ingress[]; an entry with a host name has ip ""."""

    ip: str = ""
    hostname: str = ""
    ip_mode: str | None = None


class LoadBalancerStatus(Slim, frozen=True):
    """status.loadBalancer."""

    ingress: tuple[Ingress, ...] | None = ()


class ServiceStatus(Slim, frozen=True):
    """status of a Service."""

    load_balancer: LoadBalancerStatus = LoadBalancerStatus()


class ServiceLabels(Slim, frozen=True, rename={"proxy_name": "service.kubernetes.io/service-proxy-name"}):
    """The label with the name of another proxy for the Service's virtual IPs."""

    proxy_name: str | None = None


class ServiceMeta(Slim, frozen=True):
    """metadata of a Service."""

    name: str
    namespace: str = ""
    labels: ServiceLabels | None = None
    creation_timestamp: str | None = None


class Service(Keyed, Slim, frozen=True):
    """v1 Service."""

    metadata: ServiceMeta
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus | None = None

    @property
    def is_external_name(self) -> bool:
        """The Service is a CNAME."""
        return self.spec.type == "ExternalName"

    @property
    def is_headless(self) -> bool:
        """The Service's name resolves to endpoints, not to a virtual IP."""
        return self.spec.cluster_ip == "None"

    @property
    def virtual_ips(self) -> tuple[str, ...]:
        """The cluster IPs; () for headless, ExternalName and unallocated Services."""
        if self.is_headless or self.is_external_name or not self.spec.cluster_ip:
            return ()
        return self.spec.cluster_ips or (self.spec.cluster_ip,)

    @property
    def ingress(self) -> tuple[Ingress, ...]:
        return (self.status.load_balancer.ingress or ()) if self.status else ()

    @property
    def external_ips(self) -> tuple[str, ...]:
        """spec.externalIPs and addresses of load balancers."""
        return (*(self.spec.external_ips or ()), *(entry.ip for entry in self.ingress if entry.ip))

    @property
    def ports(self) -> tuple[ServicePort, ...]:
        return self.spec.ports or ()


SLICE_LABELS = {
    "service_name": "kubernetes.io/service-name",
    "import_name": "multicluster.kubernetes.io/service-name",
    "source_cluster": "multicluster.kubernetes.io/source-cluster",
}


class SliceLabels(Slim, frozen=True, rename=SLICE_LABELS):
    """The labels of an EndpointSlice with its Service, or its ServiceImport and the cluster it is from."""

    service_name: str = ""
    import_name: str = ""
    source_cluster: str = ""


class SliceAnnotations(Slim, frozen=True, rename={"trigger_time": "endpoints.kubernetes.io/last-change-trigger-time"}):
    """The time of the change that caused this version (RFC 3339), for the programming latency."""

    trigger_time: str = ""


class SliceMeta(Slim, frozen=True):
    """metadata of an EndpointSlice."""

    name: str
    namespace: str = ""
    labels: SliceLabels | None = None
    annotations: SliceAnnotations | None = None


class EndpointPort(Slim, frozen=True):
    """ports[] of an EndpointSlice; port None means all ports."""

    name: str | None = ""
    port: Port | None = None
    protocol: str | None = "TCP"


class EndpointSlice(Keyed, Slim, frozen=True):
    """discovery.k8s.io/v1 EndpointSlice."""

    metadata: SliceMeta
    address_type: str = "IPv4"
    endpoints: Endpoints | None = ()
    ports: tuple[EndpointPort, ...] | None = ()

    @property
    def service_key(self) -> Key | None:
        """None without the label."""
        labels = self.metadata.labels
        return (self.metadata.namespace, labels.service_name) if labels and labels.service_name else None

    @property
    def import_key(self) -> Key | None:
        """None for a slice of this cluster."""
        labels = self.metadata.labels
        return (self.metadata.namespace, labels.import_name) if labels and labels.import_name else None

    @property
    def source_cluster(self) -> str:
        """The cluster of a ServiceImport's endpoints, "" if unknown."""
        return self.metadata.labels.source_cluster if self.metadata.labels else ""


class PodMeta(Slim, frozen=True):
    """metadata of a Pod."""

    name: str
    namespace: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None


class PodIP(Slim, frozen=True):
    """status.podIPs[]."""

    ip: str = ""


class PodStatus(Slim, frozen=True):
    """status of a Pod."""

    phase: str = ""
    pod_ip: str = ""
    pod_ips: tuple[PodIP, ...] | None = ()


class Pod(Keyed, Slim, frozen=True):
    """v1 Pod."""

    metadata: PodMeta
    status: PodStatus = PodStatus()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of a running Pod; () if it is terminating or finished.

        Differs: CoreDNS uses status.podIP only, without the second family of a dual-stack Pod.
        """
        if self.metadata.deletion_timestamp or self.status.phase in {"Succeeded", "Failed", "Unknown"}:
            return ()
        return tuple(ip.ip for ip in self.status.pod_ips or () if ip.ip) or (
            (self.status.pod_ip,) if self.status.pod_ip else ()
        )


class Namespace(Keyed, Slim, frozen=True):
    """v1 Namespace."""

    metadata: Meta


class NodeLabels(Slim, frozen=True, rename={"zone": "topology.kubernetes.io/zone"}):
    """The label of a Node with its zone."""

    zone: str = ""


class NodeMeta(Slim, frozen=True):
    """metadata of a Node."""

    name: str
    labels: NodeLabels | None = None
    deletion_timestamp: str | None = None


class Taint(Slim, frozen=True):
    """spec.taints[]."""

    key: str


class NodeSpec(Slim, frozen=True):
    """spec of a Node."""

    pod_cidr: str = ""
    pod_cidrs: tuple[str, ...] | None = ()
    taints: tuple[Taint, ...] | None = ()


class NodeAddress(Slim, frozen=True):
    """status.addresses[]: type is InternalIP, ExternalIP, Hostname or another."""

    type: str
    address: str


class NodeStatus(Slim, frozen=True):
    """status of a Node."""

    addresses: tuple[NodeAddress, ...] | None = ()


class Node(Keyed, Slim, frozen=True):
    """v1 Node."""

    metadata: NodeMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def key(self) -> Key:
        return "", self.metadata.name

    @property
    def zone(self) -> str:
        return self.metadata.labels.zone if self.metadata.labels else ""

    @property
    def pod_cidrs(self) -> tuple[str, ...]:
        return self.spec.pod_cidrs or ((self.spec.pod_cidr,) if self.spec.pod_cidr else ())


class ServiceCIDRSpec(Slim, frozen=True):
    """spec of a ServiceCIDR."""

    cidrs: tuple[str, ...] | None = ()


class ServiceCIDR(Keyed, Slim, frozen=True):
    """networking.k8s.io/v1 ServiceCIDR: ranges of cluster IPs."""

    metadata: Meta
    spec: ServiceCIDRSpec = ServiceCIDRSpec()


class ServiceImportSpec(Slim, frozen=True):
    """spec of a ServiceImport; `type` is ClusterSetIP or Headless."""

    type: str = "ClusterSetIP"
    ips: tuple[str, ...] | None = ()
    ports: tuple[ServicePort, ...] | None = ()


class ServiceImport(Keyed, Slim, frozen=True):
    """multicluster.x-k8s.io/v1alpha1 ServiceImport: a Service of a set of clusters (KEP-1645)."""

    metadata: Meta
    spec: ServiceImportSpec = ServiceImportSpec()

    @property
    def as_service(self) -> Service:
        """A Service with the same addresses and ports."""
        ips = self.spec.ips or ()
        first = "None" if self.spec.type == "Headless" else next(iter(ips), "")
        meta = ServiceMeta(self.metadata.name, self.metadata.namespace)
        return Service(meta, ServiceSpec(cluster_ip=first, cluster_ips=ips, ports=self.spec.ports))


Object: TypeAlias = Service | EndpointSlice | Pod | Namespace | Node | ServiceCIDR | ServiceImport
