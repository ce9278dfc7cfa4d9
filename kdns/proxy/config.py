"""What a node's dataplane is told beside the cluster's objects: its mode, its node, who is local, which node ports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Literal, TypeAlias

Family: TypeAlias = Literal["IPv4", "IPv6"]
Network: TypeAlias = IPv4Network | IPv6Network
Address: TypeAlias = IPv4Address | IPv6Address

FAMILIES: Final[tuple[Family, ...]] = ("IPv4", "IPv6")
VERSION: Final[Mapping[Family, int]] = {"IPv4": 4, "IPv6": 6}
_CANONICAL_IPV4: Final = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!$)|$)){4}")
"""Most addresses are such; to parse one takes twenty times as long."""
_MAPPED_BITS: Final = 96
_PADDING: Final = re.compile(r"(?<![0-9A-Fa-f])0+(?=[0-9])")
PRIMARY: Final = "primary"
"""In nodePortAddresses: the node's own addresses, those that it is known by."""


@dataclass(frozen=True, slots=True)
class Mode:
    """How the modes differ in what happens to a packet; everything else is alike.

    `guards_without_endpoints`: source ranges drop also where there is no endpoint to protect.
    `rejects_undefined_ports`: a port that no Service defines on a cluster IP in use is refused.
    `drops_unallocated`: packets to the service ranges that are no cluster IP are dropped.
    `hairpin_everywhere`: an endpoint that reaches itself is masqueraded, whether it is on this node or not.
    `localhost_node_ports`: node ports can be reached at 127.0.0.1.
    `accepts_health_checks`: the firewall is opened for health check node ports.
    `relays`: connections end at this node and others go on to the endpoints, which see the node's address; no SCTP.
    """

    name: str
    guards_without_endpoints: bool = False
    rejects_undefined_ports: bool = False
    drops_unallocated: bool = False
    hairpin_everywhere: bool = False
    localhost_node_ports: bool = False
    accepts_health_checks: bool = False
    relays: bool = False


NFTABLES: Final = Mode("nftables", guards_without_endpoints=True, rejects_undefined_ports=True, drops_unallocated=True)
IPTABLES: Final = Mode("iptables", hairpin_everywhere=True, localhost_node_ports=True, accepts_health_checks=True)
USERSPACE: Final = Mode(
    "userspace",
    guards_without_endpoints=True,
    rejects_undefined_ports=True,
    drops_unallocated=True,
    localhost_node_ports=True,
    relays=True,
)


@dataclass(frozen=True, slots=True)
class LocalPods:
    """How a packet of one of this node's Pods is known: by its source, or by the interface it comes in on.

    One of the three is set. `interface_prefix` matches the beginning of the interface's name.
    """

    networks: tuple[Network, ...] = ()
    bridge: str = ""
    interface_prefix: str = ""

    def of(self, family: Family) -> LocalPods | None:
        """What of it works in one family; None when nothing tells local Pods from others there."""
        if self.bridge or self.interface_prefix:
            return self
        mine = tuple(network for network in self.networks if network.version == VERSION[family])
        return LocalPods(mine[:1]) if mine else None

    def matches(self, source: Address, interface: str) -> bool:
        """Whether a packet with this source that arrived on this interface is from a Pod of this node."""
        if self.bridge:
            return interface == self.bridge
        if self.interface_prefix:
            return interface.startswith(self.interface_prefix)
        return any(source in network for network in self.networks)


@dataclass(frozen=True, slots=True)
class NodeView:
    """The node as the dataplane sees it. `addresses` are all that the kernel calls local, but ::1, 127/8 and fe80::/10.

    `primary` are those the Node object reports, at most one per family.
    """

    name: str = ""
    zone: str = ""
    primary: tuple[Address, ...] = ()
    addresses: tuple[Address, ...] = ()

    def has(self, address: Address) -> bool:
        """Whether packets to this address are for the node itself."""
        return address.is_loopback or address in self.addresses


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """Settings that the plan depends on; the words are KubeProxyConfiguration's.

    `node_port_addresses` empty means every address of the node; `service_cidrs` empty means that they are not known.
    `node_hints` is the feature gate PreferSameTrafficDistribution.
    """

    mode: Mode = NFTABLES
    masquerade_all: bool = False
    local_pods: LocalPods | None = None
    node_port_addresses: tuple[Network | Literal["primary"], ...] = (PRIMARY,)
    localhost_node_ports: bool = True
    service_cidrs: tuple[Network, ...] = ()
    node_hints: bool = True


def is_link_local_ipv6(address: Address) -> bool:
    """Whether the address is one of fe80::/10, which means something on its link only and is never forwarded."""
    return address.version == VERSION["IPv6"] and address.is_link_local


def family_of(address: Address) -> Family:
    """The family as the API spells it."""
    return "IPv4" if address.version == VERSION["IPv4"] else "IPv6"


def parsed_address(text: str) -> Address | None:
    """The address, or None for text that is none; one with a zone, as in fe80::1%eth0, means nothing elsewhere.

    Objects that are older than the API's rules may have padded numbers, as in 010.0.0.1, which are decimal all the
    same, and IPv4 addresses in IPv6 notation, ::ffff:10.0.0.1. Kubernetes takes both for IPv4.
    """
    try:
        address = None if "%" in text else ip_address(_unpadded(text))
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _unpadded(text: str) -> str:
    return _PADDING.sub("", text) if "." in text else text


def canonical(text: str) -> str:
    """The address in its one spelling, or "" for text that is none; `text` itself where it is spelt so."""
    if _CANONICAL_IPV4.fullmatch(text):
        return text
    address = parsed_address(text)
    written = str(address) if address else ""
    return text if text == written else written


def family_of_text(text: str) -> Family:
    """The family of an address in canonical spelling."""
    return "IPv6" if ":" in text else "IPv4"


def parsed_network(text: str) -> Network | None:
    """The network of a CIDR, host bits dropped and blanks around it forgiven, or None for text that is none.

    It is IPv4 wherever `parsed_address` says so of its address.
    """
    try:
        network = None if "%" in text else ip_network(_unpadded(text.strip()), strict=False)
    except ValueError:
        return None
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    if network is None or mapped is None or network.prefixlen < _MAPPED_BITS:
        return network
    return IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))
