"""The columns of Endpoints and EndpointSlices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.columns import AGE, NAME, NONE, Column, Printer, age, few, name
from kdns.net import join_host_port


def endpoints_cells(endpoints: Json, now_s: float) -> list[Any]:
    """Returns the cells: name, ready endpoints as address:port, age. Blank if none is ready, as in Kubernetes."""
    subsets = endpoints.get("subsets") or ()
    shown = few((text for subset in subsets for text in _subset(subset)), "") if subsets else NONE
    return [name(endpoints), shown, age(endpoints, now_s)]


def _subset(subset: Json) -> Iterable[str]:
    addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
    ports = subset.get("ports")
    return [join_host_port(each, port.get("port", 0)) for port in ports for each in addresses] if ports else addresses


def endpoint_slice_cells(endpoint_slice: Json, now_s: float) -> list[Any]:
    """Returns the cells: name, address type, ports, addresses, age."""
    ports = [str(port.get("port") or port.get("name") or "*") for port in endpoint_slice.get("ports") or ()]
    addresses = [each for end in endpoint_slice.get("endpoints") or () for each in end.get("addresses") or ()]
    return [
        name(endpoint_slice),
        endpoint_slice.get("addressType", ""),
        few(ports, "<unset>"),
        few(addresses, "<unset>"),
        age(endpoint_slice, now_s),
    ]


ENDPOINTS: Final = Printer((NAME, Column("Endpoints", "subsets"), AGE), endpoints_cells)
ENDPOINT_SLICES: Final = Printer(
    (
        NAME,
        Column("AddressType", "addressType"),
        Column("Ports", "ports"),
        Column("Endpoints", "endpoints"),
        AGE,
    ),
    endpoint_slice_cells,
)
