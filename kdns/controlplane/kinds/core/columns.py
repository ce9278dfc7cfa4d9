"""The columns of Namespaces, ConfigMaps, Secrets, ServiceAccounts and Events."""

from __future__ import annotations

from typing import Any, Final

from kdns.controlplane.apimachinery.human_duration import since
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.columns import Column, Printer, name, printer_of


def event_cells(event: Json, now_s: float) -> list[Any]:
    """Returns the cells: last seen, type, reason, object, message, name."""
    subject, series = event.get("involvedObject", {}), event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("firstTimestamp"))
    return [
        since(next(filter(None, times), event.get("eventTime")), now_s),
        event.get("type", ""),
        event.get("reason", ""),
        "/".join(filter(None, (subject.get("kind", "").lower(), subject.get("name")))),
        event.get("message", "").strip(),
        name(event),
    ]


NAMESPACES: Final = printer_of(("Status=status.phase", "Age"))
CONFIG_MAPS: Final = printer_of(("Data=#data+binaryData", "Age"))
SECRETS: Final = printer_of(("Type=type", "Data=#data", "Age"))
SERVICE_ACCOUNTS: Final = printer_of(("Secrets=#secrets", "Age"))
EVENTS: Final = Printer(
    (
        Column("Last Seen", "lastTimestamp"),
        Column("Type", "type"),
        Column("Reason", "reason"),
        Column("Object", "involvedObject"),
        Column("Message", "message"),
        Column("Name", "metadata.name", priority=1, format="name"),
    ),
    event_cells,
)
