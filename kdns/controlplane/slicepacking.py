"""How endpoints are laid into EndpointSlices of limited size with few writes (k8s.io/endpointslice reconciler).

Endpoints stay in the slice they are in. Slices that change anyway are filled first, the fullest first; then one
unchanged slice that has room for all the rest; then new slices. Full clusters are never rebalanced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kdns.controlplane.kinds import Json


@dataclass(frozen=True, slots=True)
class Packing:
    """`kept` are existing slices by name with their endpoints now; the sets are names among them.

    `filled` got more endpoints and nothing else; `fresh` are the endpoints of slices to be made.
    """

    kept: dict[str, list[Json]] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    filled: set[str] = field(default_factory=set)
    emptied: set[str] = field(default_factory=set)
    fresh: list[list[Json]] = field(default_factory=list)


def identity(endpoint: Json) -> tuple[object, ...]:
    """What makes two endpoints the same one, perhaps in another condition."""
    ref = endpoint.get("targetRef") or {}
    addresses = tuple(sorted(endpoint.get("addresses") or []))
    return addresses, endpoint.get("hostname") or "", ref.get("namespace"), ref.get("name")


def pack(existing: Sequence[Json], desired: Sequence[Json], relabelled: set[str], most: int) -> Packing:
    """Lay `desired` into `existing` slices and new ones of at most `most` endpoints.

    `relabelled` are names of slices that will be written anyway.
    """
    left = {identity(endpoint): endpoint for endpoint in desired}
    packing = Packing()
    for each in existing:
        name, before = each["metadata"]["name"], each.get("endpoints") or []
        now = [found for endpoint in before if (found := left.pop(identity(endpoint), None))]
        packing.kept[name] = now
        if before and not now:
            packing.emptied.add(name)
        elif now != before or name in relabelled:
            packing.changed.add(name)
    rest = list(left.values())
    for name in sorted(packing.changed, key=lambda name: -len(packing.kept[name])):
        room = max(most - len(packing.kept[name]), 0)
        packing.kept[name] += rest[:room]
        rest = rest[room:]
    while rest:
        best = _best_fit(packing, len(rest), most)
        if best is None:
            packing.fresh.append(rest[:most])
            rest = rest[most:]
        else:
            packing.kept[best] += rest
            packing.filled.add(best)
            rest = []
    return packing


def _best_fit(packing: Packing, count: int, most: int) -> str | None:
    """The unchanged slice that is fullest once it takes all `count` endpoints."""
    fits = [
        (most - count - len(endpoints), name)
        for name, endpoints in packing.kept.items()
        if name not in packing.changed | packing.emptied and len(endpoints) + count <= most
    ]
    return min(fits)[1] if fits and count < most else None
