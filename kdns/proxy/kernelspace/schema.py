"""The objects of HCN that the mode uses, as values, and their JSON in schema version 2.

Names and numbers are those of Microsoft's hcsshim (hcn/hcnendpoint.go, hcn/hcnloadbalancer.go, hcn/hcnnetwork.go). As
there, a document has no field with the zero value of its type. Ids are compared in lower case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntFlag
from hashlib import sha1
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from kdns.net import Address, Family, Network, canonical_address, packed, parse_network

Json: TypeAlias = dict[str, Any]

SCHEMA_VERSION: Final = {"Major": 2, "Minor": 0}
OVERLAY: Final = "overlay"
PROTOCOLS: Final = {"TCP": 6, "UDP": 17}
_BY_CLIENT: Final = 2
"""The type of distribution by a hash of the client's address; 0 is by a hash of the connection."""
_REMOTE_ENDPOINT: Final = 1
"""The flag of an endpoint on another node."""
_NAMESPACE: Final = bytes.fromhex("0c1f4e6a7b1d5d53a3f0a1c1f4f2d7be")
_MAC_PREFIX: Final = "02-11"
"""Begins locally administered addresses, as kube-proxy's for endpoints on other nodes; no packet has them."""


class LoadBalancerFlags(IntFlag):
    """Flags of a load balancer. DSR: endpoints answer the client directly, and see its address."""

    NONE = 0
    DSR = 1
    IPV6 = 2


class PortMappingFlags(IntFlag):
    """Flags of a port mapping that the mode sets."""

    NONE = 0
    LOCAL_ROUTED_VIP = 2
    VIP_EXTERNAL_IP = 16


def derived_id(*parts: str) -> str:
    """The id of an object that kdns creates: a UUID of version 5 (RFC 9562 §5.5) of its name."""
    digest = bytearray(sha1(_NAMESPACE + "/".join(parts).encode(), usedforsecurity=False).digest()[:16])
    digest[6], digest[8] = digest[6] & 0x0F | 0x50, digest[8] & 0x3F | 0x80
    text = digest.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


class RemoteSubnet(NamedTuple):
    """A network policy RemoteSubnetRoute: the Pods of another node, and that node's address."""

    prefix: Network
    provider_address: str


@dataclass(frozen=True, slots=True)
class HostComputeNetwork:
    """The network of the node's Pods. `id` is "" if the network is known from the settings only."""

    id: str
    name: str
    type: str
    remote_subnets: tuple[RemoteSubnet, ...] = ()

    @classmethod
    def read(cls, document: Json) -> HostComputeNetwork:
        subnets = []
        for policy in document.get("Policies") or ():
            if policy.get("Type") == "RemoteSubnetRoute":
                settings = policy.get("Settings") or {}
                if prefix := parse_network(str(settings.get("DestinationPrefix", ""))):
                    subnets.append(RemoteSubnet(prefix, str(settings.get("ProviderAddress", ""))))
        return cls(_id(document), str(document.get("Name", "")), str(document.get("Type", "")), tuple(subnets))

    @property
    def is_overlay(self) -> bool:
        """Whether packets to other nodes are encapsulated (VXLAN)."""
        return self.type.lower() == OVERLAY

    def provider_address(self, address: Address) -> str:
        """The address of the node that has this Pod or this address, "" for one outside of the cluster."""
        if not self.id:
            return f"(provider address of {address})"
        for prefix, provider in reversed(self.remote_subnets):
            if address in prefix or canonical_address(provider) == str(address):
                return provider
        return ""


@dataclass(frozen=True, slots=True)
class HostComputeEndpoint:
    """A Pod's, or another address that packets are sent to. `provider_address` is that of its node on an overlay."""

    KIND: ClassVar[str] = "Endpoint"

    id: str
    network: str
    addresses: tuple[str, ...]
    mac_address: str = ""
    provider_address: str = ""
    is_remote: bool = False
    name: str = ""

    @classmethod
    def read(cls, document: Json) -> HostComputeEndpoint:
        configurations = document.get("IpConfigurations") or ()
        provider = ""
        for policy in document.get("Policies") or ():
            if policy.get("Type") == "ProviderAddress":
                provider = str((policy.get("Settings") or {}).get("ProviderAddress", ""))
        return cls(
            _id(document),
            str(document.get("HostComputeNetwork", "")).lower(),
            tuple(canonical_address(str(configuration.get("IpAddress", ""))) for configuration in configurations),
            str(document.get("MacAddress", "")),
            provider,
            bool(int(document.get("Flags", 0)) & _REMOTE_ENDPOINT),
            str(document.get("Name", "")),
        )

    @property
    def modifiable(self) -> object:
        return self.provider_address

    @property
    def policies(self) -> list[Json]:
        if not self.provider_address:
            return []
        return [{"Type": "ProviderAddress", "Settings": {"ProviderAddress": self.provider_address}}]

    @property
    def document(self) -> Json:
        return _without_zeros(
            {
                "ID": self.id,
                "HostComputeNetwork": self.network,
                "Policies": self.policies,
                "IpConfigurations": [{"IpAddress": address} for address in self.addresses],
                "MacAddress": self.mac_address,
                "Flags": _REMOTE_ENDPOINT if self.is_remote else 0,
            }
        )

    @property
    def modification(self) -> Json:
        return {"ResourceType": "Policy", "RequestType": "Update", "Settings": {"Policies": self.policies}}


@dataclass(frozen=True, slots=True)
class PortMapping:
    """The port of a front and that of its endpoints. `protocol` is the number of IP's header.

    `by_client`: a client keeps its endpoint.
    """

    protocol: int
    internal_port: int
    external_port: int
    by_client: bool = False
    flags: PortMappingFlags = PortMappingFlags.NONE

    @classmethod
    def read(cls, document: Json) -> PortMapping:
        return cls(
            int(document.get("Protocol", 0)),
            int(document.get("InternalPort", 0)),
            int(document.get("ExternalPort", 0)),
            bool(document.get("DistributionType", 0)),
            PortMappingFlags(int(document.get("Flags", 0)) & ~_UNUSED_FLAGS),
        )

    @property
    def document(self) -> Json:
        return _without_zeros(
            {
                "Protocol": self.protocol,
                "InternalPort": self.internal_port,
                "ExternalPort": self.external_port,
                "DistributionType": _BY_CLIENT if self.by_client else 0,
                "Flags": int(self.flags),
            }
        )


_UNUSED_FLAGS: Final = 1 | 4 | 8
"""ILB, UseMux and PreserveDIP."""


class LoadBalancerKey(NamedTuple):
    """A destination of packets. HCN has at most one load balancer for it. `vip` is "" for node ports."""

    family: Family
    vip: str
    protocol: int
    port: int


@dataclass(frozen=True, slots=True)
class HostComputeLoadBalancer:
    """A destination of packets and the ids of its endpoints, in order."""

    KIND: ClassVar[str] = "LoadBalancer"

    id: str
    endpoints: tuple[str, ...]
    frontend_vips: tuple[str, ...]
    port_mappings: tuple[PortMapping, ...]
    source_vip: str = ""
    flags: LoadBalancerFlags = LoadBalancerFlags.NONE

    @classmethod
    def read(cls, document: Json) -> HostComputeLoadBalancer:
        return cls(
            _id(document),
            tuple(sorted(str(name).lower() for name in document.get("HostComputeEndpoints") or ())),
            tuple(canonical_address(str(vip)) for vip in document.get("FrontendVIPs") or ()),
            tuple(PortMapping.read(mapping) for mapping in document.get("PortMappings") or ()),
            str(document.get("SourceVIP", "")),
            LoadBalancerFlags(int(document.get("Flags", 0)) & (LoadBalancerFlags.DSR | LoadBalancerFlags.IPV6)),
        )

    @property
    def keys(self) -> Iterator[LoadBalancerKey]:
        family: Family = "IPv6" if LoadBalancerFlags.IPV6 in self.flags else "IPv4"
        for vip in self.frontend_vips or ("",):
            for mapping in self.port_mappings:
                yield LoadBalancerKey(family, vip, mapping.protocol, mapping.external_port)

    @property
    def modifiable(self) -> object:
        return self

    @property
    def is_own(self) -> bool:
        return any(self.id == load_balancer_id(key) for key in self.keys)

    @property
    def document(self) -> Json:
        return _without_zeros(
            {
                "ID": self.id,
                "HostComputeEndpoints": list(self.endpoints),
                "SourceVIP": self.source_vip,
                "FrontendVIPs": list(self.frontend_vips),
                "PortMappings": [mapping.document for mapping in self.port_mappings],
                "Flags": int(self.flags),
            }
        )


def load_balancer_id(key: LoadBalancerKey) -> str:
    return derived_id("load balancer", *map(str, key))


def endpoint_id(network: str, address: str) -> str:
    return derived_id("endpoint", network.lower(), address)


def mac_address(address: str) -> str:
    """HCN needs a different MAC address for each endpoint on another node."""
    return "-".join((_MAC_PREFIX, *(f"{octet:02x}" for octet in packed(address)[-4:])))


def _id(document: Json) -> str:
    return str(document.get("ID", "")).lower()


def _without_zeros(fields: Mapping[str, object]) -> Json:
    given = {name: value for name, value in fields.items() if value}
    return {**given, "SchemaVersion": SCHEMA_VERSION} if "ID" in fields else given
