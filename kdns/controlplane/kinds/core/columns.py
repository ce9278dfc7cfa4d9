"""The columns of Namespaces, ConfigMaps, Secrets, ServiceAccounts and Events."""

from __future__ import annotations

from typing import Any, Final

from kdns.controlplane.apimachinery.human_duration import since
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.columns import AGE, NAME, Column, Printer, age, name


def namespace_cells(namespace: Json, now_s: float) -> list[Any]:
    """Returns the cells: name, phase, age."""
    return [name(namespace), namespace.get("status", {}).get("phase", ""), age(namespace, now_s)]


def config_map_cells(obj: Json, now_s: float) -> list[Any]:
    """Returns the cells: name, number of keys, age."""
    return [name(obj), len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), age(obj, now_s)]


def secret_cells(obj: Json, now_s: float) -> list[Any]:
    """Returns the cells: name, type, number of keys, age."""
    return [name(obj), obj.get("type", ""), len(obj.get("data") or {}), age(obj, now_s)]


def service_account_cells(obj: Json, now_s: float) -> list[Any]:
    """Returns the cells: name, number of Secrets, age."""
    return [name(obj), len(obj.get("secrets") or ()), age(obj, now_s)]


def event_cells(event: Json, now_s: float) -> list[Any]:
    """Returns the cells: last seen, type, reason, object, subobject, source, message, first seen, count, name."""
    subject, source = event.get("involvedObject", {}), event.get("source", {})
    series = event.get("series")
    first = since(event.get("firstTimestamp") or event.get("eventTime"), now_s)
    last = since(event["lastTimestamp"], now_s) if event.get("lastTimestamp") else first
    count = event.get("count") or 1
    if series:
        last, count = since(series.get("lastObservedTime"), now_s), series.get("count", 0)
    reporter = source.get("component") or event.get("reportingComponent")
    instance = source.get("host") or event.get("reportingInstance")
    return [
        last,
        event.get("type", ""),
        event.get("reason", ""),
        "/".join(filter(None, (subject.get("kind", "").lower(), subject.get("name")))),
        subject.get("fieldPath", ""),
        ", ".join(filter(None, (reporter, instance))),
        event.get("message", "").strip(),
        first,
        count,
        name(event),
    ]


NAMESPACES: Final = Printer((NAME, Column("Status", "status.phase"), AGE), namespace_cells)
CONFIG_MAPS: Final = Printer((NAME, Column("Data", "How many keys it has."), AGE), config_map_cells)
SECRETS: Final = Printer((NAME, Column("Type", "type"), Column("Data", "How many keys it has."), AGE), secret_cells)
SERVICE_ACCOUNTS: Final = Printer((NAME, Column("Secrets", "secrets"), AGE), service_account_cells)
EVENTS: Final = Printer(
    (
        Column("Last Seen", "lastTimestamp"),
        Column("Type", "type"),
        Column("Reason", "reason"),
        Column("Object", "involvedObject"),
        Column("Subobject", "involvedObject.fieldPath", priority=1),
        Column("Source", "source", priority=1),
        Column("Message", "message"),
        Column("First Seen", "firstTimestamp", priority=1),
        Column("Count", "count", priority=1, type="integer"),
        Column("Name", "metadata.name", priority=1, format="name"),
    ),
    event_cells,
)
