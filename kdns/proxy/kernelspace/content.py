"""The desired endpoints and load balancers of one family of a plan, and the requests from one plan to the next.

A front with endpoints is one load balancer. Its flags are kube-proxy's (pkg/proxy/winkernel/proxier.go): DSR for
packets that are not masqueraded, LocalRoutedVIP for node ports, and VipExternalIP for all fronts but cluster IPs.

HCN has endpoints of this node's Pods from the CNI plugin, with ids of its own. Endpoints of other nodes are created
here. On an overlay network, cluster IPs and the source VIP have endpoints too.

Differs: kube-proxy forwards the health checks of a load balancer IP with the protocol of the Service port; here it is
TCP, as /healthz is HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar

from kdns.net import VERSION, parse_unmapped_address
from kdns.proxy.kernelspace.mode import WindowsNetwork
from kdns.proxy.kernelspace.requests import Request, requests
from kdns.proxy.kernelspace.schema import (
    PROTOCOLS,
    Distribution,
    EndpointFlags,
    HostComputeEndpoint,
    HostComputeLoadBalancer,
    HostComputeNetwork,
    LoadBalancerFlags,
    LoadBalancerKey,
    PortMapping,
    PortMappingFlags,
    endpoint_id,
    load_balancer_id,
    mac_address,
)
from kdns.proxy.plan.endpoints import ServiceEndpoint
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKey, FrontKind
from kdns.proxy.plan.planner import Difference

K = TypeVar("K")
V = TypeVar("V")
Owner: TypeAlias = tuple[int, FrontKey]
"""A front with the rank of its value: health checks have the second rank."""

_FLAGS: Final = {
    FrontKind.CLUSTER_IP: PortMappingFlags.NONE,
    FrontKind.NODE_PORT: PortMappingFlags.LOCAL_ROUTED_VIP | PortMappingFlags.VIP_EXTERNAL_IP,
    FrontKind.EXTERNAL_IP: PortMappingFlags.VIP_EXTERNAL_IP,
    FrontKind.LOAD_BALANCER_IP: PortMappingFlags.VIP_EXTERNAL_IP,
}


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """What HCN has on this node: the Pods' network, and the ids of endpoints that kdns did not create, by address.

    `host_mac` is the node's MAC address on an overlay network. `gateway` is the id of the endpoint for health checks of
    load balancers, "" without.
    """

    network: HostComputeNetwork
    host_mac: str = ""
    endpoints: Mapping[str, str] = field(default_factory=dict)
    gateway: str = ""
    settings: WindowsNetwork = field(default_factory=WindowsNetwork)


@dataclass(frozen=True, slots=True)
class _FrontObjects:
    """The objects of one front, and the addresses of endpoints that HCN does not have."""

    load_balancers: tuple[tuple[LoadBalancerKey, HostComputeLoadBalancer], ...] = ()
    endpoints: tuple[HostComputeEndpoint, ...] = ()
    missing: tuple[str, ...] = ()


class _Shared(Generic[K, V]):
    """Values that fronts need, by key. Of different values for one key, that of the first owner is used."""

    def __init__(self) -> None:
        self.values: dict[K, V] = {}
        self._owners: dict[K, dict[Owner, V]] = {}
        self._before: dict[K, V | None] = {}

    def add(self, owner: Owner, key: K, value: V) -> None:
        self._before.setdefault(key, self.values.get(key))
        owners = self._owners.setdefault(key, {})
        owners[owner] = value
        self.values[key] = owners[min(owners)]

    def remove(self, owner: Owner, key: K) -> None:
        self._before.setdefault(key, self.values.get(key))
        owners = self._owners[key]
        del owners[owner]
        if owners:
            self.values[key] = owners[min(owners)]
        else:
            del self.values[key], self._owners[key]

    def changes(self) -> list[tuple[V | None, V | None]]:
        """Values before and after the changes since the last call."""
        before, self._before = self._before, {}
        return [(value, self.values.get(key)) for key, value in before.items()]


class Content:
    """One family's endpoints and load balancers, which follow the family's plan. One event loop owns it.

    `missing` are the addresses of endpoints on this node that HCN does not have, by front: they are left out.
    """

    def __init__(self, family_plan: FamilyPlan, node: NodeNetwork) -> None:
        self.family_plan, self.node = family_plan, node
        self.missing: dict[FrontKey, tuple[str, ...]] = {}
        self._load_balancers = _Shared[LoadBalancerKey, HostComputeLoadBalancer]()
        self._endpoints = _Shared[str, HostComputeEndpoint]()
        self._of_fronts: dict[FrontKey, _FrontObjects] = {}
        for front in family_plan.fronts.values():
            self._add(front)
        self._requests()

    @property
    def load_balancers(self) -> Mapping[LoadBalancerKey, HostComputeLoadBalancer]:
        return self._load_balancers.values

    @property
    def endpoints(self) -> Mapping[str, HostComputeEndpoint]:
        return self._endpoints.values

    def follow(self, family_plan: FamilyPlan, difference: Difference) -> tuple[Request, ...]:
        """The requests that lead to this plan of the same node. Their number is that of the difference."""
        self.family_plan = family_plan
        for key, (_, new) in difference.fronts.items():
            self._remove(key)
            if new:
                self._add(new)
        return self._requests()

    def knows(self, endpoint: ServiceEndpoint) -> bool:
        """Whether HCN had this endpoint, or what its creation needs, when the node's network was read."""
        if endpoint.address in self.node.endpoints or self._has_no_ipv6:
            return True
        if endpoint.is_local or not self.node.network.is_overlay:
            return not endpoint.is_local
        return endpoint.address in self.endpoints or bool(self._provider(endpoint.address)[1])

    def front_at(self, key: LoadBalancerKey) -> Front | None:
        """None for a load balancer that forwards health checks."""
        protocol = next(name for name, number in PROTOCOLS.items() if number == key.protocol)
        return self.family_plan.fronts.get(FrontKey(key.vip, protocol, key.port))

    def _requests(self) -> tuple[Request, ...]:
        return tuple(requests(self._endpoints.changes(), self._load_balancers.changes()))

    def _add(self, front: Front) -> None:
        found = self._objects(front)
        self._of_fronts[front.key] = found
        for rank, (balancer_key, balancer) in enumerate(found.load_balancers):
            self._load_balancers.add((rank, front.key), balancer_key, balancer)
        for endpoint in found.endpoints:
            self._endpoints.add((0, front.key), endpoint.addresses[0], endpoint)
        if found.missing:
            self.missing[front.key] = found.missing

    def _remove(self, key: FrontKey) -> None:
        found = self._of_fronts.pop(key, _FrontObjects())
        for rank, (balancer_key, _) in enumerate(found.load_balancers):
            self._load_balancers.remove((rank, key), balancer_key)
        for endpoint in found.endpoints:
            self._endpoints.remove((0, key), endpoint.addresses[0])
        self.missing.pop(key, None)

    def _objects(self, front: Front) -> _FrontObjects:
        """Empty if the front has no endpoints, or none of them is in HCN."""
        used = front.port.endpoints_of(front.lists[0]) if front.lists and not self._has_no_ipv6 else ()
        ids: list[str] = []
        endpoints: list[HostComputeEndpoint] = []
        missing: list[str] = []
        for endpoint in used:
            if existing := self.node.endpoints.get(endpoint.address):
                ids.append(existing)
            elif endpoint.is_local:
                missing.append(endpoint.address)
            else:
                endpoints.append(self._remote_endpoint(endpoint.address))
                ids.append(endpoints[-1].id)
        if not ids:
            return _FrontObjects(missing=tuple(missing))
        balancers = [self._load_balancer(front, ids, used)]
        port = front.port.health_check_port or self.node.settings.healthz_port
        if front.kind is FrontKind.LOAD_BALANCER_IP and self.node.gateway and port:
            balancers.append(self._health_check(front, port))
        if self.node.network.is_overlay:
            endpoints += self._overlay_endpoints(front)
        return _FrontObjects(tuple(balancers), tuple(endpoints), tuple(missing))

    @property
    def _has_no_ipv6(self) -> bool:
        """Overlay networks of Windows have no IPv6."""
        return self.node.network.is_overlay and self.family_plan.family == "IPv6"

    def _load_balancer(
        self, front: Front, ids: list[str], used: tuple[ServiceEndpoint, ...]
    ) -> tuple[LoadBalancerKey, HostComputeLoadBalancer]:
        mapping = PortMapping(
            PROTOCOLS[front.key.protocol],
            used[0].port,
            front.key.port,
            Distribution.SOURCE_IP if front.port.affinity_s else Distribution.NONE,
            _FLAGS[front.kind],
        )
        flags = LoadBalancerFlags.NONE if front.branches[-1].masquerade else LoadBalancerFlags.DSR
        return self._at(front.key.address, ids, mapping, flags, self._source_vip(used))

    def _health_check(self, front: Front, port: int) -> tuple[LoadBalancerKey, HostComputeLoadBalancer]:
        """Forwards health checks at a load balancer IP to the node itself."""
        mapping = PortMapping(PROTOCOLS["TCP"], port, port)
        source_vip = self.node.settings.source_vip if self.node.network.is_overlay else ""
        return self._at(front.key.address, [self.node.gateway], mapping, LoadBalancerFlags.NONE, source_vip)

    def _at(
        self, vip: str, ids: list[str], mapping: PortMapping, flags: LoadBalancerFlags, source_vip: str
    ) -> tuple[LoadBalancerKey, HostComputeLoadBalancer]:
        family = self.family_plan.family
        key = LoadBalancerKey(family, vip, mapping.protocol, mapping.external_port)
        flags |= LoadBalancerFlags.IPV6 if family == "IPv6" else LoadBalancerFlags.NONE
        vips = (vip,) if vip else ()
        balancer = HostComputeLoadBalancer(
            load_balancer_id(key), tuple(sorted(ids)), vips, (mapping,), source_vip, flags
        )
        return key, balancer

    def _source_vip(self, used: tuple[ServiceEndpoint, ...]) -> str:
        """The source of translated packets on an overlay network, "" on others.

        It is the node's address if some endpoint is another node or outside of the cluster: such endpoints have no
        route to the addresses of Pods.
        """
        if not self.node.network.is_overlay:
            return ""
        remote = (self._provider(endpoint.address) for endpoint in used if not endpoint.is_local)
        is_outside = any(provider in {"", address} for address, provider in remote)
        return self._node_address if is_outside else self.node.settings.source_vip

    def _provider(self, text: str) -> tuple[str, str]:
        address = parse_unmapped_address(text)
        return text, self.node.network.provider_address(address) if address else ""

    @property
    def _node_address(self) -> str:
        own = (
            address for address in self.family_plan.node.primary if address.version == VERSION[self.family_plan.family]
        )
        return str(next(own, ""))

    def _remote_endpoint(self, address: str) -> HostComputeEndpoint:
        provider = ""
        if self.node.network.is_overlay:
            provider = self._provider(address)[1] or self._node_address
        return self._endpoint(address, mac_address(address), provider, EndpointFlags.REMOTE_ENDPOINT)

    def _overlay_endpoints(self, front: Front) -> Iterator[HostComputeEndpoint]:
        """The source VIP, and the cluster IP as an address of this node."""
        mac, source_vip = self.node.host_mac, self.node.settings.source_vip
        if source_vip and source_vip not in self.node.endpoints:
            yield self._endpoint(source_vip, mac, "", EndpointFlags.NONE)
        if front.kind is FrontKind.CLUSTER_IP and front.key.address not in self.node.endpoints:
            yield self._endpoint(front.key.address, mac, self._node_address, EndpointFlags.REMOTE_ENDPOINT)

    def _endpoint(self, address: str, mac: str, provider: str, flags: EndpointFlags) -> HostComputeEndpoint:
        network = self.node.network
        return HostComputeEndpoint(endpoint_id(network.name, address), network.id, (address,), mac, provider, flags)
