"""Zones and server addresses: `cluster.local`, `dns://.:1053`, `10.0.0.0/9`, `localhost:9153`.

Zones are in lower case, with a trailing dot. A network in CIDR notation represents the reverse zones that cover it.
An empty word among zones, such as a variable that is not set, is skipped, as in CoreDNS. It is never the root zone.
Differs: if all words are empty, that is a mistake; CoreDNS silently serves no zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, ip_network

from kdns.corefile.lexer import Token
from kdns.errors import CorefileError
from kdns.net import HostPort, Network, parse_port, split_host_port

DEFAULT_PORTS = {"dns": 53, "tls": 853, "https": 443, "https3": 443, "quic": 853, "grpc": 443}
"""The schemes of a Corefile and the port of each (RFC 1035, 7858, 8484, 9250; gRPC as in CoreDNS)."""
REVERSE_APEXES = ("in-addr.arpa.", "ip6.arpa.")
_ADDRESS = re.compile(r"(?:(?P<scheme>[^:/]*)://)?(?P<zone>.*?)(?::(?P<port>[^:/]*))?", re.DOTALL)
_ADDRESS_FORM = "[SCHEME://]ZONE[:PORT], such as dns://example.org:53"
_LABEL = re.compile(r"[A-Za-z0-9_/-]{1,63}")
MAX_NAME_CHARS = 253


@dataclass(frozen=True, slots=True)
class ZoneAddress:
    """One zone on one port. `port` is None if the Corefile does not set it: see `port_or_default`."""

    zone: str
    scheme: str
    port: int | None
    token: Token | None = field(default=None, compare=False, repr=False)

    def port_or_default(self, dns_port: int) -> int:
        """`dns_port` is the default of the scheme dns (--dns.port)."""
        if self.port is not None:
            return self.port
        return dns_port if self.scheme == "dns" else DEFAULT_PORTS[self.scheme]


def is_reverse(zone: str) -> bool:
    """Whether a normalized zone is in-addr.arpa or ip6.arpa, or below one of them."""
    return any(zone == apex or zone.endswith(f".{apex}") for apex in REVERSE_APEXES)


def reverse_zones(network: Network) -> tuple[str, ...]:
    """The zones that together cover `network`, at octets (RFC 1035 §3.5) or nibbles (RFC 3596 §2.5)."""
    bits = 8 if isinstance(network, IPv4Network) else 4
    prefix = -(-network.prefixlen // bits) * bits
    return tuple(_reverse_zone(subnet, bits) for subnet in network.subnets(new_prefix=prefix))


def _reverse_zone(network: Network, bits: int) -> str:
    labels = network.network_address.reverse_pointer.split(".")
    free = (network.max_prefixlen - network.prefixlen) // bits
    return ".".join(labels[free:]) + "."


def zones(token: Token) -> tuple[str, ...]:
    """Raises CorefileError for a word that is neither a name nor a network."""
    text = token.text
    if not text or (text == "." and token.is_blank):
        raise token.expected("a zone")
    if "/" in text:
        try:
            return reverse_zones(ip_network(text, strict=False))
        except ValueError as error:
            if not is_reverse(f"{text.lower().rstrip('.')}."):  # RFC 2317 has names such as 0/25.2.0.192.in-addr.arpa
                raise token.error(f"expected a zone or a network in CIDR notation: {error}") from error
    if text == ".":
        return (".",)
    labels = text.removesuffix(".").split(".")
    if wrong := next((label for label in labels if not _LABEL.fullmatch(label)), None):
        raise token.error(_label_reason(wrong))
    if "" in labels:
        raise token.error("a zone name has no empty labels")
    if len(text.removesuffix(".")) > MAX_NAME_CHARS:
        raise token.error(f"a zone name has at most {MAX_NAME_CHARS} characters")
    return (text.removesuffix(".").lower() + ".",)


def _label_reason(label: str) -> str:
    if len(label) > 63:
        return "a label of a zone name has at most 63 characters"
    if not label.isascii():
        return "a zone name has ASCII characters only; write other characters in their xn-- form"
    if label == "*":
        return "a zone has every name below it: leave out the `*.`"
    if "[" in label:
        return "expected ZONE:PORT; an address to listen on is an argument of `bind`"
    if ":" in label:
        return "expected ZONE:PORT, or an IPv6 network with its prefix length, such as fd00::/8"
    return f"the label {label!r} of the zone name has characters other than letters, digits, - and _"


def name(token: Token) -> str:
    """Normalized like a zone; raises CorefileError for other words and for networks."""
    if not token.text or "/" in token.text:
        raise token.expected("a name")
    return zones(token)[0]


def filled(tokens: Sequence[Token], what: str) -> tuple[Token, ...]:
    """The words that are not empty; raises CorefileError if all are."""
    words = tuple(token for token in tokens if token.text)
    if tokens and not words:
        raise tokens[0].expected(what)
    return words


def all_zones(tokens: Sequence[Token]) -> tuple[str, ...]:
    """The zones of several words, each once, in the order they are written."""
    return tuple(dict.fromkeys(zone for token in filled(tokens, "a zone") for zone in zones(token)))


def zone_addresses(words: Iterable[Token], mistakes: list[CorefileError] | None = None) -> Iterator[ZoneAddress]:
    """From words separated by white space or commas; adds mistakes to the list, or raises the first."""
    words, errors = tuple(words), [] if mistakes is None else mistakes
    pieces = [replace(word, text=text) for word in words for text in re.split(r"[,\s]+", word.text) if text]
    if not pieces:
        errors.append(words[0].expected(_ADDRESS_FORM))
    for piece in pieces:
        try:
            yield from _zone_address(piece)
        except CorefileError as error:
            errors.append(error)
    if words[-1].text.endswith(","):
        errors.append(words[-1].error("expected another zone after the comma"))
    if mistakes is None and errors:
        raise errors[0]


def _zone_address(token: Token) -> Iterator[ZoneAddress]:
    address = _ADDRESS.fullmatch(token.text)
    if not address or "://" in address["zone"]:
        raise token.expected(_ADDRESS_FORM)
    scheme = address["scheme"] or "dns"
    if scheme not in DEFAULT_PORTS:
        raise token.error(
            f"unknown scheme {scheme}://; expected one of {', '.join(f'{name}://' for name in DEFAULT_PORTS)}"
        )
    zone, port = address["zone"], address["port"]
    if not zone and (port is None or token.is_blank):
        raise token.error("expected a zone in the server address; the root zone is `.`")
    number = None if port is None else port_number(token, port)
    for zone_name in zones(replace(token, text=zone or ".")):
        yield ZoneAddress(zone_name, scheme, number, token)


def port_number(token: Token, text: str) -> int:
    port = parse_port(text)
    if port is None:
        raise token.error(
            f"expected a port from 0 to 65535, got {text!r}" if text else "expected a port after the colon"
        )
    return port


def host_port(token: Token) -> HostPort:
    """Differs: CoreDNS accepts any word as a port and fails when it listens."""
    parts = split_host_port(token.text)
    if not parts or re.search(r"[/\s]", parts[0]):
        raise token.expected("HOST:PORT, [IPV6]:PORT or :PORT")
    host, port = parts
    return HostPort(host, port_number(token, port))
