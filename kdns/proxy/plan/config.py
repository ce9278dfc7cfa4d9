"""The plan's inputs beside the cluster's objects: configuration, node, detection of local Pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Final, Literal, NamedTuple

from kdns.net import VERSION, Address, Family, Network
from kdns.proxy.plan.semantics import Semantics

PRIMARY: Final = "primary"
"""In nodePortAddresses: the primary addresses of the node. The plan knows the node, so it resolves this keyword."""
LOOPBACK: Final[Mapping[Family, Network]] = {"IPv4": ip_network("127.0.0.0/8"), "IPv6": ip_network("::1/128")}
EVERYWHERE: Final[Mapping[Family, Network]] = {"IPv4": ip_network("0.0.0.0/0"), "IPv6": ip_network("::/0")}


@dataclass(frozen=True, slots=True)
class LocalPods:
    """How packets of this node's Pods are detected (detectLocalMode): by their source or by the interface of arrival.

    One of the three is set. `interface_prefix` is a prefix of the interface's name.
    """

    networks: tuple[Network, ...] = ()
    bridge: str = ""
    interface_prefix: str = ""

    def of(self, family: Family) -> LocalPods | None:
        """Returns the detection in one family; None if Pods cannot be detected. Only the first network is used."""
        if self.bridge or self.interface_prefix:
            return self
        own = tuple(network for network in self.networks if network.version == VERSION[family])
        return LocalPods(own[:1]) if own else None

    def matches(self, source: Address, interface: str) -> bool:
        """Returns whether a packet with this source that arrived on this interface is from a Pod of this node."""
        if self.bridge:
            return interface == self.bridge
        if self.interface_prefix:
            return interface.startswith(self.interface_prefix)
        return any(source in network for network in self.networks)


@dataclass(frozen=True, slots=True)
class NodeView:
    """The node. `addresses` are all that are local to its kernel, without ::1, 127.0.0.0/8 and fe80::/10.

    `primary` are the addresses that the Node object reports, at most one per family.
    """

    name: str = ""
    zone: str = ""
    primary: tuple[Address, ...] = ()
    addresses: tuple[Address, ...] = ()

    def has(self, address: Address) -> bool:
        return address.is_loopback or address in self.addresses


class ProtectedPort(NamedTuple):
    """A destination that no Service gets by an external IP, a load balancer's address or a node port.

    `owner` says in messages what it is. `protocol` "" means all; `network` None means the node's own addresses.
    """

    owner: str
    port: int
    protocol: str = ""
    network: Network | None = None


OF_THE_NODE: Final = (
    ProtectedPort("ssh of this node", 22, "TCP"),
    ProtectedPort("the kubelet of this node", 10250, "TCP"),
)


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """The settings that the plan depends on, named as in KubeProxyConfiguration.

    `node_port_addresses`: networks and PRIMARY; empty for every address of the node. `service_cidrs`: empty where
    they are not known. `node_hints` is the feature gate PreferSameTrafficDistribution, `external_ips` is
    AllowServiceExternalIPs, `shadowing` is AllowAddressShadowing. The endpoints of the Service `kubernetes` are
    protected beside `protected_ports`. `chosen_by` says how one of several endpoints is chosen, "" by chance.
    `is_whole_cluster`: there are no other machines, as with `kdns up`, so endpoints at loopback addresses are right.
    """

    mode: Semantics
    masquerade_all: bool = False
    local_pods: LocalPods | None = None
    node_port_addresses: tuple[Network | Literal["primary"], ...] = (PRIMARY,)
    localhost_node_ports: bool = True
    service_cidrs: tuple[Network, ...] = ()
    node_hints: bool = True
    external_ips: bool = True
    shadowing: bool = True
    protected_ports: tuple[ProtectedPort, ...] = OF_THE_NODE
    chosen_by: str = ""
    is_whole_cluster: bool = False
