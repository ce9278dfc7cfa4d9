"""The kind of the objects at each place: of a served version, of the resource or of a subresource."""

from __future__ import annotations

from kdns.controlplane.apimachinery.kinds import Kind
from kdns.controlplane.kinds.catalogue import Catalogue
from kdns.controlplane.kinds.columns import Printer
from kdns.controlplane.kinds.conversion import Conversion
from kdns.controlplane.kinds.scale import SCALE, SCALES

EVICTION = Kind("policy", "v1", "Eviction", "evictions")
BINDING = Kind("", "v1", "Binding", "bindings")
_SHOWN = {"eviction": EVICTION, "binding": BINDING, "scale": SCALE}
"""Subresource → its kind, for every kind that has the subresource."""


def conversion_of(kinds: Catalogue, kind: Kind, subresource: str, served_version: Kind | None) -> Conversion | None:
    """Returns the conversion of a stored kind to a subresource or a served version; None if none is needed."""
    return kinds[kind].scale.conversion() if subresource == "scale" else kinds.conversion(served_version)


def kind_at(kind: Kind, subresource: str) -> Kind:
    return _SHOWN.get(subresource, kind)


def printer_of_kind(kinds: Catalogue, kind: Kind) -> Printer:
    """Returns the printer of Tables; a version of a kind may have its own."""
    conversion = kinds.conversion(kind)
    if conversion and conversion.printer:
        return conversion.printer
    return SCALES if kind is SCALE else kinds[kind.stored_kind].printer
