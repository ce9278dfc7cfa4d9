"""The words TO of `forward FROM TO...`: addresses, host names, and files such as /etc/resolv.conf with addresses.

`dns://` is UDP and TCP, `tls://` is DNS over TLS, `https://` is DNS over HTTPS. The word after % is the name in the
certificate for `tls://` and `https://`, and the zone of an IPv6 address otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Final, NamedTuple

from kdns.corefile.lexer import Token
from kdns.net import HostPort, bracketed, parse_port, split_optional_port
from kdns.upstream.upstream import Scheme

SCHEMES: Final[dict[str, tuple[Scheme, int]]] = {"dns": ("dns", 53), "tls": ("tls", 853), "https": ("https", 443)}

_SCHEME: Final = re.compile(r"([^:/]*)://(.*)", re.DOTALL)
_ZONE: Final = re.compile(r"%([^:\]]*)")
_LABEL: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_MAX_NAME_CHARACTERS: Final = 253
_FORMS: Final = "IP[:PORT], [IPV6]:PORT, a host name or a file, with dns://, tls:// or https:// before all but a file"


@dataclass(frozen=True, slots=True)
class Target:
    """One upstream as written: an IP address, or a host name if `is_name`.

    `zone` is the word after %: the name in the certificate, or the zone of an IPv6 address of the scheme `dns`.
    `may_be_file`: a word without scheme and port, which may also be the name of a file.
    """

    host: str
    port: int = 53
    scheme: Scheme = "dns"
    zone: str = ""
    is_name: bool = False
    may_be_file: bool = False
    token: Token | None = field(default=None, compare=False, repr=False)

    @property
    def address(self) -> HostPort:
        zone = f"%{self.zone}" if self.zone and self.scheme == "dns" else ""
        return HostPort(self.host + zone, self.port)

    @property
    def server_name(self) -> str:
        """The name that the certificate must have; "" if it is not set."""
        return "" if self.scheme == "dns" else self.zone or (self.host if self.is_name else "")

    def at(self, address: str) -> Target:
        """The upstream at an address of its host name, which the certificate must have."""
        return replace(self, host=address, zone=self.server_name, is_name=False, may_be_file=False)

    def __str__(self) -> str:
        zone = f"%{self.zone}" if self.zone else ""
        prefix = "" if self.scheme == "dns" else f"{self.scheme}://"
        host = bracketed(self.host + zone) if ":" in self.host else self.host + zone
        return f"{prefix}{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class File:
    """A file of addresses, such as /etc/resolv.conf."""

    path: str
    token: Token = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.path


def split_zone(text: str) -> tuple[str, str]:
    zone = _ZONE.search(text)
    return (text[: zone.start()] + text[zone.end() :], zone[1]) if zone else (text, "")


def target_of(token: Token) -> Target | File:
    if "," in token.text:
        raise token.expected("upstreams with blanks between them, without commas")
    match = _SCHEME.fullmatch(token.text)
    name, text = (match[1], match[2]) if match else ("dns", token.text)
    if name not in SCHEMES:
        raise token.expected("one of the schemes dns://, tls:// and https://")
    scheme, default_port = SCHEMES[name]
    if "/" in text:
        if match:
            path = " (the path of DNS over HTTPS is /dns-query)" if scheme == "https" else ""
            raise token.error(f"expected an upstream without a path{path}")
        return File(text, token)
    bare, zone = split_zone(text)
    host, port_text = split_optional_port(bare)
    port = default_port if port_text is None else parse_port(port_text)
    if not port:
        raise token.expected("a port from 1 to 65535")
    return _target(token, Target(host, port, scheme, zone, token=token), plain=not match and port_text is None)


def _target(token: Token, target: Target, *, plain: bool) -> Target:
    try:
        address = ip_address(target.host)
    except ValueError:
        return _name(token, target, plain=plain)
    if target.zone and target.scheme == "dns" and not (address.version == 6 and address.is_link_local):
        raise token.error(
            "expected a link-local IPv6 address before %, or tls:// or https:// for the name in a certificate"
        )
    return replace(target, host=str(address))


def _name(token: Token, target: Target, *, plain: bool) -> Target:
    """A host name whose last label is a number is a mistyped address (RFC 1123 §2.1)."""
    name = target.host.removesuffix(".")
    labels = name.split(".")
    if not all(map(_LABEL.fullmatch, labels)) or len(name) > _MAX_NAME_CHARACTERS or labels[-1].isdigit():
        raise token.expected(_FORMS)
    if target.zone and target.scheme == "dns":
        raise token.error("expected tls:// or https:// before an upstream with the name in its certificate")
    return replace(target, host=name, is_name=True, may_be_file=plain and not target.zone)


class ResolvConf(NamedTuple):
    """The nameservers of a file, and words in their place that are not addresses, with their lines from 1."""

    targets: tuple[Target, ...]
    wrong: tuple[tuple[int, str], ...]


def resolv_conf(text: str) -> ResolvConf:
    """Lines other than `nameserver ADDRESS` are ignored (resolv.conf(5))."""
    targets: list[Target] = []
    wrong: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if len(words) < 2 or words[0] != "nameserver":
            continue
        host, _, zone = words[1].partition("%")
        try:
            targets.append(Target(str(ip_address(host)), zone=zone))
        except ValueError:
            wrong.append((number, words[1]))
    return ResolvConf(tuple(dict.fromkeys(targets)), tuple(wrong))
