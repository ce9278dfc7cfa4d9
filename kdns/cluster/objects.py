"""The Kubernetes objects kdns reads, cut down to the fields it uses.

msgspec decodes them straight from the API's JSON; fields not named here are skipped and cost no memory.
Field names are the API's, in snake case. resourceVersion is left out on purpose: two versions of an object
that say the same to kdns are equal.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Key: TypeAlias = tuple[str, str]
"""(namespace, name); the namespace is "" for cluster-scoped objects."""


class Slim(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Base of the slim objects: immutable, compared by value."""


class Meta(Slim, frozen=True):
    """metadata of an object of which only the identity matters."""

    name: str
    namespace: str = ""


class ServicePort(Slim, frozen=True):
    """spec.ports[] of a Service; protocol defaults to TCP as in the API."""

    port: int
    name: str | None = ""
    protocol: str = "TCP"


class ServiceSpec(
    Slim, frozen=True, rename={"cluster_ip": "clusterIP", "cluster_ips": "clusterIPs", "external_name": "externalName"}
):
    """spec of a Service."""

    type: str = "ClusterIP"
    cluster_ip: str = ""
    cluster_ips: tuple[str, ...] = ()
    external_name: str = ""
    ports: tuple[ServicePort, ...] | None = ()


class Service(Slim, frozen=True):
    """v1 Service."""

    metadata: Meta
    spec: ServiceSpec = ServiceSpec()

    @property
    def key(self) -> Key:
        """(namespace, name)."""
        return self.metadata.namespace, self.metadata.name

    @property
    def is_external_name(self) -> bool:
        """Whether this Service is only an alias."""
        return self.spec.type == "ExternalName"

    @property
    def is_headless(self) -> bool:
        """Whether names lead to endpoints rather than to a virtual IP."""
        return self.spec.cluster_ip == "None"

    @property
    def virtual_ips(self) -> tuple[str, ...]:
        """The cluster IPs as written; empty for headless, ExternalName and not yet allocated Services."""
        if self.is_headless or self.is_external_name or not self.spec.cluster_ip:
            return ()
        return self.spec.cluster_ips or (self.spec.cluster_ip,)

    @property
    def ports(self) -> tuple[ServicePort, ...]:
        """spec.ports, never None."""
        return self.spec.ports or ()


class SliceLabels(Slim, frozen=True, rename={"service_name": "kubernetes.io/service-name"}):
    """The one label of an EndpointSlice that matters: its Service."""

    service_name: str = ""


class SliceAnnotations(Slim, frozen=True, rename={"trigger_time": "endpoints.kubernetes.io/last-change-trigger-time"}):
    """When the change that led to this slice happened (RFC 3339), for programming latency."""

    trigger_time: str = ""


class SliceMeta(Slim, frozen=True):
    """metadata of an EndpointSlice."""

    name: str
    namespace: str = ""
    labels: SliceLabels | None = None
    annotations: SliceAnnotations | None = None


class Conditions(Slim, frozen=True):
    """endpoints[].conditions; None means the API did not say, which counts as ready."""

    ready: bool | None = None


class TargetRef(Slim, frozen=True):
    """endpoints[].targetRef."""

    kind: str = ""
    name: str = ""
    namespace: str = ""


class Endpoint(Slim, frozen=True):
    """endpoints[] of an EndpointSlice."""

    addresses: tuple[str, ...]
    conditions: Conditions | None = None
    hostname: str | None = None
    target_ref: TargetRef | None = None

    @property
    def is_ready(self) -> bool:
        """conditions.ready, where unknown counts as ready (discovery/v1 EndpointConditions)."""
        return self.conditions is None or self.conditions.ready is not False


class EndpointPort(Slim, frozen=True):
    """ports[] of an EndpointSlice; a missing port means all ports."""

    name: str | None = ""
    port: int | None = None
    protocol: str | None = "TCP"


class EndpointSlice(Slim, frozen=True):
    """discovery.k8s.io/v1 EndpointSlice."""

    metadata: SliceMeta
    address_type: str = "IPv4"
    endpoints: tuple[Endpoint, ...] | None = ()
    ports: tuple[EndpointPort, ...] | None = ()

    @property
    def key(self) -> Key:
        """(namespace, name)."""
        return self.metadata.namespace, self.metadata.name

    @property
    def service_key(self) -> Key | None:
        """The Service this slice belongs to, or None for a slice without the label."""
        labels = self.metadata.labels
        return (self.metadata.namespace, labels.service_name) if labels and labels.service_name else None


class PodMeta(Slim, frozen=True):
    """metadata of a Pod."""

    name: str
    namespace: str = ""
    deletion_timestamp: str | None = None


class PodIP(Slim, frozen=True):
    """status.podIPs[]."""

    ip: str = ""


class PodStatus(Slim, frozen=True, rename={"pod_ip": "podIP", "pod_ips": "podIPs", "phase": "phase"}):
    """status of a Pod."""

    phase: str = ""
    pod_ip: str = ""
    pod_ips: tuple[PodIP, ...] | None = ()


class Pod(Slim, frozen=True):
    """v1 Pod."""

    metadata: PodMeta
    status: PodStatus = PodStatus()

    @property
    def key(self) -> Key:
        """(namespace, name)."""
        return self.metadata.namespace, self.metadata.name

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses of a pod that can be reached; empty once it is terminating or finished.

        Differs: CoreDNS looks at status.podIP only and misses the second family of a dual-stack pod.
        """
        if self.metadata.deletion_timestamp or self.status.phase in {"Succeeded", "Failed", "Unknown"}:
            return ()
        return tuple(ip.ip for ip in self.status.pod_ips or () if ip.ip) or (
            (self.status.pod_ip,) if self.status.pod_ip else ()
        )


class Namespace(Slim, frozen=True):
    """v1 Namespace."""

    metadata: Meta

    @property
    def key(self) -> Key:
        """("", name)."""
        return "", self.metadata.name


Object: TypeAlias = Service | EndpointSlice | Pod | Namespace
