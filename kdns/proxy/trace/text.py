"""A trace in words for a person, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kdns.net import join_host_port
from kdns.proxy.trace.assumptions import Assumption
from kdns.proxy.trace.explain import Explanation
from kdns.proxy.trace.trace import Fate, Trace

FATES: Final = {
    Fate.FORWARDED: "forwarded",
    Fate.REJECTED: "rejected, the sender is told at once",
    Fate.DROPPED: "dropped, the sender hears nothing",
    Fate.ACCEPTED: "let in by the firewall",
    Fate.UNTOUCHED: "left alone, it goes where the routes lead",
}
_SHOWN: Final = 10


def as_text(explanation: Explanation, node: str, mode: str, assumed: Sequence[Assumption] = ()) -> str:
    """Returns a headline that says what happens, the reasons, and the endpoints that are left out, each on a line.

    `assumed` is for a trace without a configuration.
    """
    packet = explanation.packet
    destination = join_host_port(str(packet.destination), packet.port)
    source = f"{packet.source}" + (f" on {packet.interface}" if packet.interface else "")
    head = f"{source} to {destination}/{packet.protocol}, on node {node} in mode {mode}: {_fate(explanation.trace)}"
    reasons = (f"  {reason}" for reason in explanation.reasons)
    return "\n".join((head, *reasons, *_unused(explanation), *_assumed(assumed), *_command(explanation), ""))


def _fate(trace: Trace) -> str:
    endpoints = trace.endpoints
    if trace.fate is not Fate.FORWARDED:
        return FATES[trace.fate]
    where = str(endpoints[0]) if len(endpoints) == 1 else f"one of {len(endpoints)} endpoints"
    return f"forwarded to {where}"


def _assumed(assumed: Sequence[Assumption]) -> Iterator[str]:
    if assumed:
        yield "Assumed without --config:"
    for setting, otherwise, result in assumed:
        yield f"  {setting}; {otherwise}: {_fate(result)}{_source(result)}"


def _source(trace: Trace) -> str:
    """Returns the source address that the endpoints see, where all of them see the same."""
    seen = {*map(trace.sees_node, trace.endpoints)}
    if len(seen) != 1:
        return ""
    return f", which sees the {'node' if seen.pop() else 'client'}'s address"


def _command(explanation: Explanation) -> Iterator[str]:
    if explanation.command:
        yield f"Try: {explanation.command}"


def _unused(explanation: Explanation) -> Iterator[str]:
    if explanation.unused:
        yield "Endpoints that are left out:"
    for unused in explanation.unused[:_SHOWN]:
        yield f"  {unused.endpoint} {unused.reason}"
    if len(explanation.unused) > _SHOWN:
        yield f"  and {len(explanation.unused) - _SHOWN} more; -o json has them all"


def as_json(explanation: Explanation, node: str, mode: str, assumed: Sequence[Assumption] = ()) -> dict[str, Any]:
    """Returns the same for programs; `service` is None if the packet met none. Endpoints have equal odds."""
    packet, trace = explanation.packet, explanation.trace
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
                "address": endpoint.address,
                "port": endpoint.port,
                "onThisNode": endpoint.is_local,
                "seesNodeAddress": trace.sees_node(endpoint),
            }
            for endpoint in trace.endpoints
        ],
        "reasons": list(explanation.reasons),
        "command": explanation.command,
        "assumed": [
            {"setting": setting, "otherwise": otherwise, "fate": result.fate.value}
            for setting, otherwise, result in assumed
        ],
        "leftOut": [
            {"address": unused.endpoint.address, "port": unused.endpoint.port, "reason": unused.reason}
            for unused in explanation.unused
        ],
    }
