"""The fixed configuration of one embedded cluster: its ranges, its one node, and whether Pods are simulated."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_network

from kdns.net import Address, Family, Network, family_of


@dataclass(frozen=True, slots=True)
class AddressRange:
    """Addresses of one IP version, from the number `first` to `last`; `text` is the configured spelling."""

    version: int
    first: int
    last: int
    text: str

    def __contains__(self, ip: Address) -> bool:
        return ip.version == self.version and self.first <= int(ip) <= self.last

    def address(self, number: int) -> Address:
        return IPv4Address(number) if self.version == 4 else IPv6Address(number)


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Ranges are checked where they are parsed; here at most one network per family is assumed.

    The first service range decides the default family. Without `host_addresses` the node has the first host address of
    each pod range: loopback addresses are refused as endpoints, and a Pod of the host's network needs an address.

    `root_ca` are the certificates (PEM) by which clients verify the API; "" if it is served without TLS. `platform` is
    what simulated Nodes report: operating system and architecture, in Go's names.
    """

    service_cidrs: tuple[Network, ...] = (ip_network("10.96.0.0/16"),)
    node_port_range: range = range(30000, 32768)
    pod_cidrs: tuple[Network, ...] = (ip_network("10.244.0.0/16"),)
    node_name: str = "kdns"
    node_zone: str = ""
    host_addresses: tuple[str, ...] = ()
    cluster_domain: str = "cluster.local"
    simulate_pods: bool = True
    lb_pool: tuple[AddressRange, ...] = ()
    root_ca: str = ""
    platform: tuple[str, str] = ("linux", "amd64")

    @property
    def families(self) -> tuple[Family, ...]:
        return tuple(family_of(network) for network in self.service_cidrs)

    @property
    def node_addresses(self) -> tuple[str, ...]:
        """At most one per family."""
        return self.host_addresses or tuple(str(network[1]) for network in self.pod_cidrs)
