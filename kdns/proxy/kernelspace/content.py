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
from typing import Final

from kdns.net import VERSION, parse_unmapped_address
from kdns.proxy.kernelspace.requests import Request, pairs, requests
from kdns.proxy.kernelspace.schema import (
    PROTOCOLS,
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
from kdns.proxy.kernelspace.settings import WindowsNetwork
from kdns.proxy.plan.endpoints import ServiceEndpoint
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKey, FrontKind
from kdns.proxy.plan.planner import Difference

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


class Content:
    """One family's endpoints and load balancers, which follow the family's plan. One event loop owns it.

    `missing` are the addresses of endpoints on this node that HCN does not have: they are left out.
    """

    def __init__(self, family_plan: FamilyPlan, node: NodeNetwork) -> None:
        self.family_plan, self.node = family_plan, node
        self._of_fronts = {key: self._objects(front) for key, front in family_plan.fronts.items()}
        self._merge()

    def _merge(self) -> None:
        """Gathers the objects of all fronts. A front comes before health checks at its destination."""
        self.load_balancers: dict[LoadBalancerKey, HostComputeLoadBalancer] = {}
        self.endpoints: dict[str, HostComputeEndpoint] = {}
        self.missing: set[str] = set()
        for objects in self._of_fronts.values():
            for rank, (key, balancer) in enumerate(objects.load_balancers):
                if rank == 0 or key not in self.load_balancers:
                    self.load_balancers[key] = balancer
            for endpoint in objects.endpoints:
                known = self.endpoints.setdefault(endpoint.addresses[0], endpoint)
                if known != endpoint:  # whatever came first
                    self.endpoints[endpoint.addresses[0]] = min(known, endpoint, key=repr)
            self.missing.update(objects.missing)

    def follow(self, family_plan: FamilyPlan, difference: Difference) -> tuple[Request, ...]:
        """The requests that lead to this plan of the same node. Their number is that of the difference."""
        self.family_plan = family_plan
        for key, (_, new) in difference.fronts.items():
            self._of_fronts.pop(key, None)
            if new:
                self._of_fronts[key] = self._objects(new)
        endpoints, load_balancers = self.endpoints, self.load_balancers
        self._merge()
        return tuple(requests(pairs(endpoints, self.endpoints), pairs(load_balancers, self.load_balancers)))

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
            bool(front.port.affinity_s),
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
        return self._endpoint(address, mac_address(address), provider, is_remote=True)

    def _overlay_endpoints(self, front: Front) -> Iterator[HostComputeEndpoint]:
        """The source VIP, and the cluster IP as an address of this node."""
        mac, source_vip = self.node.host_mac, self.node.settings.source_vip
        if source_vip and source_vip not in self.node.endpoints:
            yield self._endpoint(source_vip, mac, "", is_remote=False)
        if front.kind is FrontKind.CLUSTER_IP and front.key.address not in self.node.endpoints:
            yield self._endpoint(front.key.address, mac, self._node_address, is_remote=True)

    def _endpoint(self, address: str, mac: str, provider: str, *, is_remote: bool) -> HostComputeEndpoint:
        network = self.node.network
        return HostComputeEndpoint(endpoint_id(network.name, address), network.id, (address,), mac, provider, is_remote)
