"""IP addresses, address families, and host:port texts. Nothing here resolves a name or opens a socket."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from operator import ne
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final, Literal, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
Family: TypeAlias = Literal["IPv4", "IPv6"]
"""An address family as the Kubernetes API spells it."""

FAMILIES: Final[tuple[Family, ...]] = ("IPv4", "IPv6")
VERSION: Final[Mapping[Family, int]] = {"IPv4": 4, "IPv6": 6}

MAX_PORT: Final = 65535

_CANONICAL_IPV4: Final = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!$)|$)){4}")
_BROADCAST: Final = ip_address("255.255.255.255")
_UNORDINARY: Final = re.compile(r"0\.|127\.|169\.254\.|22[4-9]\.|2[35]|::|f[ef]")
_LEADING_ZEROS: Final = re.compile(r"(?<![0-9A-Fa-f])0+(?=[0-9]+(?:\.|\Z))")
_MAPPED_BITS: Final = 96
_MAPPED: Final = bytes(10) + b"\xff\xff"
_HOST_PORT: Final = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([^:]*)")
_PORT: Final = re.compile(r"[0-9]{1,5}")
IPV4_BYTES: Final = 4
_CACHED_ADDRESSES: Final = 8192
_ADDRESS_CHARACTERS_MAX: Final = 64
_CLIENT_BYTES: Final = 8


# Families


def family_of(value: Address | Network) -> Family:
    return "IPv4" if value.version == VERSION["IPv4"] else "IPv6"


def family_of_text(address: str) -> Family:
    return "IPv6" if ":" in address else "IPv4"


def is_ipv6(host: str) -> bool:
    """A name or an IPv4 address holds no colon."""
    return ":" in host


# Addresses


def parse_address(text: str) -> Address | None:
    """None for other text, and for an IPv6 address with a zone, which means something on one machine only.

    Numbers of IPv4 may have leading zeros, and are decimal all the same, as in old objects (Kubernetes: ParseIPSloppy).
    """
    return _address(text) if len(text) <= _ADDRESS_CHARACTERS_MAX else None


@lru_cache(_CACHED_ADDRESSES)
def _address(text: str) -> Address | None:
    for spelled in (str, _decimal) if "%" not in text else ():
        with suppress(ValueError):
            return ip_address(spelled(text))
    return None


def parse_unmapped_address(text: str) -> Address | None:
    """As `parse_address`, but an IPv4-mapped one (::ffff:10.0.0.1) as IPv4, like the API."""
    address = parse_address(text)
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def canonical_address(text: str) -> str:
    """RFC 5952 for IPv6, "" for other text. The pattern takes a twentieth of the time of parsing."""
    if _CANONICAL_IPV4.fullmatch(text):
        return text
    address = parse_unmapped_address(text)
    canonical = str(address) if address else ""
    return text if text == canonical else canonical


def packed(text: str) -> bytes:
    """In 4 or 16 bytes, network byte order; b"" for other text."""
    try:
        return inet_pton(AF_INET6 if ":" in text else AF_INET, text)
    except (OSError, ValueError):  # also for an IPv6 address with a zone, such as fe80::1%eth0
        return _packed_with_zone(text) if "%" in text else b""


def _packed_with_zone(text: str) -> bytes:
    try:
        return ip_address(text).packed
    except ValueError:
        return b""


def packed_exactly(texts: Sequence[str]) -> list[bytes]:
    """Returns addresses of one family; ValueError for texts of others, and for any that `packed_text` does not make."""
    family = AF_INET6 if ":" in texts[0] else AF_INET
    try:
        addresses = [inet_pton(family, text) for text in texts]
    except OSError as error:
        raise ValueError(*error.args) from error
    if family == AF_INET6 and any(map(ne, map(packed_text, addresses), texts)):
        raise ValueError(texts)
    return addresses


def packed_text(address: bytes) -> str:
    """An IPv4-mapped address as ::ffff:10.0.0.1 (inet_ntop(3))."""
    return inet_ntop(AF_INET if len(address) == IPV4_BYTES else AF_INET6, address)


def unpacked(address: bytes) -> str:
    """The canonical text of an address of 4 or 16 bytes."""
    return ".".join(map(str, address)) if len(address) == IPV4_BYTES else str(ip_address(address))


@lru_cache(_CACHED_ADDRESSES)  # asked five times for one query
def client_of(address: str) -> str | bytes:
    """An IPv4 address itself, or the /64 of an IPv6 address: a client with one address of it has all."""
    return packed(without_zone(address))[:_CLIENT_BYTES] if is_ipv6(address) else address


def without_zone(host: str) -> str:
    """Returns an address without the zone of IPv6, which means something on one machine only."""
    return host.partition("%")[0]


def client_address(host: str) -> bytes:
    """Returns the packed address of a peer, without a zone, and as IPv4 if it is mapped; b"" for other text."""
    address = packed(without_zone(host))
    return address[len(_MAPPED) :] if len(address) == 16 and address.startswith(_MAPPED) else address


def is_link_local_ipv6(address: Address) -> bool:
    """Within fe80::/10: valid on its link only and never forwarded (RFC 4291 §2.5.6)."""
    return address.version == VERSION["IPv6"] and address.is_link_local


def special_purpose(address: Address) -> str:
    """As Kubernetes' validation says, "a multicast address"; "" for any other, and for loopback."""
    if address.is_unspecified:
        return "the unspecified address"
    if address.is_multicast:
        return "a multicast address"
    if address.is_link_local:
        return "a link-local address"
    return "the broadcast address" if address == _BROADCAST else ""


def may_be_special(canonical: str) -> bool:
    """False for an address in canonical form that is neither loopback nor of a `special_purpose`, without parsing."""
    return _UNORDINARY.match(canonical) is not None


def is_loopback(host: str) -> bool:
    """Whether a URL's host (without port) is this machine: localhost, 127.0.0.0/8 or ::1."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


# Networks


def parse_network(text: str) -> Network | None:
    """None for other text. Host bits and spaces are dropped; IPv4 as `parse_unmapped_address` has it."""
    address, slash, length = text.strip().partition("/")
    try:
        network = None if "%" in address else ip_network(f"{_decimal(address)}{slash}{length}", strict=False)
    except ValueError:
        return None
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    if network is None or mapped is None or network.prefixlen < _MAPPED_BITS:
        return network
    return IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))


_UNUSABLE: Final = (
    ("the address of this machine itself", ("127.0.0.1/32", "::1/128")),
    ("unspecified addresses", ("0.0.0.0/8", "::/128")),
    ("link-local addresses", ("169.254.0.0/16", "fe80::/10")),
    ("multicast addresses", ("224.0.0.0/4", "ff00::/8")),
    ("the broadcast address", ("255.255.255.255/32",)),
)
_UNUSABLE_NETWORKS: Final = tuple((ip_network(text), what) for what, texts in _UNUSABLE for text in texts)


def unusable_addresses(network: Network) -> str:
    """Which addresses of a network cannot be cluster IPs, in words; "" if all can."""
    found = (what for each, what in _UNUSABLE_NETWORKS if each.version == network.version and each.overlaps(network))
    return next(found, "")


def _decimal(address: str) -> str:
    return _LEADING_ZEROS.sub("", address) if "." in address else address


# Hosts and ports


@dataclass(frozen=True, slots=True)
class HostPort:
    """An address to listen on or to connect to. An empty host is every address of the machine."""

    host: str
    port: int

    def __str__(self) -> str:
        return join_host_port(self.host, self.port)


def bracketed(host: str) -> str:
    """As written before a port: an IPv6 literal in brackets (RFC 3986 §3.2.2)."""
    return f"[{host}]" if is_ipv6(host) else host


def join_host_port(host: str, port: int) -> str:
    """Text such as `10.0.0.1:53` and `[fd00::1]:53`."""
    return f"{bracketed(host)}:{port}"


def split_host_port(text: str) -> tuple[str, str] | None:
    """Of HOST:PORT, [IPV6]:PORT or :PORT, unchecked; None for other text."""
    match = _HOST_PORT.fullmatch(text)
    return (match[1] or match[2] or "", match[3]) if match else None


def split_optional_port(text: str) -> tuple[str, str | None]:
    """Of HOST[:PORT], [IPV6][:PORT] or IPV6, each unchecked; None for no port."""
    return split_host_port(text) or (text[1:-1] if text.startswith("[") and text.endswith("]") else text, None)


def parse_port(text: str) -> int | None:
    """From 0 to 65535 in up to five ASCII digits, or None."""
    return int(text) if _PORT.fullmatch(text) and int(text) <= MAX_PORT else None
