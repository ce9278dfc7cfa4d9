"""The objects of a cluster that the rules look at, with what several rules need of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

from kdns.cluster.endpoints import PackedEndpoints, Traits
from kdns.cluster.objects import EndpointSlice, Key, Namespace, Node, Object, Pod, PodMeta, Service, ServiceCIDR
from kdns.cluster.observed import NetworkPolicy, ObservedNamespace, ObservedPod, SelectingService, Workload
from kdns.cluster.pod_index import PodIndex
from kdns.cluster.state import State
from kdns.net import packed

Observed: TypeAlias = Object | NetworkPolicy | Workload
DECODED: Final[Mapping[str, type[Observed]]] = {
    "Service": SelectingService,
    "EndpointSlice": EndpointSlice,
    "Pod": ObservedPod,
    "Namespace": ObservedNamespace,
    "Node": Node,
    "ServiceCIDR": ServiceCIDR,
    "NetworkPolicy": NetworkPolicy,
    "Deployment": Workload,
    "StatefulSet": Workload,
}
"""How objects of each kind are decoded."""
KINDS: Final = frozenset[type]({Service, EndpointSlice, Pod, Namespace, Node, ServiceCIDR, NetworkPolicy, Workload})
"""The kinds that rules know."""
OF_STATEFUL_SETS: Final = {"statefulset.kubernetes.io/pod-name": "{}-", "apps.kubernetes.io/pod-index": ""}
"""Labels that a StatefulSet's controller gives its Pods, and how their values begin."""


@dataclass(slots=True)
class Endpoints:
    """The endpoints of a Service: numbers, and of the ready ones families, nodes, ports and hints.

    `serving` is the number of those that serve while they terminate. `hosts` are the Pods or addresses by hostname.
    """

    total: int = 0
    ready: int = 0
    serving: int = 0
    hinted: int = 0
    nodes: set[str] = field(default_factory=set)
    zones: set[str] = field(default_factory=set)
    families: set[str] = field(default_factory=set)
    ports: set[tuple[str, str]] = field(default_factory=set)
    pods: list[str] = field(default_factory=list)
    hosts: dict[str, set[str]] = field(default_factory=dict)

    def add(self, endpoint_slice: EndpointSlice) -> None:
        rows = [*_rows(endpoint_slice)]
        ready = 0
        for (conditions, node_name, _, hints), hostname, pod in rows:
            if conditions is None or conditions.ready is not False:
                ready += 1
                if node_name:
                    self.nodes.add(node_name)
                if hints is not None:
                    self.hinted += bool(hints.for_zones or hints.for_nodes)
                    self.zones.update(zone.name for zone in hints.for_zones or ())
                if hostname:
                    self.hosts.setdefault(hostname, set()).add(pod)
            elif conditions.serving and conditions.terminating:
                self.serving += 1
            if pod:
                self.pods.append(pod)
        self.total += len(rows)
        self.ready += ready
        if ready:
            self.families.add(endpoint_slice.address_type)
            self.ports.update((port.name or "", port.protocol or "TCP") for port in endpoint_slice.ports or ())


def _rows(endpoint_slice: EndpointSlice) -> Iterator[tuple[Traits, str, str]]:
    """Yields traits, hostname and Pod of each endpoint."""
    endpoints = endpoint_slice.endpoints
    if isinstance(endpoints, PackedEndpoints):
        yield from ((traits, hostname, pod) for _, traits, hostname, pod in endpoints.rows())
        return
    for endpoint in endpoints or ():
        pod = endpoint.target_ref.name if endpoint.target_ref and endpoint.target_ref.kind == "Pod" else ""
        yield (endpoint.conditions, endpoint.node_name, endpoint.zone, endpoint.hints), endpoint.hostname or "", pod


@dataclass(frozen=True)
class ClusterView:
    """A moment of a cluster. A rule about kinds that are not in `known` says nothing.

    `is_running` is off for manifests: their Pods are `workloads`, and nobody has made their EndpointSlices yet.
    `kubelet_dns` are the addresses that kubelets give Pods, empty where that is not known.
    """

    state: State
    known: frozenset[type]
    policies: tuple[NetworkPolicy, ...] = ()
    workloads: tuple[Workload, ...] = ()
    kubelet_dns: tuple[str, ...] = ()
    domain: str = "cluster.local"
    is_running: bool = True

    @classmethod
    def holding(cls, objects: Iterable[Observed], known: Iterable[type], **facts: Any) -> ClusterView:
        """Returns the view of these objects; `facts` are its other fields."""
        state, policies, workloads = State(), [], []
        for obj in objects:
            if isinstance(obj, NetworkPolicy):
                policies.append(obj)
            elif isinstance(obj, Workload):
                workloads.append(obj)
            elif isinstance(obj, Pod):
                state.pods[obj.key] = obj  # without their index by address, which no rule reads, in half of the time
            else:
                state.upsert(obj)
        return cls(state, frozenset(known), tuple(policies), tuple(workloads), **facts)

    @cached_property
    def pods(self) -> PodIndex:
        return PodIndex(self.state.pods.values())

    @cached_property
    def _endpoints(self) -> Mapping[Key, Endpoints]:
        endpoints: dict[Key, Endpoints] = {}
        for key, slices in self.state.slices_by_service.items():
            endpoints[key] = Endpoints()
            for endpoint_slice in slices.values():
                endpoints[key].add(endpoint_slice)
        return endpoints

    def endpoints(self, key: Key) -> Endpoints:
        return self._endpoints.get(key) or Endpoints()

    @cached_property
    def waiting(self) -> list[SelectingService]:
        """The Services without a selector and without endpoints."""
        services = (service for service in self.state.services.values() if isinstance(service, SelectingService))
        return [
            service
            for service in services
            if not service.spec.selector and not service.is_external_name and not self.endpoints(service.key).total
        ]

    @cached_property
    def governing(self) -> frozenset[Key]:
        """The Services that are the serviceName of StatefulSets."""
        stateful_sets = (workload for workload in self.workloads if workload.kind == "StatefulSet")
        return frozenset((one.metadata.namespace, one.spec.service_name or "") for one in stateful_sets)

    def selecting(self) -> Iterator[tuple[SelectingService, Mapping[str, str]]]:
        """Yields the Services with a selector that is known."""
        for service in self.state.services.values():
            if isinstance(service, SelectingService) and service.spec.selector and not service.is_external_name:
                yield service, service.spec.selector

    @cached_property
    def _templates(self) -> PodIndex:
        """A Pod for each workload, whose name is the number of the workload."""
        return PodIndex(
            ObservedPod(PodMeta(str(number), one.metadata.namespace, labels=one.labels), spec=one.spec.template.spec)
            for number, one in enumerate(self.workloads)
        )

    def specs(self, namespace: str, selector: Mapping[str, str]) -> list[ObservedPod]:
        """Returns the Pods that a selector matches, without those that end; those of workloads before anything runs."""
        pods = self.pods.matching(namespace, selector)
        if not self.is_running:
            pods += self._templates.matching(namespace, selector)
        return [
            pod
            for pod in pods
            if isinstance(pod, ObservedPod)
            and not pod.metadata.deletion_timestamp
            and pod.status.phase not in {"Succeeded", "Failed"}
        ]

    def makers(self, namespace: str, selector: Mapping[str, str]) -> list[Workload]:
        """Returns the workloads with Pods that a selector matches; a StatefulSet's have their name and index too."""
        own = selector.keys() & OF_STATEFUL_SETS.keys()
        wanted = {label: value for label, value in selector.items() if label not in own}
        groups = self._templates.groups(namespace).values()
        pods = self._templates.matching(namespace, wanted) if wanted else [pod for group in groups for pod in group]
        makers = [self.workloads[int(pod.metadata.name)] for pod in pods]
        return [
            workload
            for workload in makers
            if not own or _is_of_stateful_set(workload, {label: selector[label] for label in own})
        ]

    @cached_property
    def dns_service(self) -> Service | None:
        """The Service of the cluster's DNS: that of the kubelets' address, else by the label, else by its name."""
        services = self.state.services
        for address in self.kubelet_dns:
            if keys := self.services_at(address):
                return services[next(iter(keys))]
        system = [service for service in services.values() if service.key[0] == "kube-system"]
        labelled = (
            service
            for service in system
            if isinstance(service, SelectingService)
            and service.metadata.labels
            and service.metadata.labels.k8s_app == "kube-dns"
            and service.virtual_ips
        )
        named = (service for service in system if service.key[1] in {"kube-dns", "coredns"})
        return next(labelled, None) or next(named, None)

    def services_at(self, address: str) -> Collection[Key]:
        return self.state.services_by_ip[packed(address)]

    @cached_property
    def pod_addresses(self) -> frozenset[str]:
        return frozenset(address for pod in self.state.pods.values() for address in pod.addresses)


def _is_of_stateful_set(workload: Workload, own: Mapping[str, str]) -> bool:
    return workload.kind == "StatefulSet" and all(
        value.startswith(OF_STATEFUL_SETS[label].format(workload.metadata.name)) for label, value in own.items()
    )
