"""Claims of Service ports to fronts: which claim gets a front, and why the others are refused.

An author of a Service may name any address in it. So some destinations are protected from external IPs, load balancers'
addresses and node ports: the API server, ssh and the kubelet of this node, the ports of protectedPorts, and at the
node's addresses the node ports and health check node ports of other Services. Other ports of the node's addresses may
be claimed, as in kube-proxy.

Of several claims to one front, that of a cluster IP has precedence over a load balancer's address, and that over an
external IP; then the oldest Service has it, among equally old ones the first by namespace and name.

No front is at an address that packets to a Service cannot have: unspecified, multicast, link-local, and, without
relays, loopback. A cluster IP is not the node's own address, because all ports of a cluster IP belong to the Service.
Addresses in a service range are excepted: a node-local cache has the cluster IP of its DNS servers.

A Service port of a protocol that the mode does not serve gets no front.

An external IP or load balancer's address may be the cluster IP of another Service, at a port that this does not use, or
the address of a Pod, as in kube-proxy. It shadows that address, which is said of its Service. `shadowing` off refuses
it.

Differs: kube-proxy serves external IPs and load balancers' addresses at loopback addresses too, and so captures traffic
between programs of a node. It protects the node's own addresses in mode ipvs, and no other destination. If two Service
ports claim one front, the one that it handles last gets it. Here an author of a Service cannot take another's traffic,
or the node's.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from kdns.cluster.objects import EndpointSlice, Key
from kdns.net import (
    MAX_PORT,
    Address,
    canonical_address,
    is_link_local_ipv6,
    may_be_special,
    parse_unmapped_address,
    special_purpose,
)
from kdns.proxy.plan.config import ProtectedPort, ProxyConfig
from kdns.proxy.plan.plan import FamilyPlan, FrontKey, FrontKind, PortName, PortPlan, Refusal

API_SERVICE: Final[Key] = ("default", "kubernetes")
"""The Service whose endpoints are the API servers."""

_RANKS: Final = {
    kind: rank
    for rank, kind in enumerate(
        (FrontKind.CLUSTER_IP, FrontKind.LOAD_BALANCER_IP, FrontKind.EXTERNAL_IP, FrontKind.NODE_PORT)
    )
}
_OUTSIDE: Final = frozenset({FrontKind.EXTERNAL_IP, FrontKind.LOAD_BALANCER_IP})
_UNKNOWN_AGE: Final = "~"
"""Sorts behind every time: a Service that cannot show its age takes nothing from one that can."""

_NodePort: TypeAlias = tuple[str, int]
"""Protocol and port at the node's addresses."""


class Claim(NamedTuple):
    """A Service port's claim to a front. Claims are ordered: the first that is not refused has the front."""

    rank: int
    created: str
    name: PortName
    kind: FrontKind


class Claims:
    """Which Service port gets a front that several claim, in one family.

    `changed` are fronts whose decision may be another than before.
    """

    def __init__(self, family_plan: FamilyPlan, config: ProxyConfig) -> None:
        self._family_plan, self._config = family_plan, config
        self._protected: dict[int, tuple[ProtectedPort, ...]] = {}
        for protected_port in config.protected_ports:
            self._protected[protected_port.port] = (*self._protected.get(protected_port.port, ()), protected_port)
        self._own = tuple(address for address in family_plan.node.addresses if address in family_plan.node_ports)
        self._of_node = frozenset(map(str, family_plan.node.addresses))
        self._api_servers: frozenset[FrontKey] = frozenset()
        self._claims: dict[FrontKey, list[Claim]] = {}
        self._outside: dict[str, dict[FrontKey, None]] = {}
        """The fronts that external IPs and load balancers' addresses claim, by address."""
        self._cluster_ips: dict[str, dict[PortName, None]] = {}
        self._endpoints: dict[str, dict[PortName, None]] = {}
        """The Service ports with endpoints at these addresses."""
        self._unexamined: set[str] = set()
        """Addresses that Service ports which were added before may have endpoints at."""
        self._at_addresses: dict[_NodePort, dict[FrontKey, None]] = {}
        self._node_ports: dict[_NodePort, dict[PortName, str]] = {}
        self.changed: dict[FrontKey, None] = {}

    def add(self, port: PortPlan) -> None:
        for key, kind in port.fronts:
            insort(self._claims.setdefault(key, []), _claim(port, kind))
            self.changed[key] = None
            if kind in _OUTSIDE:
                self._at_addresses.setdefault(key[1:], {})[key] = None
                if key.address not in self._outside:
                    self._unexamined.add(key.address)
                self._outside.setdefault(key.address, {})[key] = None
            elif kind is FrontKind.CLUSTER_IP:
                self._cluster_ips.setdefault(key.address, {})[port.name] = None
                self.changed |= self._outside.get(key.address, {})
        self._note_endpoints(port, self._outside)
        for node_port, what in _node_ports(port):
            self._node_ports.setdefault(node_port, {})[port.name] = what
            self.changed |= self._at_addresses.get(node_port, {})

    def remove(self, port: PortPlan) -> None:
        for key, kind in port.fronts:
            claims = self._claims[key]
            del claims[bisect_left(claims, _claim(port, kind))]
            if not claims:
                del self._claims[key]
                if keys := self._at_addresses.get(key[1:]):
                    keys.pop(key, None)
                outside = self._outside.get(key.address, {})
                outside.pop(key, None)
                if not outside:
                    self._outside.pop(key.address, None)
                    self._endpoints.pop(key.address, None)
            self.changed[key] = None
            if kind is FrontKind.CLUSTER_IP:
                names = self._cluster_ips[key.address]
                names.pop(port.name)
                self.changed |= self._outside.get(key.address, {})
                if not names:
                    del self._cluster_ips[key.address]
        for address in _addresses(port) if self._endpoints else ():
            names = self._endpoints.get(address, {})
            if port.name in names:
                del names[port.name]
                self.changed |= self._outside[address]
        for node_port, _ in _node_ports(port):
            self._node_ports[node_port].pop(port.name, None)
            self.changed |= self._at_addresses.get(node_port, {})

    def protect_api_servers(self, slices: Iterable[EndpointSlice]) -> None:
        fronts = frozenset(_api_servers(slices))
        for key in self._api_servers ^ fronts:
            self.changed |= {front: None for front in (key, key._replace(address="")) if front in self._claims}
        self._api_servers = fronts

    def examine(self, ports: Iterable[PortPlan]) -> None:
        """Looks for endpoints at new addresses among all Service ports; `decision` depends on it."""
        if addresses := {address: None for address in self._unexamined if address in self._outside}:
            for port in ports:
                self._note_endpoints(port, addresses)
        self._unexamined.clear()

    def _note_endpoints(self, port: PortPlan, addresses: Collection[str]) -> None:
        for address in _addresses(port) if addresses else ():
            if address in addresses:
                self._endpoints.setdefault(address, {})[port.name] = None
                self.changed |= self._outside[address]

    def shadowed(self, key: FrontKey, claim: Claim) -> str:
        """Returns what else is at the address of a claim from outside, in words; "" for nothing."""
        if claim.kind not in _OUTSIDE:
            return ""
        for owners, what in (self._cluster_ips, "the cluster IP"), (self._endpoints, "an endpoint"):
            names = owners.get(key.address, ())
            others = [name[:2] for name in names if what == "an endpoint" or name[:2] != claim.name[:2]]
            if others:
                return f"{what} of {'/'.join(min(others))}"
        address = parse_unmapped_address(key.address)
        networks = self._config.local_pods.networks if self._config.local_pods else ()
        network = next((pod_network for pod_network in networks if address and address in pod_network), None)
        return f"an address of Pods, which are in {network}" if network else ""

    def decision(self, key: FrontKey) -> tuple[Claim | None, tuple[Refusal, ...]]:
        winner, refusals = None, []
        for claim in self._claims.get(key, ()):
            reason = self._protection(key, claim) or (_precedence(winner, claim) if winner else "")
            if reason:
                refusals.append(Refusal(claim.name, claim.kind, reason))
            else:
                winner = claim
        return winner, tuple(refusals)

    def _protection(self, key: FrontKey, claim: Claim) -> str:
        """Returns why this claim is refused, whatever others there are; "" if it is not."""
        if not 0 < key.port <= MAX_PORT:
            return f"{key.port} is not a port from 1 to {MAX_PORT}"
        if key.protocol not in (mode := self._family_plan.mode).protocols:
            return f"mode {mode.name} serves {' and '.join(sorted(mode.protocols))}, not {key.protocol}"
        if claim.kind is FrontKind.EXTERNAL_IP and not self._config.external_ips:
            return "the feature gate AllowServiceExternalIPs is off"
        for address in self._addresses(key):
            if key.address and (kind := self._unusable(address, claim.kind)):
                return f"{key.address} is {kind}"
            for protected_port in self._protected.get(key.port, ()):
                if protected_port.protocol in {"", key.protocol} and self._covers(protected_port, address):
                    return f"it is {protected_port.owner}"
            if (key if key.address else key._replace(address=str(address))) in self._api_servers:
                return "it is the API server"
            if key.address and address in self._family_plan.node_ports:
                owners = self._node_ports.get(key[1:], {})
                others = [(name, what) for name, what in owners.items() if name[:2] != claim.name[:2]]
                for name, what in sorted(others)[:1]:
                    return f"it is the {what} of Service {name}"
        if not self._config.shadowing and (shadowed := self.shadowed(key, claim)):
            return f"it shadows {shadowed}, and the feature gate AllowAddressShadowing is off"
        return ""

    def _unusable(self, address: Address, kind: FrontKind) -> str:
        """Returns why an address cannot be such a front's, in words; "" if it can."""
        if address.is_loopback:
            return "" if self._family_plan.mode.relays else "a loopback address"
        if purpose := special_purpose(address):
            return purpose
        if kind is not FrontKind.CLUSTER_IP or not self._family_plan.node.has(address):
            return ""
        is_of_services = any(
            address in service_cidr
            for service_cidr in self._config.service_cidrs
            if service_cidr.version == address.version
        )
        return "" if is_of_services and address not in self._family_plan.node.primary else "an address of this node"

    def _addresses(self, key: FrontKey) -> tuple[Address, ...]:
        """Returns the addresses of a front that may be protected; those of a node port are the node's."""
        if not key.address:
            return self._own
        is_of_somebody = key.address in self._of_node or key.port in self._protected or key in self._api_servers
        if not is_of_somebody and not may_be_special(key.address):
            return ()  # without parsing: most of 10,000
        address = parse_unmapped_address(key.address)
        return (address,) if address else ()

    def _covers(self, protected: ProtectedPort, address: Address) -> bool:
        if protected.network is None:
            return self._family_plan.node.has(address) or is_link_local_ipv6(address)
        return address in protected.network


def _addresses(port: PortPlan) -> Iterator[str]:
    for endpoints in (port.endpoints.cluster, port.endpoints.local):
        yield from (endpoint.address for endpoint in endpoints)


def _claim(port: PortPlan, kind: FrontKind) -> Claim:
    return Claim(_RANKS[kind], port.created or _UNKNOWN_AGE, port.name, kind)


def _node_ports(port: PortPlan) -> Iterator[tuple[_NodePort, str]]:
    if port.health_check_port:
        yield ("TCP", port.health_check_port), "health check node port"
    for key, kind in port.fronts:
        if kind is FrontKind.NODE_PORT:
            yield key[1:], FrontKind.NODE_PORT.value


def _api_servers(slices: Iterable[EndpointSlice]) -> Iterator[FrontKey]:
    for endpoint_slice in slices:
        addresses = [
            canonical_address(text) for endpoint in endpoint_slice.endpoints or () for text in endpoint.addresses
        ]
        for port in endpoint_slice.ports or ():
            yield from (FrontKey(address, port.protocol or "TCP", port.port or 0) for address in addresses)


def _precedence(winner: Claim, claim: Claim) -> str:
    if winner.rank != claim.rank:
        return f"it is the {winner.kind.value} of Service {winner.name}"
    if winner.created != claim.created:
        return f"Service {winner.name} has it, which is older"
    return f"Service {winner.name} has it, which is as old and comes first by name"
