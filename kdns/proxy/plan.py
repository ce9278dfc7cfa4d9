"""What every virtual IP does on this node, decided once for all modes: the plan that renderers and the tracer read.

A plan has one half per IP family. A half maps fronts, that is addresses (or the node, for node ports) with protocol
and port, to the Service port behind them. Service ports hold the decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kdns.proxy.backends import Backend, Backends
from kdns.proxy.config import VERSION, Address, Family, LocalPods, Mode, Network, NodeView, is_link_local_ipv6


class PortName(NamedTuple):
    """One port of one Service; `port` is its name, "" for the only one."""

    namespace: str
    service: str
    port: str
    protocol: str

    def __str__(self) -> str:
        """As kube-proxy writes it in logs and comments: namespace/service:port."""
        return f"{self.namespace}/{self.service}" + (f":{self.port}" if self.port else "")


class Verdict(Enum):
    """What happens to a packet: the list its backend comes from, or why it gets none."""

    CLUSTER = "cluster"
    LOCAL = "local"
    REJECT = "reject"
    DROP = "drop"


class Masquerade(Enum):
    """Whose packets leave with the node's address as source: all, all but those of local Pods, or nobody's."""

    ALL = "all"
    NOT_LOCAL_PODS = "not local pods"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Route:
    """What happens to packets from one side.

    `short_circuit` (external policy Local): packets of local Pods go to the cluster list as they are, packets of the
    node itself go there masqueraded, whatever the verdict says of others.
    """

    verdict: Verdict
    masquerade: Masquerade = Masquerade.NONE
    short_circuit: bool = False


class FrontKind(Enum):
    """How a packet found the Service."""

    CLUSTER_IP = "cluster IP"
    EXTERNAL_IP = "external IP"
    LOAD_BALANCER_IP = "load balancer IP"
    NODE_PORT = "node port"


class FrontKey(NamedTuple):
    """Destination of a packet; `address` is "" for node ports."""

    address: str
    protocol: str
    port: int


@dataclass(frozen=True, slots=True)
class PortPlan:
    """All decisions for one Service port in one family.

    `source_ranges` guard the load balancer's addresses; empty: everybody may. `affinity_s` is 0 for none.
    `health_check_port` is where load balancers ask for local endpoints, 0 for nowhere. `proxy_protocol` is the version,
    "v1" or "v2", in which a relay tells endpoints of clients of the load balancer's addresses, or "". `serving`
    are a UDP port's endpoints on whatever node that still answer, chosen or not.
    """

    name: PortName
    internal: Route
    external: Route
    backends: Backends
    fronts: tuple[tuple[FrontKey, FrontKind], ...]
    source_ranges: tuple[Network, ...] = ()
    affinity_s: int = 0
    health_check_port: int = 0
    proxy_protocol: str = ""
    serving: tuple[Backend, ...] = ()

    def route(self, kind: FrontKind) -> Route:
        """What happens to packets that came to a front of this kind."""
        return self.internal if kind is FrontKind.CLUSTER_IP else self.external


@dataclass(frozen=True, slots=True)
class Front:
    """One destination and the Service port that has it."""

    key: FrontKey
    kind: FrontKind
    port: PortPlan

    @property
    def route(self) -> Route:
        """What happens to packets for it."""
        return self.port.route(self.kind)

    @property
    def source_ranges(self) -> tuple[Network, ...]:
        """Who may send here; empty for everybody."""
        return self.port.source_ranges if self.kind is FrontKind.LOAD_BALANCER_IP else ()


@dataclass(frozen=True, slots=True)
class FamilyPlan:
    """One family's half. `node_port_networks` are networks whose local addresses have node ports."""

    family: Family
    mode: Mode
    node: NodeView
    ports: Mapping[PortName, PortPlan] = field(default_factory=dict)
    fronts: Mapping[FrontKey, Front] = field(default_factory=dict)
    cluster_ips: Mapping[str, int] = field(default_factory=dict)
    cluster_ip_masquerade: Masquerade = Masquerade.NONE
    local_pods: LocalPods | None = None
    node_port_networks: tuple[Network, ...] = ()
    localhost_node_ports: bool = False
    service_cidrs: tuple[Network, ...] = ()

    def serves_node_ports_at(self, address: Address) -> bool:
        """Whether packets to this address can be for a node port.

        Nobody has counted the node's IPv6 link-local addresses; who comes with a packet to one has come to the node.
        """
        is_own = self.node.has(address) or is_link_local_ipv6(address)
        if not is_own or address.version != VERSION[self.family]:
            return False
        if address.is_loopback and not self.localhost_node_ports:
            return False
        return any(address in network for network in self.node_port_networks)

    @property
    def health_check_ports(self) -> frozenset[int]:
        """Node ports that the firewall opens for health checks."""
        return frozenset(port.health_check_port for port in self.ports.values()) - {0}


@dataclass(frozen=True, slots=True)
class Plan:
    """Both families."""

    ipv4: FamilyPlan
    ipv6: FamilyPlan

    def of(self, family: Family) -> FamilyPlan:
        """One half."""
        return self.ipv4 if family == "IPv4" else self.ipv6
