"""How endpoints are laid into EndpointSlices of limited size with few writes (k8s.io/endpointslice reconciler).

Endpoints stay in the slice they are in. Slices that change anyway are filled first, the fullest first; then one
unchanged slice that has room for all the rest; then new slices. Full clusters are never rebalanced.

A slice that nothing happened to costs a few microseconds: its endpoints are known by identity and, once they were
found equal, are the very objects that are wanted, which compare at once.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from kdns.controlplane.kinds import Json


@dataclass(slots=True)
class Laid:
    """The endpoints of one stored slice, and what makes each of them itself."""

    name: str
    identities: tuple[str, ...]
    endpoints: list[Json]


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


def identity(endpoint: Json) -> str:
    """What makes two endpoints the same one, perhaps in another condition."""
    ref = endpoint.get("targetRef") or {}
    addresses = endpoint.get("addresses") or []
    at = addresses[0] if len(addresses) == 1 else ",".join(sorted(addresses))
    return f"{at} {endpoint.get('hostname') or ''} {ref.get('namespace') or ''} {ref.get('name') or ''}"


def pack(existing: Sequence[Laid], desired: Mapping[str, Json], relabelled: Container[str], most: int) -> Packing:
    """Lay `desired`, endpoints by identity, into `existing` slices and new ones of at most `most` endpoints.

    `relabelled` are names of slices that will be written anyway.
    """
    left = dict(desired)
    packing = Packing()
    for each in existing:
        now = [found for mine in each.identities if (found := left.pop(mine, None)) is not None]
        packing.kept[each.name] = now
        if each.endpoints and not now:
            packing.emptied.add(each.name)
        elif now != each.endpoints or each.name in relabelled:
            packing.changed.add(each.name)
        else:
            each.endpoints = list(now)
    if left:
        _place(list(left.values()), packing, most)
    return packing


def _place(rest: list[Json], packing: Packing, most: int) -> None:
    for name in sorted(packing.changed, key=lambda name: (-len(packing.kept[name]), name)):
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


def _best_fit(packing: Packing, count: int, most: int) -> str | None:
    """The unchanged slice that is fullest once it takes all `count` endpoints."""
    if count >= most:
        return None
    touched = packing.changed | packing.emptied
    fits = [
        (most - count - len(endpoints), name)
        for name, endpoints in packing.kept.items()
        if name not in touched and len(endpoints) + count <= most
    ]
    return min(fits)[1] if fits else None
