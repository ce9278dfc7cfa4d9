"""The packet to trace, from --from and --to: an address and port, or a Service and the number or name of its port."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, TypeAlias

from kdns.cluster.objects import Endpoint, EndpointSlice, Key, Service
from kdns.cluster.state import State
from kdns.errors import InputError
from kdns.net import Address, family_of, parse_unmapped_address
from kdns.proxy.plan.service_ports import cluster_ips
from kdns.proxy.trace.trace import Packet

PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
SHOWN: Final = 3
"""How many names an error suggests."""
_EXPECTED: Final = (
    "expected IP:PORT, SERVICE[.NAMESPACE]:PORT or NAMESPACE/SERVICE:PORT, and /udp or /sctp where it is not TCP"
)
_TEXT: Final = re.compile(
    r"(?:\[(?P<bracketed>[^\[\]]*)\]|(?P<host>[^\[\]:]+)):(?P<port>[^:/]+)(?:/(?P<protocol>\w+))?"
)

_Port: TypeAlias = tuple[str | None, str, int | None]
"""Name, protocol and number."""


@dataclass(frozen=True, slots=True)
class Search:
    """Where names of Services are looked up; `is_given` where somebody chose the namespace."""

    namespace: str = "default"
    domain: str = "cluster.local"
    is_given: bool = False


@dataclass(frozen=True, slots=True)
class Destination:
    """The parts of --to. `protocol` may be ""; `address` is None for a Service."""

    text: str
    host: str
    address: Address | None
    port: str
    protocol: str


def packet(state: State, source: str, to: str, search: Search = Search(), interface: str = "") -> Packet:
    """Returns the packet that --from and --to describe.

    Raises InputError if they do not, or for an unknown Service.
    """
    origin = parse_unmapped_address(source)
    if origin is None:
        raise InputError(f"--from {source!r}: expected an IP address")
    target = destination(to)
    if target.address is None:
        return _to_service(state, origin, target, search, interface)
    if search.is_given:
        raise InputError(f"--namespace {search.namespace}: --to {to} is no name; a node is named with --node")
    if target.address.version != origin.version:
        families = f"{family_of(origin)} and {family_of(target.address)}"
        raise InputError(f"--from {source} --to {to}: expected addresses of one IP family, got {families}")
    return Packet(origin, target.address, *_port(target), interface)


def destination(text: str) -> Destination:
    match = _TEXT.fullmatch(text)
    if match is None:
        hint = ": an IPv6 address goes into brackets, as in [fd00::1]:80" if text.count(":") > 1 else ""
        raise InputError(f"--to {text!r}: {_EXPECTED}{hint}")
    host, protocol = match["bracketed"] or match["host"] or "", (match["protocol"] or "").upper()
    if protocol and protocol not in PROTOCOLS:
        raise InputError(f"--to {text!r}: unknown protocol {match['protocol']!r}; expected {', '.join(PROTOCOLS)}")
    address = parse_unmapped_address(host)
    if address is None and (match["bracketed"] is not None or re.fullmatch(r"[0-9.]+", host)):
        raise InputError(f"--to {text!r}: {host!r} is no IP address; {_EXPECTED}")
    return Destination(text, host, address, match["port"], protocol)


def _wrong(target: Destination, reason: str) -> InputError:
    return InputError(f"--to {target.text!r}: {reason}")


def _to_service(state: State, source: Address, target: Destination, search: Search, interface: str) -> Packet:
    label, service = _named(state, target, search)
    name, family = "/".join(service.key), family_of(source)
    if service.is_external_name:
        alias = service.spec.external_name
        raise _wrong(target, f"Service {name} is only another name for {alias}; it has no address")
    if label:
        address, ports = _endpoint(state, source, target, label, service)
        return Packet(source, address, *_port(target, name, ports), interface)
    if service.is_headless:
        why = "its name leads to the endpoints' own addresses, and packets go there directly"
        labels = _endpoint_labels(state, service)[:SHOWN]
        ways = ", ".join(f"{endpoint_label}.{'.'.join(reversed(service.key))}" for endpoint_label in labels)
        raise _wrong(target, f"Service {name} is headless: {why}{ways and f'; expected one of {ways}'}")
    if not service.virtual_ips:
        raise _wrong(target, f"Service {name} has no cluster IP yet")
    cluster_ip = parse_unmapped_address(cluster_ips(service).get(family, ""))
    if cluster_ip is None:
        has = ", ".join(service.virtual_ips)
        raise _wrong(target, f"Service {name} has no {family} cluster IP, only {has}; --from is {source}")
    of_service = [(port.name, port.protocol, port.port) for port in service.ports]
    return Packet(source, cluster_ip, *_port(target, name, of_service), interface)


def _endpoint(
    state: State, source: Address, target: Destination, label: str, service: Service
) -> tuple[Address, list[_Port]]:
    """Returns the address of a Pod by its name below a Service, and the Pod's own ports by the names of the Service."""
    for endpoint_slice, endpoint in _ready_endpoints(state, service):
        for text in endpoint.addresses:
            address = parse_unmapped_address(text)
            if address and _label(endpoint, text) == label and address.version == source.version:
                return address, [(port.name, port.protocol or "TCP", port.port) for port in endpoint_slice.ports or ()]
    family = family_of(source)
    raise _wrong(target, f"{label} of Service {'/'.join(service.key)} has no {family} address; --from is {source}")


def _port(target: Destination, service: str = "", ports: Sequence[_Port] = ()) -> tuple[str, int]:
    """Returns protocol and number of the port, which may be one of a Service by its name."""
    if target.port.isdecimal() or not service:
        if not re.fullmatch(r"[0-9]{1,5}", target.port) or not 1 <= int(target.port) <= 65535:
            raise _wrong(target, f"expected a port from 1 to 65535, got {target.port!r}")
        return target.protocol or "TCP", int(target.port)
    for name, protocol, number in ports:
        if number and name == target.port and target.protocol in {"", protocol}:
            return protocol, number
    has = ", ".join(f"{name or number}/{protocol}" for name, protocol, number in ports)
    raise _wrong(target, f"Service {service} has no port {target.port!r}; it has {has}")


def _named(state: State, target: Destination, search: Search) -> tuple[str, Service]:
    """Returns the Service of a name, and the label of one of its endpoints, "" for the Service itself.

    A name is looked up as a resolver of the namespace does: with each member of its search list, then as it is.
    """
    candidates = _candidates(target.host, search)
    for label, key in candidates:
        service = state.services.get(key)
        if service and (not label or label in _endpoint_labels(state, service)):
            return label, service
    if not candidates:
        expected = f"expected SERVICE, SERVICE.NAMESPACE or SERVICE.NAMESPACE.svc.{search.domain}"
        raise _wrong(target, f"no name of a Service; {expected}, or before it the name of a Pod")
    for label, key in candidates:
        if service := state.services.get(key):
            labels = _endpoint_labels(state, service)
            has = ", ".join(get_close_matches(label, labels, n=SHOWN) or labels[:SHOWN]) or "none"
            raise _wrong(target, f"Service {'/'.join(key)} has no ready endpoint {label}; it has {has}")
    label, (namespace, name) = min(candidates, key=lambda candidate: bool(candidate[0]))
    near = get_close_matches(name, dict.fromkeys(other for _, other in state.services), n=3)
    meant = [f"{space}/{other}" for close in near for space, other in state.services if other == close]
    hint = f"; did you mean {' or '.join(meant[:3])}?" if meant else ""
    raise _wrong(target, f"no Service {namespace}/{name}{hint}")


def _candidates(host: str, search: Search) -> list[tuple[str, Key]]:
    """Yields interpretations of a host, in the order of the search list: an endpoint's label or "", and a Service."""
    namespace, slash, name = host.partition("/")
    if slash:
        return [("", (namespace, name))]
    services = f".svc.{search.domain}"
    suffixes = ("",) if host.endswith(".") else (f".{search.namespace}{services}", services, f".{search.domain}", "")
    found: list[tuple[str, Key]] = []
    for suffix in suffixes:
        name = f"{host.lower().removesuffix('.')}{suffix}"
        match name.removesuffix(services).split(".") if name.endswith(services) else ():
            case [service, namespace]:
                found.append(("", (namespace, service)))
            case [label, service, namespace]:
                found.append((label, (namespace, service)))
    return found


def _endpoint_labels(state: State, service: Service) -> list[str]:
    """Returns the labels of DNS below a Service's name: hostnames, or addresses with dashes."""
    ready = _ready_endpoints(state, service)
    return list(dict.fromkeys(_label(endpoint, text) for _, endpoint in ready for text in endpoint.addresses))


def _label(endpoint: Endpoint, address: str) -> str:
    return endpoint.hostname.lower() if endpoint.hostname else re.sub(r"[.:]", "-", address)


def _ready_endpoints(state: State, service: Service) -> Iterator[tuple[EndpointSlice, Endpoint]]:
    for endpoint_slice in state.slices_of(service.key):
        for endpoint in endpoint_slice.endpoints or ():
            if endpoint.is_ready:
                yield endpoint_slice, endpoint
