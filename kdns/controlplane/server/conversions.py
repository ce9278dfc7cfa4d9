"""Conversions of stored objects to the kinds of subresources: `scale`. The catalogue has those to other API versions.

A further conversion is a row in CONVERSIONS. Routes and discovery read the `subresources` of a kind.
"""

from __future__ import annotations

from typing import Any

from kdns.controlplane.meta.errors import Cause, invalid
from kdns.controlplane.meta.kinds import Json, Kind
from kdns.controlplane.resources.catalogue import Catalogue
from kdns.controlplane.resources.columns import AGE, NAME, Column, Printer, age, name
from kdns.controlplane.resources.conversion import Conversion
from kdns.controlplane.resources.label_selectors import selector_text

SCALE = Kind("autoscaling", "v1", "Scale", "scales")
"""The kind of the subresource `scale`; it has no resource of its own."""

EVICTION = Kind("policy", "v1", "Eviction", "evictions")
BINDING = Kind("", "v1", "Binding", "bindings")
POSTED = {"eviction": EVICTION, "binding": BINDING}
"""Subresource → the kind that is posted to it; it cannot be read."""


_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def conversion_of(kinds: Catalogue, subresource: str, served_version: Kind | None) -> Conversion | None:
    """Returns the conversion of a served version or a subresource; None if none is needed."""
    return kinds.conversion(served_version) or CONVERSIONS.get(subresource)


def kind_at(kind: Kind, subresource: str) -> Kind:
    """Returns the kind that a subresource accepts and returns."""
    conversion = CONVERSIONS.get(subresource)
    return conversion.kind if conversion else POSTED.get(subresource, kind)


def scale_of(obj: Json) -> Json:
    """Returns an autoscaling/v1 Scale: desired and current replicas, and their selector."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    shown = {"replicas": status.get("replicas") or 0, "selector": selector_text(spec.get("selector") or {})}
    wanted = spec.get("replicas") or 0
    return {
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version,
        "metadata": {name: metadata[name] for name in _SHOWN if name in metadata},
        "spec": {"replicas": wanted} if wanted else {},
        "status": {name: value for name, value in shown.items() if value or name == "replicas"},
    }


def _scale_cells(scale: Json, now_s: float) -> list[Any]:
    wanted, found = scale.get("spec") or {}, scale.get("status") or {}
    return [name(scale), wanted.get("replicas") or 0, found.get("replicas") or 0, age(scale, now_s)]


_SCALES = Printer(
    (
        NAME,
        Column("Desired", "spec.replicas", type="integer"),
        Column("Available", "status.replicas", type="integer"),
        AGE,
    ),
    _scale_cells,
)


def printer_of_kind(kinds: Catalogue, kind: Kind) -> Printer:
    """Returns the printer of Tables; a kind that is served by conversion has the printer of its stored kind."""
    return _SCALES if kind is SCALE else kinds[kind.stored_kind].printer


def with_scale(obj: Json, scale: Json) -> Json:
    """Returns the object with the replicas of a Scale. Raises 422 for a negative number."""
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    name = obj["metadata"]["name"]
    if replicas < 0:
        cause = Cause("spec.replicas", f"Invalid value: {replicas}", "must be greater than or equal to 0")
        raise invalid(SCALE, name, [cause])
    return {**obj, "metadata": {**obj["metadata"], **_claims(scale)}, "spec": {**obj["spec"], "replicas": replicas}}


def scale_configuration(kind: Kind, scale: Json) -> Json:
    """Returns the configuration of an object from that of a Scale: its replicas alone."""
    spec = scale.get("spec") or {}
    wanted = {"spec": {"replicas": spec["replicas"]}} if "replicas" in spec else {}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": _claims(scale), **wanted}


def _claims(scale: Json) -> Json:
    sent = scale.get("metadata") or {}
    return {field: sent[field] for field in ("name", "namespace", "uid", "resourceVersion") if sent.get(field)}


CONVERSIONS = {"scale": Conversion(SCALE, scale_of, with_scale, scale_configuration)}
"""Subresource → its conversion, for every kind that has the subresource."""
