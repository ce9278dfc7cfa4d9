"""The representation that a client accepts, and objects, lists and watch events in it: JSON, Table, metadata alone.

Plain objects are sent as the store encoded them; only tables and bare metadata are made per request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec

from kdns.controlplane.meta.errors import StatusError
from kdns.controlplane.meta.kinds import FORMS, Json, Kind
from kdns.controlplane.resources.columns import Printer
from kdns.controlplane.resources.strategy import STRATEGIES
from kdns.controlplane.server.views import FORM_VIEWS
from kdns.controlplane.storage.listing import ListResult
from kdns.controlplane.storage.watch import WatchEvent

JSON = "application/json"
YAML = "application/yaml"
_FORMATS = {JSON: JSON, "*/*": JSON, "application/*": JSON, YAML: YAML}
_FORMS = {
    "": "",
    "Table": "Table",
    "PartialObjectMetadata": "PartialObjectMetadata",
    "PartialObjectMetadataList": "PartialObjectMetadata",
}
_SHARED_BYTES_MAX = 16 * 1024
_META_VERSIONS = frozenset({"v1", "v1beta1"})


@dataclass(frozen=True, slots=True)
class Representation:
    """Media type, and the form of objects: "" for objects as they are, Table or PartialObjectMetadata."""

    media_type: str = JSON
    form: str = ""
    version: str = "v1"


@dataclass(frozen=True, slots=True)
class MediaRange:
    """One element of an Accept header."""

    media_type: str
    parameters: dict[str, str]
    quality: float


def media_ranges(accept: str) -> list[MediaRange]:
    """The header's elements, best first, equals in their order (RFC 9110 §12.5.1); those of quality 0 are omitted."""
    ranges = []
    for element in accept.split(","):
        media_type, *rest = (part.strip() for part in element.split(";"))
        pairs = (part.partition("=") for part in rest)
        parameters = {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}
        if media_type:
            ranges.append(MediaRange(media_type.lower(), parameters, _quality(parameters.pop("q", "1"))))
    return sorted((each for each in ranges if each.quality > 0), key=lambda each: -each.quality)


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0


def representation(accept: str) -> Representation:
    """The best representation the client accepts; 406 if there is none."""
    if not accept:
        return Representation()
    for each in media_ranges(accept):
        media_type = _FORMATS.get(each.media_type)
        form = _FORMS.get(each.parameters.get("as", ""))
        if media_type is None or form is None:
            continue
        version = each.parameters.get("v", "v1")
        if form and (each.parameters.get("g") != "meta.k8s.io" or version not in _META_VERSIONS):
            continue
        return Representation(media_type, form, version if form else "v1")
    message = f"only the following media types are accepted: {JSON}, {YAML}"
    raise StatusError(406, "NotAcceptable", message)


def streamed(accept: str) -> Representation:
    """The representation of a watch: JSON, or 406 if the client prefers another."""
    wanted = representation(accept)
    if wanted.media_type != JSON:
        raise StatusError(406, "NotAcceptable", f"only the following media types are accepted: {JSON};stream=watch")
    return wanted


def wants_aggregated_discovery(accept: str) -> bool:
    """Whether the client prefers apidiscovery.k8s.io/v2 to the separate documents."""
    for each in media_ranges(accept):
        if each.media_type != JSON:
            continue
        asked = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}
        if all(each.parameters.get(name) == value for name, value in asked.items()):
            return True
        if not each.parameters:
            return False
    return False


IncludeObject: TypeAlias = Literal["None", "Metadata", "Object"]
"""How much of each object its row carries; the default of the API is Metadata."""


def table(
    kind: Kind,
    objects: Sequence[Json],
    *,
    now_s: float,
    include_object: IncludeObject = "Metadata",
    metadata: Json | None = None,
) -> Json:
    """The objects as a Table at a time (Unix seconds); `metadata` is the list's (resourceVersion, continue)."""
    stored = FORMS.get(kind, kind)
    printer, view = STRATEGIES[stored].printer, FORM_VIEWS.get(kind)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata or {},
        "columnDefinitions": [column.definition(stored) for column in printer.columns],
        "rows": [_row(printer, obj, view.stored(obj) if view else obj, now_s, include_object) for obj in objects],
    }


def _row(printer: Printer, obj: Json, stored: Json, now_s: float, include_object: IncludeObject) -> Json:
    row: Json = {"cells": printer.cells(stored, now_s)}
    if printer.conditions and (conditions := printer.conditions(stored)):
        row["conditions"] = conditions
    match include_object:
        case "Object":
            row["object"] = obj
        case "Metadata":
            partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
            row["object"] = partial | {"metadata": obj.get("metadata", {})}
        case "None":
            pass
    return row


INITIAL_EVENTS_END = "k8s.io/initial-events-end"

encoded = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Renderer:
    """Renders objects of one kind for one request; `include_object` applies to tables."""

    kind: Kind
    shape: Representation
    include_object: IncludeObject = "Metadata"

    def shown(self, obj: Json) -> Json:
        """A stored object in the requested form."""
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
        """A line of a watch. Only the first has the columns of a table. Equal short ones are encoded once."""
        if not (self.shape.form or self.kind in FORM_VIEWS):
            return event.line
        line = _shared_line if len(event.stored.encoded) <= _SHARED_BYTES_MAX else _line
        return line(self, event, int(now_s), first=first)

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
        made = table(self.kind, objects, now_s=now_s, include_object=self.include_object)
        shown = {
            name: metadata[name] for name in ("resourceVersion", "continue", "remainingItemCount") if name in metadata
        }
        return {**made, "apiVersion": f"meta.k8s.io/{self.shape.version}", "metadata": shown}

    def _partial(self, obj: Json) -> Json:
        version = f"meta.k8s.io/{self.shape.version}"
        return {"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": obj["metadata"]}


def _line(renderer: Renderer, event: WatchEvent, second: int, *, first: bool) -> bytes:
    return renderer.line(event.type, renderer.shown(event.stored.obj), second, first=first)


_shared_line = lru_cache(maxsize=256)(_line)


def _list(kind: str, api_version: str, metadata: Json, items: bytes) -> bytes:
    head = encoded({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    return b'%b,"items":[%b]}' % (head[:-1], items)


def error_line(status: Json) -> bytes:
    """An ERROR event with a Status."""
    return encoded({"type": "ERROR", "object": status}) + b"\n"


def deleted(kind: Kind, obj: Json) -> Json:
    """The Status that answers a DELETE which does not return the object."""
    metadata = obj["metadata"]
    details = {"name": metadata["name"], "group": kind.group, "kind": kind.plural, "uid": metadata["uid"]}
    shown = {name: value for name, value in details.items() if value}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": shown}
