"""Where a traced packet goes: an address and port, or a Service and the number or name of its port."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from kdns.cluster.objects import Service
from kdns.cluster.state import State
from kdns.errors import InputError
from kdns.proxy.config import Address, family_of, parsed_address
from kdns.proxy.planning import cluster_ip
from kdns.proxy.trace import Packet

PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
_WANTED: Final = "wanted IP:PORT or NAMESPACE/SERVICE:PORT, and /udp or /sctp where it is not TCP"
_TEXT: Final = re.compile(
    r"(?:\[(?P<bracketed>[^\[\]]*)\]|(?P<host>[^\[\]:]+)):(?P<port>[^:/]+)(?:/(?P<protocol>\w+))?"
)


@dataclass(frozen=True, slots=True)
class Destination:
    """What --to says. `protocol` is "" where it says none; `address` is None for a Service."""

    text: str
    host: str
    address: Address | None
    port: str
    protocol: str


def packet(state: State, source: str, to: str, interface: str = "") -> Packet:
    """The packet that --from and --to describe; InputError where they do not, or where there is no such Service."""
    origin = parsed_address(source)
    if origin is None:
        raise InputError(f"--from {source!r}: wanted an IP address")
    wanted = destination(to)
    if wanted.address is None:
        return _to_service(state, origin, wanted, interface)
    if wanted.address.version != origin.version:
        families = f"{family_of(origin)} and {family_of(wanted.address)}"
        raise InputError(f"--from {source} --to {to}: wanted addresses of one IP family, found {families}")
    return Packet(origin, wanted.address, wanted.protocol or "TCP", _number(wanted), interface)


def destination(text: str) -> Destination:
    """The parts of --to; InputError for text that has none."""
    match = _TEXT.fullmatch(text)
    if match is None:
        hint = ": an IPv6 address goes into brackets, as in [fd00::1]:80" if text.count(":") > 1 else ""
        raise InputError(f"--to {text!r}: {_WANTED}{hint}")
    host, protocol = match["bracketed"] or match["host"] or "", (match["protocol"] or "").upper()
    if protocol and protocol not in PROTOCOLS:
        raise InputError(f"--to {text!r}: unknown protocol {match['protocol']!r}; wanted {', '.join(PROTOCOLS)}")
    address = parsed_address(host)
    if address is None and (match["bracketed"] is not None or re.fullmatch(r"[0-9.]+", host)):
        raise InputError(f"--to {text!r}: {host!r} is no IP address; {_WANTED}")
    return Destination(text, host, address, match["port"], protocol)


def _number(wanted: Destination) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", wanted.port) or not 1 <= int(wanted.port) <= 65535:
        raise InputError(f"--to {wanted.text!r}: wanted a port from 1 to 65535, found {wanted.port!r}")
    return int(wanted.port)


def _to_service(state: State, source: Address, wanted: Destination, interface: str) -> Packet:
    service = _service(state, wanted)
    name = "/".join(service.key)
    family = family_of(source)
    address = parsed_address(cluster_ip(service, family))
    if address is None:
        has = ", ".join(service.virtual_ips)
        raise InputError(
            f"--to {wanted.text!r}: Service {name} has no {family} cluster IP, only {has}; --from is {source}"
        )
    if wanted.port.isdecimal():
        return Packet(source, address, wanted.protocol or "TCP", _number(wanted), interface)
    named = [port for port in service.ports if port.name == wanted.port and wanted.protocol in {"", port.protocol}]
    if not named:
        ports = ", ".join(f"{port.name or port.port}/{port.protocol}" for port in service.ports)
        raise InputError(f"--to {wanted.text!r}: Service {name} has no port {wanted.port!r}; it has {ports}")
    return Packet(source, address, named[0].protocol, named[0].port, interface)


def _service(state: State, wanted: Destination) -> Service:
    namespace, _, name = wanted.host.rpartition("/")
    service = state.services.get((namespace or "default", name))
    if service is None:
        near = get_close_matches(name, dict.fromkeys(known for _, known in state.services), n=3)
        meant = [f"{space}/{known}" for close in near for space, known in state.services if known == close]
        hint = f"; did you mean {' or '.join(meant[:3])}?" if meant else ""
        raise InputError(f"--to {wanted.text!r}: no Service {namespace or 'default'}/{name}{hint}")
    name = "/".join(service.key)
    if service.is_external_name:
        alias = service.spec.external_name
        raise InputError(f"--to {wanted.text!r}: Service {name} is only another name for {alias}; it has no address")
    if service.is_headless:
        why = "its name leads to the endpoints' own addresses, and packets go there directly"
        raise InputError(f"--to {wanted.text!r}: Service {name} is headless: {why}")
    if not service.virtual_ips:
        raise InputError(f"--to {wanted.text!r}: Service {name} has no cluster IP yet")
    return service
