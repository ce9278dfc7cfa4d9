"""Endpoints and EndpointSlices: columns, defaults and rules (kube-apiserver: validateEndpointSubsets and others)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.field_errors import (
    duplicate,
    immutable,
    invalid_value,
    invalid_values,
    required,
    too_many,
    unsupported,
)
from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, ENDPOINTS, Json, Kind
from kdns.controlplane.kinds import warnings
from kdns.controlplane.kinds.columns import AGE, NAME, NONE, Column, Printer, age, name, shortened
from kdns.controlplane.kinds.defaults import filler
from kdns.controlplane.kinds.service.validation import PROTOCOLS, validate_protocol
from kdns.controlplane.kinds.strategy import Strategy
from kdns.controlplane.kinds.validation import IMMUTABLE, validate_metadata
from kdns.controlplane.storage.object_meta import content_and_labels
from kdns.net import join_host_port, parse_address


def endpoints_cells(endpoints: Json, now_s: float) -> list[Any]:
    """Name, ready endpoints as address:port, age. The second is blank if none is ready, as in Kubernetes."""
    subsets = endpoints.get("subsets") or ()
    shown = shortened((text for subset in subsets for text in _subset(subset)), "") if subsets else NONE
    return [name(endpoints), shown, age(endpoints, now_s)]


def _subset(subset: Json) -> Iterable[str]:
    addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
    ports = subset.get("ports")
    return [join_host_port(ip, port.get("port", 0)) for port in ports for ip in addresses] if ports else addresses


def endpoint_slice_cells(endpoint_slice: Json, now_s: float) -> list[Any]:
    ports = [str(port.get("port") or port.get("name") or "*") for port in endpoint_slice.get("ports") or ()]
    endpoints = endpoint_slice.get("endpoints") or ()
    addresses = [address for endpoint in endpoints for address in endpoint.get("addresses") or ()]
    return [
        name(endpoint_slice),
        endpoint_slice.get("addressType", ""),
        shortened(ports, "<unset>"),
        shortened(addresses, "<unset>"),
        age(endpoint_slice, now_s),
    ]


_ENDPOINTS: Final = Printer((NAME, Column("Endpoints", "subsets"), AGE), endpoints_cells)
_ENDPOINT_SLICES: Final = Printer(
    (
        NAME,
        Column("AddressType", "addressType"),
        Column("Ports", "ports"),
        Column("Endpoints", "endpoints"),
        AGE,
    ),
    endpoint_slice_cells,
)


default_endpoints: Final = filler({"subsets.ports.protocol": "TCP"})
default_endpoint_slice: Final = filler({"ports.name": "", "ports.protocol": "TCP", "endpoints.conditions": {}})

ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
MOST_ENDPOINTS, MOST_ADDRESSES, MOST_PORTS, MOST_HINTS, MOST_TOPOLOGY = 1000, 100, 20000, 8, 16


def validate_endpoints(obj: Json, old: Json | None = None) -> list[Cause]:
    """Stored addresses stay valid, and unchanged subsets are not validated again."""
    causes = validate_metadata(obj, old)
    if old and (old.get("subsets") or []) == (obj.get("subsets") or []):
        return causes
    stored = {address.get("ip") or "": address for _, address in _addresses((old or {}).get("subsets") or [])}
    for index, subset in enumerate(obj.get("subsets") or []):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            causes.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for where, address in _addresses([subset]):
            if stored.get(address.get("ip") or "") != address:
                causes += _address(f"{path}.{where}", address, stored)
        ports = subset.get("ports") or []
        for at, port in enumerate(ports):
            causes += _port(f"{path}.ports[{at}]", port, named=len(ports) > 1)
    return causes


def _addresses(subsets: Iterable[Json]) -> Iterable[tuple[str, Json]]:
    for subset in subsets:
        for field in ("addresses", "notReadyAddresses"):
            for index, address in enumerate(subset.get(field) or []):
                yield f"{field}[{index}]", address


def _address(path: str, address: Json, stored: Collection[str]) -> list[Cause]:
    ip, hostname, node = address.get("ip") or "", address.get("hostname"), address.get("nodeName")
    causes = invalid_values(f"{path}.ip", ip, formats.ip_problems(ip, stored))
    causes += invalid_values(f"{path}.hostname", hostname, formats.dns_label(hostname)) if hostname else []
    causes += invalid_values(f"{path}.nodeName", node, formats.dns_subdomain(node)) if node is not None else []
    return causes + invalid_values(f"{path}.ip", ip, formats.endpoint_ip_problems(ip))


def _port(path: str, port: Json, *, named: bool) -> list[Cause]:
    name, number, causes = port.get("name") or "", port.get("port") or 0, []
    if named and not name:
        causes.append(required(f"{path}.name"))
    elif name:
        causes += invalid_values(f"{path}.name", name, formats.dns_label(name))
    causes += invalid_values(f"{path}.port", number, formats.port_number(number))
    causes += validate_protocol(f"{path}.protocol", port.get("protocol"))
    return causes + _app_protocol(path, port)


def _app_protocol(path: str, port: Json) -> list[Cause]:
    value = port.get("appProtocol")
    return [] if value is None else invalid_values(f"{path}.appProtocol", value, formats.qualified_name(value))


def validate_endpoint_slice(obj: Json, old: Json | None = None) -> list[Cause]:
    """addressType is immutable. Unchanged endpoints are not validated again."""
    causes = validate_metadata(obj, old)
    address_type = obj.get("addressType") or ""
    if not address_type:
        causes.append(required("addressType"))
    elif address_type not in ADDRESS_TYPES:
        causes.append(unsupported("addressType", address_type, ADDRESS_TYPES))
    causes += _slice_ports(obj.get("ports") or [])
    endpoints, before = obj.get("endpoints") or [], (old or {}).get("endpoints") or []
    retyped = old is not None and address_type != old.get("addressType")
    if endpoints != before:
        causes += _endpoints(endpoints, [] if retyped else before, address_type)
    if retyped:
        causes.append(immutable("addressType", address_type, IMMUTABLE))
    return causes


def _endpoints(endpoints: list[Json], valid: list[Json], address_type: str) -> list[Cause]:
    if len(endpoints) > MOST_ENDPOINTS:
        return [too_many("endpoints", len(endpoints), MOST_ENDPOINTS)]
    changed = [index for index, endpoint in enumerate(endpoints) if index >= len(valid) or endpoint != valid[index]]
    known = {tuple(endpoint.get("addresses") or ()): endpoint for endpoint in valid} if changed else {}
    causes = []
    for index in changed:
        endpoint = endpoints[index]
        if known.get(tuple(endpoint.get("addresses") or ())) != endpoint:
            causes += _endpoint(f"endpoints[{index}]", endpoint, address_type)
    return causes


def _endpoint(path: str, endpoint: Json, address_type: str) -> list[Cause]:
    causes, addresses = [], endpoint.get("addresses") or []
    if not addresses:
        causes.append(required(f"{path}.addresses", "must contain at least 1 address"))
    elif len(addresses) > MOST_ADDRESSES:
        causes.append(too_many(f"{path}.addresses", len(addresses), MOST_ADDRESSES))
    for index, address in enumerate(addresses):
        causes += _slice_address(f"{path}.addresses", index, address, address_type)
    node, hostname = endpoint.get("nodeName"), endpoint.get("hostname")
    causes += invalid_values(f"{path}.nodeName", node, formats.dns_subdomain(node)) if node is not None else []
    causes += _topology(f"{path}.deprecatedTopology", endpoint.get("deprecatedTopology") or {})
    causes += invalid_values(f"{path}.hostname", hostname, formats.dns_label(hostname)) if hostname is not None else []
    return causes + _hints(f"{path}.hints", endpoint.get("hints") or {})


def _slice_address(path: str, index: int, address: str, address_type: str) -> list[Cause]:
    where = f"{path}[{index}]"
    if address_type == "FQDN":
        return invalid_values(where, address, formats.full_domain_name(address))
    if address_type not in ADDRESS_TYPES:
        return []
    wrong = formats.ip_problems(address) if address_type == "IPv4" else formats.canonical_ip_problems(address)
    if wrong:
        return invalid_values(where, address, wrong)
    causes, parsed = [], parse_address(address)
    if parsed and f"IPv{parsed.version}" != address_type:
        causes.append(invalid_value(path, address, f"must be an {address_type} address"))
    return causes + invalid_values(where, address, formats.endpoint_ip_problems(address))


def _topology(path: str, topology: Json) -> list[Cause]:
    causes = [too_many(path, len(topology), MOST_TOPOLOGY)] if len(topology) > MOST_TOPOLOGY else []
    for key in topology:
        if key == "topology.kubernetes.io/zone":
            causes.append(Cause(f"{path}[{key}]", "Internal error", "reserved key was not removed in conversion"))
        causes += invalid_values(path, key, formats.qualified_name(key))
    return causes


def _hints(path: str, hints: Json) -> list[Cause]:
    causes: list[Cause] = []
    for field, rule in (("forZones", formats.label_value), ("forNodes", formats.dns_subdomain)):
        names = [hint.get("name") or "" for hint in hints.get(field) or []]
        if len(names) > MOST_HINTS:
            return [*causes, too_many(f"{path}.{field}", len(names), MOST_HINTS)]
        for index, hint in enumerate(names):
            where = f"{path}.{field}[{index}].name"
            causes += [duplicate(where, hint)] if hint in names[:index] else []
            causes += invalid_values(where, hint, rule(hint))
    return causes


def _slice_ports(ports: list[Json]) -> list[Cause]:
    if len(ports) > MOST_PORTS:
        return [too_many("ports", len(ports), MOST_PORTS)]
    causes: list[Cause] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"ports[{index}]", port.get("name") or ""
        causes += invalid_values(f"{path}.name", name, formats.dns_label(name)) if name else []
        causes += [duplicate(f"{path}.name", name)] if name in names else []
        names.add(name)
        protocol = port.get("protocol")
        if protocol is None:
            causes.append(required(f"{path}.protocol"))
        elif protocol not in PROTOCOLS:
            causes.append(unsupported(f"{path}.protocol", protocol, PROTOCOLS))
        causes += _app_protocol(path, port)
    return causes


STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    ENDPOINTS: Strategy(
        validate_endpoints,
        _ENDPOINTS,
        defaults=default_endpoints,
        generation=None,
        warnings=warnings.endpoints_warnings,
        allow_create_on_update=True,
    ),
    ENDPOINT_SLICE: Strategy(
        validate_endpoint_slice,
        _ENDPOINT_SLICES,
        defaults=default_endpoint_slice,
        generation=content_and_labels,
        warnings=warnings.endpoint_slice_warnings,
    ),
}
