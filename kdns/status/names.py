"""The names of a Service that are worth a question, and a table of their answers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final
from urllib.parse import urlencode

from kdns.cluster.objects import Service
from kdns.cluster.packed import ready_addresses
from kdns.cluster.state import State
from kdns.dns.types import address_type, type_name
from kdns.explain.explain import Explanation
from kdns.explain.text import verdict_text
from kdns.net import family_of_text, parse_address
from kdns.plugins.sources.kubernetes.options import Options
from kdns.plugins.sources.kubernetes.service import endpoint_label, port_labels
from kdns.status.page import Cell, Link
from kdns.status.paths import EXPLAIN

HEADS: Final = ("Name", "Type", "Answer", "Why")
PORTS_MAX: Final = 10
ENDPOINTS_MAX: Final = 5
_TYPES: Final = {"IPv4": "A", "IPv6": "AAAA"}


def questions(state: State, service: Service, options: Options) -> Iterator[tuple[str, str]]:
    """Names with a dot at their end, and types; of many ports and endpoints the first."""
    namespace, name = service.key
    own = f"{name}.{namespace}.svc.{options.primary_zone}"
    if service.is_external_name:
        yield own, "CNAME"
        return
    slices = [*state.slices_of(service.key)]
    if service.is_headless:
        families = sorted({endpoint_slice.address_type for endpoint_slice in slices} & {*_TYPES})
    else:
        families = [*map(family_of_text, service.virtual_ips)]
    for family in families or ["IPv4"]:
        yield own, _TYPES[family]
    ports = [port for endpoint_slice in slices for port in endpoint_slice.ports or ()] if service.is_headless else []
    labels = dict.fromkeys(port_labels(port) for port in ports or service.ports if port.name)
    for port, protocol in islice(labels, PORTS_MAX):
        yield f"{port}.{protocol}.{own}", "SRV"
    for address in filter(None, map(parse_address, service.virtual_ips)):
        pointer = f"{address.reverse_pointer}."
        if pointer.endswith(tuple(f".{zone}" for zone in options.zones)):
            yield pointer, "PTR"
    if service.is_headless:
        endpoints = (endpoint for endpoint_slice in slices for endpoint in ready_addresses(endpoint_slice))
        for endpoint in islice(endpoints, ENDPOINTS_MAX):
            yield f"{endpoint_label(endpoint, options)}.{own}", type_name(address_type(endpoint.address))


def row(explanation: Explanation) -> tuple[Cell, ...]:
    """Its name leads to the whole explanation."""
    name, qtype = explanation.name, explanation.qtype
    path = f"{EXPLAIN}?{urlencode({'name': name, 'type': qtype})}"
    why = "; ".join(cause.text for cause in explanation.causes)
    return Link(name, path), qtype, verdict_text(explanation), why
