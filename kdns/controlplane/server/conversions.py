"""Conversions of stored objects to other kinds: the subresource `scale`, and kinds of further API versions.

A further conversion is a row in CONVERSIONS or VERSION_CONVERSIONS. Routes and discovery read the `subresources` of a
kind, and STORED_KINDS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kdns.controlplane.meta.errors import Cause, invalid
from kdns.controlplane.meta.kinds import AUTOSCALER_V1, EVENT_V1, STORED_KINDS, Json, Kind
from kdns.controlplane.resources.columns import AGE, NAME, Column, Printer, age, name
from kdns.controlplane.resources.core import events_v1
from kdns.controlplane.resources.generic import autoscaler_v1
from kdns.controlplane.resources.label_selectors import selector_text
from kdns.controlplane.resources.strategy import STRATEGIES
from kdns.controlplane.storage.field_selectors import FieldLabels

SCALE = Kind("autoscaling", "v1", "Scale", "scales")
"""The kind of the subresource `scale`; it has no resource of its own."""

EVICTION = Kind("policy", "v1", "Eviction", "evictions")
BINDING = Kind("", "v1", "Binding", "bindings")
POSTED = {"eviction": EVICTION, "binding": BINDING}
"""Subresource → the kind that is posted to it; it cannot be read."""


def field_labels_of(kind: Kind, served_version: Kind | None) -> FieldLabels:
    """Returns the fields that selectors may name for a kind in a served version."""
    return (VERSION_CONVERSIONS[served_version].field_labels if served_version else None) or STRATEGIES[
        kind
    ].field_labels


_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


@dataclass(frozen=True, slots=True)
class Conversion:
    """`read` converts a stored object to `kind`; `write` returns the stored object with the changes of a sent one.

    `configuration` converts a configuration (server-side apply) to one of the stored object. The caller checks name,
    uid and resourceVersion in the metadata of the sent object.
    """

    kind: Kind
    read: Callable[[Json], Json]
    write: Callable[[Json, Json], Json]
    configuration: Callable[[Kind, Json], Json]


@dataclass(frozen=True, slots=True)
class VersionConversion(Conversion):
    """A conversion of whole objects: `stored` converts the result of `read` back to the stored kind.

    `field_labels` are the fields that its selectors may name, None for those of the stored kind.
    """

    stored: Callable[[Json], Json]
    field_labels: FieldLabels | None = None


def conversion_of(subresource: str, served_version: Kind | None = None) -> Conversion | None:
    """Returns the conversion of a served version or a subresource; None if none is needed."""
    return VERSION_CONVERSIONS[served_version] if served_version else CONVERSIONS.get(subresource)


def kind_at(kind: Kind, subresource: str) -> Kind:
    """Returns the kind that a subresource accepts and returns."""
    conversion = conversion_of(subresource)
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


def printer_of_kind(kind: Kind) -> Printer:
    """Returns the printer of Tables; a kind that is served by conversion has the printer of its stored kind."""
    return _SCALES if kind is SCALE else STRATEGIES[STORED_KINDS.get(kind, kind)].printer


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

VERSION_CONVERSIONS = {
    EVENT_V1: VersionConversion(
        EVENT_V1,
        events_v1.to_events_v1,
        events_v1.updated,
        events_v1.configuration,
        events_v1.to_core,
        events_v1.FIELD_LABELS,
    ),
    AUTOSCALER_V1: VersionConversion(
        AUTOSCALER_V1,
        autoscaler_v1.to_autoscaler_v1,
        autoscaler_v1.updated,
        autoscaler_v1.configuration,
        autoscaler_v1.to_autoscaler,
    ),
}
"""Served kind → its conversion from and to the stored kind."""
