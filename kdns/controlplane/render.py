"""Objects, lists and watch events as the bytes of an answer, in the representation a client asked for.

Plain objects are sent as the store encoded them; only tables and bare metadata are made per request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from kdns.controlplane import tables
from kdns.controlplane.kinds import Json, Kind
from kdns.controlplane.listing import ListResult
from kdns.controlplane.negotiate import Representation
from kdns.controlplane.tables import IncludeObject
from kdns.controlplane.views import FORM_VIEWS
from kdns.controlplane.watch import WatchEvent

INITIAL_EVENTS_END = "k8s.io/initial-events-end"

encoded = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Renderer:
    """How one request wants to see objects of one kind; `include_object` is None, Metadata or Object (for tables)."""

    kind: Kind
    shape: Representation
    include_object: IncludeObject = "Metadata"

    def shown(self, obj: Json) -> Json:
        """A stored object in the form that is asked for."""
        view = FORM_VIEWS.get(self.kind)
        return view.read(obj) if view else obj

    def one(self, obj: Json, now_s: float) -> bytes:
        """A single object."""
        match self.shape.form:
            case "Table":
                return encoded(self._table([obj], now_s, obj["metadata"]))
            case "PartialObjectMetadata":
                return encoded(self._partial(obj))
            case _:
                return encoded(obj)

    def many(self, found: ListResult, now_s: float) -> bytes:
        """A page of a list."""
        metadata: Json = {"resourceVersion": found.resource_version}
        if found.continue_token:
            metadata["continue"] = found.continue_token
            if found.remaining:
                metadata["remainingItemCount"] = found.remaining
        match self.shape.form:
            case "Table":
                return encoded(self._table([self.shown(obj) for obj in found.items], now_s, metadata))
            case "PartialObjectMetadata":
                items = b",".join(encoded(self._partial(obj)) for obj in found.items)
                return _list("PartialObjectMetadataList", f"meta.k8s.io/{self.shape.version}", metadata, items)
            case _:
                if self.kind in FORM_VIEWS:
                    items = b",".join(encoded(self.shown(obj)) for obj in found.items)
                else:
                    items = b",".join([version.encoded for version in found.stored])
                return _list(self.kind.list_kind, self.kind.api_version, metadata, items)

    def event(self, event: WatchEvent, now_s: float, *, first: bool) -> bytes:
        """A line of a watch; a table's columns are described in the first only. Encoded once for all alike."""
        made = self.shape.form or self.kind in FORM_VIEWS
        return _shared_line(self, event, int(now_s), first=first) if made else event.line

    def bookmark(self, revision: int, now_s: float, *, ends_initial: bool, first: bool) -> bytes:
        """A BOOKMARK: everything up to `revision` has been sent."""
        metadata: Json = {"resourceVersion": str(revision), "creationTimestamp": None}
        if ends_initial:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        obj = {"kind": self.kind.kind, "apiVersion": self.kind.api_version, "metadata": metadata}
        return self.line("BOOKMARK", obj, now_s, first=first)

    def line(self, event_type: str, obj: Json, now_s: float, *, first: bool) -> bytes:
        """An event of any type."""
        match self.shape.form:
            case "Table":
                shown = self._table([obj], now_s, {"resourceVersion": obj["metadata"]["resourceVersion"]})
                if not first:
                    shown["columnDefinitions"] = None
            case "PartialObjectMetadata":
                shown = self._partial(obj)
            case _:
                shown = obj
        return encoded({"type": event_type, "object": shown}) + b"\n"

    def _table(self, objects: Sequence[Json], now_s: float, metadata: Json) -> Json:
        table = tables.table(self.kind, objects, now_s=now_s, include_object=self.include_object)
        shown = {
            name: metadata[name] for name in ("resourceVersion", "continue", "remainingItemCount") if name in metadata
        }
        return {**table, "apiVersion": f"meta.k8s.io/{self.shape.version}", "metadata": shown}

    def _partial(self, obj: Json) -> Json:
        version = f"meta.k8s.io/{self.shape.version}"
        return {"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": obj["metadata"]}


@lru_cache(maxsize=256)
def _shared_line(renderer: Renderer, event: WatchEvent, second: int, *, first: bool) -> bytes:
    return renderer.line(event.type, renderer.shown(event.stored.obj), second, first=first)


def _list(kind: str, api_version: str, metadata: Json, items: bytes) -> bytes:
    head = encoded({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    return b'%b,"items":[%b]}' % (head[:-1], items)


def error_line(status: Json) -> bytes:
    """An ERROR event: what went wrong, as a Status."""
    return encoded({"type": "ERROR", "object": status}) + b"\n"


def deleted(kind: Kind, obj: Json) -> Json:
    """The Status that answers a DELETE when the object itself does not."""
    metadata = obj["metadata"]
    details = {"name": metadata["name"], "group": kind.group, "kind": kind.plural, "uid": metadata["uid"]}
    shown = {name: value for name, value in details.items() if value}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": shown}
