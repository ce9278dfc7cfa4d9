"""The representation that a client accepts, and objects, lists and watch events in it.

Media types are JSON and YAML; forms are the object itself, a Table and bare metadata. Plain objects are sent in JSON as
the store encoded them; other responses are encoded per request.

Differs: responses are never protobuf. client-go prefers it and accepts JSON; a client that accepts nothing else gets
406.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import msgspec

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds.catalogue import Catalogue
from kdns.controlplane.kinds.conversion import SCALE, SCALES
from kdns.controlplane.schema.serialization import serialized
from kdns.controlplane.storage.listing import ListResult
from kdns.controlplane.storage.store import StoredObject, WatchEvent, joined_items

JSON: Final = "application/json"
YAML: Final = "application/yaml"
_MEDIA_TYPES = (JSON, YAML)
_STREAM = f"{JSON};stream=watch"
_PARTIAL, _PARTIAL_LIST = "PartialObjectMetadata", "PartialObjectMetadataList"
_FORMS: Final = frozenset({"Table", _PARTIAL, _PARTIAL_LIST})
_SHARED_BYTES_MAX = 16 * 1024
_META_VERSIONS = frozenset({"v1", "v1beta1"})


@dataclass(frozen=True, slots=True)
class Representation:
    """Media type, and the form of objects: "" for objects as they are, or one of _FORMS."""

    media_type: str = JSON
    form: str = ""
    version: str = "v1"

    @property
    def api_version(self) -> str:
        return f"meta.k8s.io/{self.version}"


@dataclass(frozen=True, slots=True)
class MediaRange:
    """One element of an Accept header."""

    media_type: str
    parameters: dict[str, str]
    quality: float


def media_ranges(accept: str) -> list[MediaRange]:
    """Best first (RFC 9110 §12.5.1), without those of quality 0."""
    ranges = []
    for element in accept.split(","):
        media_type, *texts = (part.strip() for part in element.split(";"))
        pairs = (text.partition("=") for text in texts)
        parameters = {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}
        if media_type:
            ranges.append(MediaRange(media_type.lower(), parameters, _quality(parameters.pop("q", "1"))))
    return sorted((accepted for accepted in ranges if accepted.quality > 0), key=lambda accepted: -accepted.quality)


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0


@lru_cache(256)
def representation(accept: str, *, has_forms: bool = True, streams: bool = False) -> Representation:
    """The best representation that the client accepts, for a watch if it `streams`. Raises 406 if there is none."""
    if not accept:
        return Representation()
    ranges = media_ranges(accept)
    if not any(accepted.media_type in {*_MEDIA_TYPES, "*/*", "*"} for accepted in ranges):
        available = [*_MEDIA_TYPES, *([_STREAM] if streams else [])]
        message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(available)}"
        raise StatusError(406, "NotAcceptable", message, {})
    for accepted in ranges:
        for media_type in _MEDIA_TYPES:
            requested = _transformed(accepted.parameters, media_type, has_forms=has_forms)
            if _matches(accepted.media_type, media_type) and requested:
                if streams and media_type != JSON:
                    raise _not_acceptable(_STREAM)
                return requested
    raise _not_acceptable(", ".join(_MEDIA_TYPES))


def _matches(media_range: str, media_type: str) -> bool:
    return media_range in {media_type, "application/*", "*/*", "*"}


def _transformed(parameters: dict[str, str], media_type: str, *, has_forms: bool) -> Representation | None:
    stream = parameters.get("stream", "")
    if stream and (stream != "watch" or media_type != JSON):
        return None
    if not parameters.keys() & {"as", "g", "v"}:
        return Representation(media_type)
    group, version, form = (parameters.get(name, "") for name in ("g", "v", "as"))
    if not has_forms or group != "meta.k8s.io" or version not in _META_VERSIONS:
        return None
    return Representation(media_type, form, version) if form in _FORMS else None


def _not_acceptable(accepted: str) -> StatusError:
    return StatusError(406, "NotAcceptable", f"only the following media types are accepted: {accepted}")


def wants_aggregated_discovery(accept: str) -> bool:
    document = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}.items()
    for accepted in media_ranges(accept):
        if accepted.media_type == JSON and document <= accepted.parameters.items():
            return True
        if accepted.media_type == JSON and not accepted.parameters:
            return False
    return False


IncludeObject: TypeAlias = Literal["None", "Metadata", "Object"]
"""The part of each object that its row carries; the default of the API is Metadata."""


def _partial(obj: Json, api_version: str) -> Json:
    return {"kind": _PARTIAL, "apiVersion": api_version, "metadata": obj.get("metadata", {})}


INITIAL_EVENTS_END = "k8s.io/initial-events-end"

encoded = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Renderer:
    """Renders objects of one kind for one request; `include_object` applies to tables."""

    kinds: Catalogue
    kind: Kind
    shape: Representation
    include_object: IncludeObject = "Metadata"

    @property
    def sends_stored(self) -> bool:
        return not self.shape.form and self.kinds.conversion(self.kind) is None

    def converted(self, obj: Json) -> Json:
        conversion = self.kinds.conversion(self.kind)
        return conversion.read(obj) if conversion else obj

    def object_body(self, version: StoredObject, now_s: float) -> bytes:
        return encoded(self._formed(version.obj, now_s)) if self.shape.form else version.encoded

    def list_body(self, listed: ListResult, now_s: float) -> bytes:
        metadata: Json = {"resourceVersion": listed.resource_version}
        if listed.continue_token:
            metadata["continue"] = listed.continue_token
            if listed.remaining:
                metadata["remainingItemCount"] = listed.remaining
        match self.shape.form:
            case "Table":
                return encoded(self.table([self.converted(obj) for obj in listed.items], now_s, metadata))
            case "PartialObjectMetadata":
                raise _no_form(_PARTIAL, f"is a list ({_go_type(self.kind)}List)")
            case "PartialObjectMetadataList":
                version = self.shape.api_version
                bare = (encoded(_partial(obj, version)) for obj in listed.items)
                return _list(_PARTIAL_LIST, version, metadata, b",".join(bare))
        if self.sends_stored:
            items = joined_items(self.kind, listed.stored)
        else:
            items = b",".join(encoded(self._item(self.converted(obj))) for obj in listed.items)
        return _list(self.kind.list_kind, self.kind.api_version, metadata, items)

    def event(self, event: WatchEvent, now_s: float, *, first: bool) -> bytes:
        """Only the first event has the columns of a table. Equal short events are encoded once."""
        if self.sends_stored:
            return event.line
        line = _shared_line if len(event.stored.encoded) <= _SHARED_BYTES_MAX else _line
        return line(self, event, int(now_s), first=first)

    def bookmark(self, revision: int, now_s: float, *, ends_initial: bool, first: bool) -> bytes:
        """BOOKMARK: everything up to `revision` has been sent."""
        metadata: Json = {"resourceVersion": str(revision)}
        if ends_initial:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        obj = {"kind": self.kind.kind, "apiVersion": self.kind.api_version, "metadata": metadata}
        return self.line("BOOKMARK", obj, now_s, first=first)

    def line(self, event_type: str, obj: Json, now_s: float, *, first: bool) -> bytes:
        shown = self._formed(obj, now_s)
        if self.shape.form == "Table" and not first:
            shown["columnDefinitions"] = None
        return event_line(event_type, shown)

    def _formed(self, obj: Json, now_s: float) -> Json:
        match self.shape.form:
            case "Table":
                return self.table([obj], now_s, {"resourceVersion": obj["metadata"].get("resourceVersion", "")})
            case "PartialObjectMetadata":
                return _partial(obj, self.shape.api_version)
            case "PartialObjectMetadataList":
                raise _no_form(_PARTIAL_LIST, f"is not a list ({_go_type(self.kind)})")
            case _:
                return serialized(self.kind, obj)

    def _item(self, obj: Json) -> Json:
        """Items of a list have neither kind nor apiVersion."""
        return {name: value for name, value in serialized(self.kind, obj).items() if name not in {"kind", "apiVersion"}}

    def table(self, objects: Sequence[Json], now_s: float, metadata: Json) -> Json:
        """`now_s` is in Unix seconds; `metadata` is the list's."""
        kind, conversion = self.kind, self.kinds.conversion(self.kind)
        printer = conversion.printer if conversion else None
        printer = printer or (SCALES if kind is SCALE else self.kinds[kind.stored_kind].printer)
        rows = []
        for obj in objects:
            stored = conversion.stored(obj) if conversion else obj
            row: Json = {"cells": printer.cells(stored, now_s)}
            if printer.conditions and (conditions := printer.conditions(stored)):
                row["conditions"] = conditions
            if self.include_object == "Object":
                row["object"] = serialized(kind, obj)
            elif self.include_object == "Metadata":
                row["object"] = _partial(obj, self.shape.api_version)
            rows.append(row)
        return {
            "kind": "Table",
            "apiVersion": self.shape.api_version,
            "metadata": metadata,
            "columnDefinitions": [column.definition(kind.stored_kind) for column in printer.columns],
            "rows": rows,
        }


def event_line(event_type: str, obj: Json) -> bytes:
    return encoded({"type": event_type, "object": obj}) + b"\n"


def _no_form(form: str, why: str) -> StatusError:
    return StatusError(406, "NotAcceptable", f"you requested {form}, but the requested object {why}")


def _go_type(kind: Kind) -> str:
    """The internal Go type of a kind's objects, which errors name."""
    stored = kind.stored_kind
    return f"*{stored.group.partition('.')[0] or 'core'}.{stored.kind}"


def _line(renderer: Renderer, event: WatchEvent, second: int, *, first: bool) -> bytes:
    return renderer.line(event.type, renderer.converted(event.stored.obj), second, first=first)


_shared_line = lru_cache(maxsize=256)(_line)


def _list(kind: str, api_version: str, metadata: Json, items: bytes) -> bytes:
    head = encoded({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    return b'%b,"items":[%b]}' % (head[:-1], items)


def deleted(kind: Kind, metadata: Json) -> Json:
    details = {"name": metadata["name"], "group": kind.group, "kind": kind.plural, "uid": metadata["uid"]}
    shown = {name: value for name, value in details.items() if value}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": shown}
