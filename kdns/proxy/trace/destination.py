"""The packet to trace, from --from and --to: an address and port, or a Service and the number or name of its port."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from kdns.cluster.objects import Service
from kdns.cluster.state import State
from kdns.errors import InputError
from kdns.net import Address, family_of, parse_unmapped_address
from kdns.proxy.plan.service_ports import cluster_ip
from kdns.proxy.trace.trace import Packet

PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
_WANTED: Final = "wanted IP:PORT or NAMESPACE/SERVICE:PORT, and /udp or /sctp where it is not TCP"
_TEXT: Final = re.compile(
    r"(?:\[(?P<bracketed>[^\[\]]*)\]|(?P<host>[^\[\]:]+)):(?P<port>[^:/]+)(?:/(?P<protocol>\w+))?"
)


@dataclass(frozen=True, slots=True)
class Destination:
    """The parts of --to. `protocol` is "" where there is none; `address` is None for a Service."""

    text: str
    host: str
    address: Address | None
    port: str
    protocol: str


def packet(state: State, source: str, to: str, interface: str = "") -> Packet:
    """The packet that --from and --to describe; InputError where they do not, or where there is no such Service."""
    origin = parse_unmapped_address(source)
    if origin is None:
        raise InputError(f"--from {source!r}: wanted an IP address")
    target = destination(to)
    if target.address is None:
        return _to_service(state, origin, target, interface)
    if target.address.version != origin.version:
        families = f"{family_of(origin)} and {family_of(target.address)}"
        raise InputError(f"--from {source} --to {to}: wanted addresses of one IP family, found {families}")
    return Packet(origin, target.address, target.protocol or "TCP", _number(target), interface)


def destination(text: str) -> Destination:
    """The parts of --to; InputError for text that has none."""
    match = _TEXT.fullmatch(text)
    if match is None:
        hint = ": an IPv6 address goes into brackets, as in [fd00::1]:80" if text.count(":") > 1 else ""
        raise InputError(f"--to {text!r}: {_WANTED}{hint}")
    host, protocol = match["bracketed"] or match["host"] or "", (match["protocol"] or "").upper()
    if protocol and protocol not in PROTOCOLS:
        raise InputError(f"--to {text!r}: unknown protocol {match['protocol']!r}; wanted {', '.join(PROTOCOLS)}")
    address = parse_unmapped_address(host)
    if address is None and (match["bracketed"] is not None or re.fullmatch(r"[0-9.]+", host)):
        raise InputError(f"--to {text!r}: {host!r} is no IP address; {_WANTED}")
    return Destination(text, host, address, match["port"], protocol)


def _number(target: Destination) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", target.port) or not 1 <= int(target.port) <= 65535:
        raise InputError(f"--to {target.text!r}: wanted a port from 1 to 65535, found {target.port!r}")
    return int(target.port)


def _to_service(state: State, source: Address, target: Destination, interface: str) -> Packet:
    service = _service(state, target)
    name = "/".join(service.key)
    family = family_of(source)
    address = parse_unmapped_address(cluster_ip(service, family))
    if address is None:
        has = ", ".join(service.virtual_ips)
        raise InputError(
            f"--to {target.text!r}: Service {name} has no {family} cluster IP, only {has}; --from is {source}"
        )
    if target.port.isdecimal():
        return Packet(source, address, target.protocol or "TCP", _number(target), interface)
    named = [port for port in service.ports if port.name == target.port and target.protocol in {"", port.protocol}]
    if not named:
        ports = ", ".join(f"{port.name or port.port}/{port.protocol}" for port in service.ports)
        raise InputError(f"--to {target.text!r}: Service {name} has no port {target.port!r}; it has {ports}")
    return Packet(source, address, named[0].protocol, named[0].port, interface)


def _service(state: State, target: Destination) -> Service:
    namespace, _, name = target.host.rpartition("/")
    service = state.services.get((namespace or "default", name))
    if service is None:
        near = get_close_matches(name, dict.fromkeys(other for _, other in state.services), n=3)
        meant = [f"{space}/{other}" for close in near for space, other in state.services if other == close]
        hint = f"; did you mean {' or '.join(meant[:3])}?" if meant else ""
        raise InputError(f"--to {target.text!r}: no Service {namespace or 'default'}/{name}{hint}")
    name = "/".join(service.key)
    if service.is_external_name:
        alias = service.spec.external_name
        raise InputError(f"--to {target.text!r}: Service {name} is only another name for {alias}; it has no address")
    if service.is_headless:
        why = "its name leads to the endpoints' own addresses, and packets go there directly"
        raise InputError(f"--to {target.text!r}: Service {name} is headless: {why}")
    if not service.virtual_ips:
        raise InputError(f"--to {target.text!r}: Service {name} has no cluster IP yet")
    return service
