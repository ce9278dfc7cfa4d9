"""Events of events.k8s.io/v1: other names for the fields of the stored core/v1 Events.

Events written in this version need more fields than core/v1 Events (kube-apiserver: validation of Events).
Differs: managedFields name the fields of core/v1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kdns.controlplane.meta import formats
from kdns.controlplane.meta.errors import Cause, invalid
from kdns.controlplane.meta.field_errors import invalid_value, invalid_values, required
from kdns.controlplane.meta.kinds import EVENT, EVENT_V1, Json, Kind
from kdns.controlplane.resources.conversion import VersionConversion
from kdns.controlplane.storage.field_selectors import FieldLabels, fields

_NAMES: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
"""Field of core/v1 → field of events.k8s.io/v1; other fields have the same name."""

_STORED_NAMES: Final = {shown: stored for stored, shown in _NAMES.items()}
_TEXTS_MAX: Final = {"reportingInstance": 128, "action": 128, "reason": 128}
_NOTE_MAX: Final = 1024
_UNSET: Final = ("firstTimestamp", "lastTimestamp", "count", "source")
_KEPT: Final = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type"),
    *("eventTime", "action", "related", "reportingComponent", "reportingInstance"),
)
"""Immutable fields, as messages name them except for reportingComponent."""


_SAME: Final = ("metadata.name", "metadata.namespace", "reason", "type")
_ABOUT: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
FIELD_LABELS: Final = FieldLabels(
    {
        **fields(*_SAME),
        **{f"regarding.{name}": getter for name in _ABOUT for getter in fields(f"involvedObject.{name}").values()},
        "reportingController": fields("reportingComponent")["reportingComponent"],
    }
)
"""Field that selectors name in this version → its value in the stored Event."""


def to_events_v1(event: Json) -> Json:
    """Returns a stored Event as events.k8s.io/v1.

    Differs: a missing eventTime is the firstTimestamp, not null, which the Python client rejects.
    """
    found = {_NAMES.get(field, field): value for field, value in event.items()}
    time = event.get("eventTime") or _microseconds(event)
    return {**found, "apiVersion": EVENT_V1.api_version, **({"eventTime": time} if time else {})}


def to_core(event: Json) -> Json:
    """Returns an events.k8s.io/v1 Event as core/v1."""
    found = {_STORED_NAMES.get(field, field): value for field, value in event.items()}
    return {**found, "apiVersion": EVENT.api_version}


def updated(old: Json, sent: Json) -> Json:
    """Returns the Event to store in the place of `old` ({} for a new one). Raises 422 for an incomplete one."""
    event = to_core(sent)
    if old and not old.get("eventTime") and event.get("eventTime") == _microseconds(old):
        event.pop("eventTime", None)
    causes = [*(_complete(event) if event.get("eventTime") else ()), *(_changed(old, event) if old else _new(event))]
    if causes:
        metadata = event.get("metadata") or {}
        raise invalid(EVENT, metadata.get("name") or metadata.get("generateName") or "", causes)
    return event


def configuration(kind: Kind, config: Json) -> Json:
    """Returns the configuration of the stored Event from an applied one."""
    return {**to_core(config), "apiVersion": kind.api_version}


def _microseconds(event: Json) -> str:
    return (event.get("firstTimestamp") or "").replace("Z", ".000000Z")


def _complete(event: Json) -> Iterator[Cause]:
    reporter = event.get("reportingComponent") or ""
    if not reporter:
        yield required("reportingController")
    yield from invalid_values("reportingController", reporter, formats.qualified_name(reporter))
    for field, most in _TEXTS_MAX.items():
        if not event.get(field):
            yield required(field)
        elif len(event[field]) > most:
            yield invalid_value(field, "", f"can have at most {most} characters")
    if len(event.get("message") or "") > _NOTE_MAX:
        yield invalid_value("message", "", f"can have at most {_NOTE_MAX} characters")


def _new(event: Json) -> Iterator[Cause]:
    yield from _series(event)
    if not event.get("eventTime"):
        yield required("eventTime")
    if event.get("type") not in {"Normal", "Warning"}:
        yield invalid_value("type", "", f"has invalid value: {event.get('type') or ''}")
    yield from (invalid_value(field, "", "needs to be unset") for field in _UNSET if event.get(field))


def _changed(old: Json, event: Json) -> Iterator[Cause]:
    if event.get("series") != old.get("series"):
        yield from _series(event)
    for field in _KEPT:
        if (event.get(field) or None) != (old.get(field) or None):
            name = "reportingController" if field == "reportingComponent" else field
            yield invalid_value(name, event.get(field), "field is immutable")


def _series(event: Json) -> Iterator[Cause]:
    series = event.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < 2:
        yield invalid_value("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")


CONVERSION: Final = VersionConversion(EVENT_V1, to_events_v1, updated, configuration, to_core, FIELD_LABELS)
"""The conversion from and to the stored kind."""
