"""Conversions: they read and write stored objects as objects of another kind, such as the subresource `scale`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kdns.controlplane.apimachinery.errors import Cause, invalid
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds.columns import Printer, at, printer_of
from kdns.controlplane.kinds.validation import selector_text
from kdns.controlplane.storage.field_selectors import FieldLabels


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

    `field_labels` are the fields that its selectors may name, and `printer` prints its tables. Both default to those of
    the stored kind.
    """

    stored: Callable[[Json], Json]
    field_labels: FieldLabels | None = None
    printer: Printer | None = None


def version_conversion(
    kind: Kind, field_labels: FieldLabels | None = None, printer: Printer | None = None
) -> VersionConversion:
    """The conversion strategy None of CustomResourceDefinitions: only the apiVersion differs."""
    stored = kind.stored_kind

    def to(target: Kind, obj: Json) -> Json:
        return {**obj, "apiVersion": target.api_version}

    return VersionConversion(
        kind,
        partial(to, kind),
        lambda _, sent: to(stored, sent),
        lambda _, config: to(stored, config),
        partial(to, stored),
        field_labels,
        printer,
    )


SCALE: Final = Kind("autoscaling", "v1", "Scale", "scales")
"""Only a subresource has this kind."""

_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The fields of a kind's objects that a Scale has; its selector is a text or, by default, a LabelSelector."""

    spec_replicas: Sequence[str] = ("spec", "replicas")
    status_replicas: Sequence[str] = ("status", "replicas")
    selector: Sequence[str] = ("spec", "selector")
    is_text: bool = False

    def conversion(self) -> Conversion:
        return Conversion(SCALE, self.scale_of, self.with_scale, self.configuration)

    def scale_of(self, obj: Json) -> Json:
        metadata, replicas = obj["metadata"], at(obj, self.spec_replicas) or 0
        selector = at(obj, self.selector) if self.selector else None
        shown = {
            "replicas": at(obj, self.status_replicas) or 0,
            "selector": (selector or "") if self.is_text else selector_text(selector or {}),
        }
        return {
            "kind": SCALE.kind,
            "apiVersion": SCALE.api_version,
            "metadata": {name: metadata[name] for name in _SHOWN if name in metadata},
            "spec": {"replicas": replicas} if replicas else {},
            "status": {name: value for name, value in shown.items() if value or name == "replicas"},
        }

    def with_scale(self, obj: Json, scale: Json) -> Json:
        """Raises 422 for a negative number of replicas."""
        replicas = (scale.get("spec") or {}).get("replicas") or 0
        if replicas < 0:
            cause = Cause("spec.replicas", f"Invalid value: {replicas}", "must be greater than or equal to 0")
            raise invalid(SCALE, obj["metadata"]["name"], [cause])
        changed = _with(obj, self.spec_replicas, replicas)
        return {**changed, "metadata": {**obj["metadata"], **_claims(scale)}}

    def configuration(self, kind: Kind, scale: Json) -> Json:
        spec = scale.get("spec") or {}
        replicas = _with({}, self.spec_replicas, spec["replicas"]) if "replicas" in spec else {}
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": _claims(scale), **replicas}


def _with(obj: Json, path: Sequence[str], value: Any) -> Json:
    first, *below = path
    return {**obj, first: _with(obj.get(first) or {}, below, value) if below else value}


def _claims(scale: Json) -> Json:
    sent = scale.get("metadata") or {}
    return {field: sent[field] for field in ("name", "namespace", "uid", "resourceVersion") if sent.get(field)}


SCALES: Final = printer_of(("Desired=spec.replicas|0", "Available=status.replicas|0", "Age"))
