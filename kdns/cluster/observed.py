"""Objects with the fields that causes and problems need, and that nothing else does."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kdns.cluster.objects import (
    Keyed,
    Meta,
    Namespace,
    Pod,
    PodStatus,
    Service,
    ServiceLabels,
    ServiceMeta,
    ServicePort,
    ServiceSpec,
    Slim,
)


class SelectingPort(ServicePort, frozen=True):
    """spec.ports[] of a Service, with its targetPort: a number, the name of a container's port, or None for `port`."""

    target_port: int | str | None = None


class SelectingSpec(ServiceSpec, frozen=True):
    """spec of a Service, with its selector."""

    ports: tuple[SelectingPort, ...] | None = ()
    selector: dict[str, str] | None = None
    traffic_distribution: str | None = None


class AppLabels(ServiceLabels, frozen=True, rename={"k8s_app": "k8s-app"}):
    """The labels of a Service that are used, with that of the cluster's DNS."""

    k8s_app: str | None = None


class TopologyMode(Slim, frozen=True, rename={"mode": "service.kubernetes.io/topology-mode"}):
    """The annotation that traffic distribution had before it was a field."""

    mode: str = ""


class SelectingMeta(ServiceMeta, frozen=True):
    """metadata of a Service."""

    labels: AppLabels | None = None
    annotations: TopologyMode | None = None


class SelectingService(Service, frozen=True):
    """v1 Service, with its selector."""

    metadata: SelectingMeta
    spec: SelectingSpec = SelectingSpec()


class PodCondition(Slim, frozen=True):
    """status.conditions[] of a Pod."""

    type: str
    status: str = ""
    last_transition_time: str | None = ""


class ObservedStatus(PodStatus, frozen=True):
    """status of a Pod, with its conditions."""

    conditions: tuple[PodCondition, ...] | None = ()

    @property
    def is_ready(self) -> bool:
        return any(condition.type == "Ready" and condition.status == "True" for condition in self.conditions or ())

    @property
    def unready_since(self) -> str:
        """When the Pod stopped being Ready (RFC 3339), "" if it is Ready, or if that is not known."""
        times = (
            condition.last_transition_time
            for condition in self.conditions or ()
            if condition.type == "Ready" != condition.status
        )
        return "" if self.is_ready else next(filter(None, times), "")


class ResolverOption(Slim, frozen=True):
    """spec.dnsConfig.options[] of a Pod."""

    name: str = ""
    value: str | None = None


class ResolverConfig(Slim, frozen=True):
    """spec.dnsConfig of a Pod."""

    searches: tuple[str, ...] | None = ()
    options: tuple[ResolverOption, ...] | None = ()
    nameservers: tuple[str, ...] | None = ()


class ContainerPort(Slim, frozen=True):
    """spec.containers[].ports[] of a Pod."""

    name: str = ""
    container_port: int = 0
    protocol: str | None = "TCP"


class Container(Slim, frozen=True):
    """spec.containers[] of a Pod; `restart_policy` Always makes a sidecar of an init container."""

    ports: tuple[ContainerPort, ...] | None = ()
    restart_policy: str | None = ""


class PodSpec(Slim, frozen=True):
    """The fields of spec that a Pod's resolver has, and its named ports."""

    dns_policy: str = "ClusterFirst"
    dns_config: ResolverConfig | None = None
    host_network: bool = False
    containers: tuple[Container, ...] | None = ()
    init_containers: tuple[Container, ...] | None = ()

    @property
    def named_ports(self) -> set[tuple[str, str]]:
        """Names and protocols of ports that a targetPort may name: also those of sidecars (FindPort of Kubernetes)."""
        return {(port.name, port.protocol or "TCP") for port in self.ports() if port.name}

    def port_numbers(self, protocol: str) -> set[int]:
        return {port.container_port for port in self.ports() if (port.protocol or "TCP") == protocol}

    def ports(self) -> Iterator[ContainerPort]:
        sidecars = (container for container in self.init_containers or () if container.restart_policy == "Always")
        for container in (*(self.containers or ()), *sidecars):
            yield from container.ports or ()


class ObservedPod(Pod, frozen=True):
    """v1 Pod, with its conditions and its resolver."""

    status: ObservedStatus = ObservedStatus()
    spec: PodSpec = PodSpec()


class LabelledMeta(Meta, frozen=True):
    """metadata of an object whose name and labels are used."""

    labels: dict[str, str] | None = None


class ObservedNamespace(Namespace, frozen=True):
    """v1 Namespace, with its labels, which NetworkPolicies select."""

    metadata: LabelledMeta


class LabelRequirement(Slim, frozen=True):
    """matchExpressions[] of a label selector; `operator` is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] | None = ()


class LabelSelector(Slim, frozen=True):
    """A label selector; an empty one selects everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelRequirement, ...] | None = ()


class PolicyPort(Slim, frozen=True):
    """ports[] of a rule of a NetworkPolicy; without `port` all of the protocol."""

    protocol: str | None = "TCP"
    port: int | str | None = None
    end_port: int | None = None


class IPBlock(Slim, frozen=True, rename={"except_": "except"}):
    """ipBlock of a peer."""

    cidr: str
    except_: tuple[str, ...] | None = ()


class PolicyPeer(Slim, frozen=True):
    """from[] and to[] of a rule of a NetworkPolicy."""

    pod_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    ip_block: IPBlock | None = None


class PolicyRule(Slim, frozen=True):
    """ingress[] and egress[]: without peers all, without ports all."""

    from_: tuple[PolicyPeer, ...] | None = msgspec.field(name="from", default=())
    to: tuple[PolicyPeer, ...] | None = ()
    ports: tuple[PolicyPort, ...] | None = ()


class PolicySpec(Slim, frozen=True):
    """spec of a NetworkPolicy."""

    pod_selector: LabelSelector | None = None
    policy_types: tuple[str, ...] | None = ()
    ingress: tuple[PolicyRule, ...] | None = ()
    egress: tuple[PolicyRule, ...] | None = ()


class NetworkPolicy(Keyed, Slim, frozen=True):
    """networking.k8s.io/v1 NetworkPolicy."""

    metadata: Meta
    spec: PolicySpec = PolicySpec()


class TemplateMeta(Slim, frozen=True):
    """metadata of a Pod template."""

    labels: dict[str, str] | None = None


class PodTemplate(Slim, frozen=True):
    """spec.template of a workload."""

    metadata: TemplateMeta = TemplateMeta()
    spec: PodSpec = PodSpec()


class WorkloadSpec(Slim, frozen=True):
    """spec of a Deployment or StatefulSet."""

    template: PodTemplate = PodTemplate()
    replicas: int | None = 1
    service_name: str | None = ""


class Workload(Keyed, Slim, frozen=True):
    """An object that makes Pods; `kind` is not in the items of a list."""

    metadata: Meta
    spec: WorkloadSpec = WorkloadSpec()
    kind: str = ""

    @property
    def labels(self) -> dict[str, str]:
        return self.spec.template.metadata.labels or {}


class ConfigMap(Keyed, Slim, frozen=True):
    """v1 ConfigMap."""

    metadata: Meta
    data: dict[str, str] | None = None
