"""Where the node ports of one node are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import collapse_addresses

from kdns.net import (
    VERSION,
    Address,
    Family,
    Network,
    is_link_local_ipv6,
    parse_network,
    parse_unmapped_address,
)
from kdns.proxy.plan.config import EVERYWHERE, PRIMARY, NodeView, ProxyConfig


@dataclass(frozen=True, slots=True)
class NodePortAddresses:
    """The local addresses of one family at which node ports are served: those in `networks`, which do not overlap.

    `has_loopback`: loopback addresses in these networks count too; `has_link_local`: IPv6 link-local ones do.
    No networks: node ports are not served at all.
    """

    family: Family
    node: NodeView
    networks: tuple[Network, ...] = ()
    has_loopback: bool = False
    has_link_local: bool = True

    @property
    def is_everywhere(self) -> bool:
        """Whether every address of the node counts, but perhaps for loopback ones."""
        return any(network.prefixlen == 0 for network in self.networks)

    def __contains__(self, address: Address) -> bool:
        """Returns whether a packet to this address can be for a node port.

        IPv6 link-local addresses are not among the node's, but a packet to one that arrives here is for this node.
        """
        is_own = self.node.has(address) or (self.has_link_local and is_link_local_ipv6(address))
        if not is_own or address.version != VERSION[self.family]:
            return False
        if address.is_loopback and not self.has_loopback:
            return False
        return any(address in network for network in self.networks)

    def listen_addresses(self, *, loopback: bool) -> tuple[str, ...]:
        """Returns the addresses to listen on, the wildcard where every address counts.

        With those of `loopback` or without.
        """
        is_ipv4 = self.family == "IPv4"
        if self.is_everywhere:
            return ("0.0.0.0" if is_ipv4 else "::",)
        localhost = parse_unmapped_address("127.0.0.1" if is_ipv4 else "::1") if loopback else None
        own = (*self.node.addresses, *((localhost,) if localhost else ()))
        return tuple(dict.fromkeys(str(address) for address in own if address in self))


def node_port_addresses(family: Family, config: ProxyConfig, node: NodeView) -> NodePortAddresses:
    """Returns the addresses of nodePortAddresses on this node (kube-proxy, pkg/proxy/util/nodeport_addresses.go)."""
    has_loopback = config.localhost_node_ports and family in config.mode.loopback_node_ports
    networks: tuple[Network, ...] = tuple(collapse_addresses(_networks(family, config, node)))  # type: ignore[type-var]
    return NodePortAddresses(family, node, networks, has_loopback, config.mode.link_local_node_ports)


def _networks(family: Family, config: ProxyConfig, node: NodeView) -> Iterator[Network]:
    """Yields the networks of one family: all of it if nothing names an address of the family.

    `primary` names one of each family, also on a node without an address of that family.
    """
    restrictions = config.node_port_addresses if config.mode.restricts_node_ports else ()
    networks = [
        restriction
        for restriction in restrictions
        if not isinstance(restriction, str) and restriction.version == VERSION[family]
    ]
    yield from networks
    if PRIMARY in restrictions:
        for address in node.primary:
            if address.version == VERSION[family] and (network := parse_network(str(address))):
                yield network
    elif not networks:
        yield EVERYWHERE[family]
