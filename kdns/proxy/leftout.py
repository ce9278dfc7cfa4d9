"""Why endpoints of a Service port get no packets: each one that the list in use does without, with its reason."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from kdns.cluster.objects import EndpointSlice
from kdns.proxy.backends import PORTS, Backend, Candidate, candidates
from kdns.proxy.config import Family, NodeView, parsed_address
from kdns.proxy.plan import PortName


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An endpoint and why it is not in the list."""

    backend: Backend
    reason: str


@dataclass(frozen=True, slots=True)
class Choosing:
    """How a list came about: what is to say of the list as a whole, and the endpoints that are not in it."""

    remarks: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


def choosing(
    slices: Collection[EndpointSlice],
    family: Family,
    port: PortName,
    used: Sequence[Backend],
    node: NodeView,
    *,
    is_local: bool,
) -> Choosing:
    """How the list `used` of a Service port was chosen; `is_local`: only endpoints of this node count."""
    found = candidates(slices, family, port.port, port.protocol, node.name)
    if not found:
        return Choosing((_none_at_all(slices, family, port),))
    node_names = _node_names(slices)
    in_use = set(used)
    remarks: list[str] = []
    if used and not any(each.is_ready for each in found if each.backend in in_use):
        where = f" on node {node.name}" if is_local else ""
        remarks.append(f"no endpoint{where} is ready, so those stand in that still serve while they terminate")
    left_out = tuple(
        LeftOut(each.backend, _reason(each, node, node_names.get(each.backend.address, ""), is_local=is_local))
        for each in found
        if each.backend not in in_use
    )
    return Choosing(tuple(remarks), left_out)


def _reason(candidate: Candidate, node: NodeView, node_name: str, *, is_local: bool) -> str:
    if is_local and not candidate.backend.is_local:
        return f"is on node {node_name}" if node_name else "is on no node that the API knows of"
    if candidate.is_terminating:
        return "is terminating" + ("" if candidate.is_serving else " and serves no more")
    if not candidate.is_ready:
        return "is not ready"
    if candidate.nodes and node.name not in candidate.nodes:
        return f"is meant for node {_listed(candidate.nodes)}, as its hints say"
    where = f"zone {node.zone}" if node.zone else "no zone"
    return f"is meant for zone {_listed(candidate.zones)}, as its hints say; this node is in {where}"


def _none_at_all(slices: Collection[EndpointSlice], family: Family, port: PortName) -> str:
    """Why a Service port has no endpoint, not even one that is not ready."""
    if not any(each.endpoints for each in slices):
        return "the Service has no endpoints: no Pod matches its selector, or nobody wrote endpoints for it"
    mine = [each for each in slices if each.address_type == family]
    if not any(each.endpoints for each in mine):
        types = " and ".join(sorted({each.address_type for each in slices}))
        return f"the Service has no {family} endpoints, only {types}"
    ports = [p for each in mine for p in each.ports or () if p.port in PORTS]
    offered = {f"{p.name or 'without a name'}/{p.protocol or 'TCP'}" for p in ports}
    wanted = f"{port.port or 'without a name'}/{port.protocol}"
    return f"no endpoint has a port {wanted}; they have {' and '.join(sorted(offered)) or 'none'}"


def _node_names(slices: Iterable[EndpointSlice]) -> dict[str, str]:
    found = {}
    for each in slices:
        for endpoint in each.endpoints or ():
            address = parsed_address(endpoint.addresses[0]) if endpoint.addresses else None
            if address:
                found[str(address)] = endpoint.node_name or ""
    return found


def _listed(names: Iterable[str]) -> str:
    return " or ".join(sorted(names))
