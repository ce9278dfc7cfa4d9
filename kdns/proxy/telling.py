"""A trace in words for a person, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kdns.proxy.backends import Backend
from kdns.proxy.explain import Explanation
from kdns.proxy.trace import Fate

FATES: Final = {
    Fate.FORWARDED: "forwarded",
    Fate.REJECTED: "rejected, the sender is told at once",
    Fate.DROPPED: "dropped, the sender hears nothing",
    Fate.ACCEPTED: "let in by the firewall",
    Fate.UNTOUCHED: "left alone, it goes where the routes lead",
}
_SHOWN: Final = 10


def as_text(told: Explanation, node: str, mode: str) -> str:
    """A headline that says what happens, the reasons, and the endpoints that are left out, each on a line."""
    packet = told.packet
    destination = written(str(packet.destination), packet.port)
    source = f"{packet.source}" + (f" on {packet.interface}" if packet.interface else "")
    head = f"{source} to {destination}/{packet.protocol}, on node {node} in mode {mode}: {_fate(told)}"
    return "\n".join((head, *(f"  {reason}" for reason in told.reasons), *_left_out(told), ""))


def _fate(told: Explanation) -> str:
    backends = told.trace.backends
    if told.trace.fate is not Fate.FORWARDED:
        return FATES[told.trace.fate]
    where = _backend(backends[0]) if len(backends) == 1 else f"one of {len(backends)} endpoints"
    return f"forwarded to {where}"


def _left_out(told: Explanation) -> Iterator[str]:
    if told.left_out:
        yield "Endpoints that are left out:"
    for each in told.left_out[:_SHOWN]:
        yield f"  {_backend(each.backend)} {each.reason}"
    if len(told.left_out) > _SHOWN:
        yield f"  and {len(told.left_out) - _SHOWN} more; -o json has them all"


def as_json(told: Explanation, node: str, mode: str) -> dict[str, Any]:
    """The same for programs; `service` is None where the packet met none. Endpoints have equal odds."""
    packet, trace = told.packet, told.trace
    front = trace.front
    return {
        "from": {"address": str(packet.source), "interface": packet.interface},
        "to": {"address": str(packet.destination), "port": packet.port, "protocol": packet.protocol},
        "node": node,
        "mode": mode,
        "fate": trace.fate.value,
        "service": {
            "namespace": front.port.name.namespace,
            "name": front.port.name.service,
            "port": front.port.name.port,
            "foundBy": front.kind.value,
            "affinitySeconds": front.port.affinity_s,
        }
        if front
        else None,
        "endpoints": [
            {
                "address": each.address,
                "port": each.port,
                "onThisNode": each.is_local,
                "seesNodeAddress": trace.sees_node(each),
            }
            for each in trace.backends
        ],
        "reasons": list(told.reasons),
        "leftOut": [
            {"address": each.backend.address, "port": each.backend.port, "reason": each.reason}
            for each in told.left_out
        ],
    }


def _backend(backend: Backend) -> str:
    return written(backend.address, backend.port)


def written(address: str, port: int) -> str:
    """Address and port as one word, IPv6 in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
