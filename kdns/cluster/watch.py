"""Decodes list pages and watch streams, and computes the backoff between requests, without I/O.

Kubernetes API Concepts, "Efficient detection of changes" and "Retrieving large results sets in chunks".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from kdns.cluster.objects import (
    EndpointSlice,
    Key,
    Namespace,
    Node,
    Object,
    Pod,
    Service,
    ServiceCIDR,
    ServiceImport,
    Slim,
)

T_co = TypeVar("T_co", covariant=True)

OBJECT_MAX_BYTES: Final = 16 << 20
"""The longest object; etcd refuses objects of more than a few MiB."""
PART_BYTES: Final = 64 << 10
"""A list is decoded in parts of at least this size."""
CUTS_MAX: Final = 8
"""The most positions that are tried as the end of an item before the decoder waits for more of the list."""

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError)
"""The decoders' errors for bytes that are not the API's JSON."""


class ListMeta(Slim, frozen=True):
    """metadata of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(Slim, Generic[T_co], frozen=True):
    """One page of a list; Go servers write an empty list as null."""

    metadata: ListMeta
    kind: str = ""
    api_version: str = ""
    items: Sequence[T_co] | None = ()


class Event(Slim, frozen=True):
    """One line of a watch. `object` is a Status if `type` is ERROR, else an object of the watched kind."""

    type: str
    object: msgspec.Raw


class Status(Slim, frozen=True):
    """The body of a request that failed (meta/v1 Status)."""

    code: int = 0
    reason: str = ""
    message: str = ""


class _TypeMeta(Slim, frozen=True):
    """The type of an object; objects in a list lack it."""

    kind: str = ""
    api_version: str = ""


class _EndAnnotation(Slim, frozen=True, rename={"value": "k8s.io/initial-events-end"}):
    value: str = ""


class _AnyMeta(Slim, frozen=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: _EndAnnotation | None = None


class _AnyObject(Slim, frozen=True):
    metadata: _AnyMeta


@dataclass(frozen=True, slots=True)
class Timing:
    """Timeouts and intervals of list-and-watch.

    API servers send a bookmark about once a minute, so a watch without a byte for idle_s is dead. It is resumed on a
    new connection, within idle_s + connect_s, without a list. Events that a server lost are found by a relist after the
    first watch that ends later than verify_s, so within verify_s + 2 * watch_s.
    """

    page_objects: int = 500
    connect_s: float = 10.0
    reply_s: float = 30.0  # between two reads of a response
    idle_s: float = 90.0
    initial_s: float = 10.0  # without an event or bookmark before the end of the initial events
    watch_s: float = 300.0  # timeoutSeconds of a watch is a random time between one and two times this
    verify_s: float = 3600.0
    backoff_s: float = 0.8
    backoff_cap_s: float = 30.0
    healthy_s: float = 10.0  # a watch that lasts this long resets the backoff
    report_s: float = 60.0  # between two log events about one outage
    retry_after_cap_s: float = 120.0
    refusals: int = 3  # consecutive error responses to a resumed watch before a new list
    confirm_s: float = 2.0  # from a list that lacks most of the stored objects to the list that confirms it


class Resource:
    """Path and decoders of one kind. A server may lack an `is_optional` kind, or forbid access to it.

    Objects are decoded as `decoded`, a subclass of the kind with more fields. `event_heads` are the types of events,
    and the first bytes of such an event in Go's encoding.
    """

    def __init__(
        self,
        kind: type[Any],
        group: str,
        plural: str,
        *,
        version: str = "v1",
        is_optional: bool = False,
        decoded: type[Any] | None = None,
        name: str = "",
    ) -> None:
        self.name = name or kind.__name__
        self.kind, self.group, self.plural, self.is_optional = kind, group, plural, is_optional
        self.api_version = f"{group}/{version}" if group else version
        self.path = f"/{'apis' if group else 'api'}/{self.api_version}/{plural}"
        decoded = decoded or kind
        self.decode: Callable[[msgspec.Raw], Object] = msgspec.json.Decoder(decoded).decode
        page: msgspec.json.Decoder[Page[Object]] = msgspec.json.Decoder(Page[decoded])  # type: ignore[valid-type]
        self.decode_page = page.decode
        about = f'"object":{{"kind":"{self.name}","apiVersion":"{self.api_version}",'
        self.event_heads = tuple(
            (event, f'{{"type":"{event}",{about}'.encode()) for event in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
        )

    def decoded_as(self, decoded: type[Object]) -> Resource:
        return Resource(self.kind, self.group, self.plural, decoded=decoded)

    def path_in(self, namespace: str) -> str:
        """The path of the collection in one namespace, "" for all."""
        root, _, plural = self.path.rpartition("/")
        return f"{root}/namespaces/{namespace}/{plural}" if namespace else self.path

    @property
    def rbac_rule(self) -> str:
        return f'apiGroups: ["{self.group}"], resources: ["{self.plural}"], verbs: ["list", "watch"]'


RESOURCES: dict[type[Object], Resource] = {
    resource.kind: resource
    for resource in (
        Resource(Namespace, "", "namespaces"),
        Resource(Service, "", "services"),
        Resource(EndpointSlice, "discovery.k8s.io", "endpointslices"),
        Resource(Pod, "", "pods"),
        Resource(Node, "", "nodes"),
        Resource(ServiceCIDR, "networking.k8s.io", "servicecidrs", is_optional=True),
        Resource(ServiceImport, "multicluster.x-k8s.io", "serviceimports", is_optional=True, version="v1alpha1"),
    )
}

_OBJECT_AT = len('{"type":"","object":')
_event = msgspec.json.Decoder(Event).decode
decode_status = msgspec.json.Decoder(Status).decode
_raw_page = msgspec.json.Decoder(Page[msgspec.Raw]).decode
_type_meta = msgspec.json.Decoder(_TypeMeta).decode
_any_object = msgspec.json.Decoder(_AnyObject).decode


@dataclass(frozen=True, slots=True)
class DecodeFailure:
    """An object that is JSON but does not decode as its kind; `key` is None without a name."""

    key: Key | None
    reason: str


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page of a list, or a part of one. Only the last part has `resource_version` and `continue_token`.

    `continue_token` is "" on the last page.
    """

    objects: Sequence[Object]
    failures: tuple[DecodeFailure, ...]
    resource_version: str = ""
    continue_token: str = ""


_NOTHING: Final = ListPage((), ())
_FIRST_ITEM: Final = re.compile(rb'(?<!\\)"items"\s*:\s*\[\s*(\{\s*"[^"\\]*"\s*:)')
"""The start of a list's first item, up to the value of its first field."""
_COMMA: Final = re.compile(rb",\s*\Z")
_SPACES_MAX: Final = 64
"""The most spaces between two items of a list that is decoded in parts."""


class ListDecoder:
    """Decodes one page of a list from its chunks, in parts, so that it takes the memory of a part or an object.

    Items all start with the same field, so a comma before such a start ends a part if the JSON up to there is valid.
    An object that does not decode becomes a DecodeFailure. `feed` and `end` raise one of DECODE_ERRORS if the page is
    not a list of this kind.
    """

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._head = self._item_head = b""
        self._undecoded = bytearray()
        self._enough_bytes = PART_BYTES

    def feed(self, chunk: bytes) -> ListPage:
        self._undecoded += chunk
        if len(self._undecoded) < self._enough_bytes:
            return _NOTHING
        part = self._part()
        if len(self._undecoded) > OBJECT_MAX_BYTES:
            raise msgspec.DecodeError(
                too_long("an object of the list, or a list without kind and metadata before items,")
            )
        self._enough_bytes = min(max(PART_BYTES, 2 * len(self._undecoded)), OBJECT_MAX_BYTES + 1)
        return part

    def end(self) -> ListPage:
        """The last part of the page."""
        return _decoded_page(self._resource, self._head + self._undecoded)

    def _part(self) -> ListPage:
        """Decodes items up to the start of the last one."""
        if not self._head:
            first = _FIRST_ITEM.search(self._undecoded)
            if first is None:
                return _NOTHING
            self._head, self._item_head = bytes(self._undecoded[: first.start(1)]), first[1]
            del self._undecoded[: first.start(1)]
        end = len(self._undecoded)
        for _ in range(CUTS_MAX):
            if (end := self._undecoded.rfind(self._item_head, 0, end)) <= 0:
                break
            if comma := _COMMA.search(self._undecoded, max(0, end - _SPACES_MAX), end):
                try:
                    part = _decoded_page(self._resource, self._head + self._undecoded[: comma.start()] + b"]}")
                except msgspec.DecodeError:  # this comma is within an item
                    continue
                del self._undecoded[:end]
                return part
        return _NOTHING


def _decoded_page(resource: Resource, body: bytes | bytearray) -> ListPage:
    try:
        page = resource.decode_page(body)
    except msgspec.ValidationError:
        return _decoded_one_by_one(resource, body)
    _check_type(page.kind, page.api_version, f"{resource.name}List", resource.api_version)
    return ListPage(page.items or (), (), page.metadata.resource_version, page.metadata.continue_)


def _decoded_one_by_one(resource: Resource, body: bytes | bytearray) -> ListPage:
    page = _raw_page(body)
    _check_type(page.kind, page.api_version, f"{resource.name}List", resource.api_version)
    objects: list[Object] = []
    failures: list[DecodeFailure] = []
    for raw in page.items or ():
        try:
            objects.append(resource.decode(raw))
        except msgspec.ValidationError as error:
            failures.append(DecodeFailure(raw_key(raw), str(error)))
    return ListPage(objects, tuple(failures), page.metadata.resource_version, page.metadata.continue_)


def decode_event(resource: Resource, line: bytes) -> Event:
    """Does not parse the object of a usual event; its decoder does.

    Raises one of DECODE_ERRORS for a line that is neither an event about this kind nor an error.
    """
    for event_type, head in resource.event_heads:
        if line.startswith(head) and line.endswith(b"}"):
            return Event(event_type, msgspec.Raw(line[_OBJECT_AT + len(event_type) : -1]))
    event = _event(line)
    if event.type != "ERROR":
        check_object(resource, event.object)
    return event


def check_object(resource: Resource, raw: msgspec.Raw | bytes) -> None:
    """Raises one of DECODE_ERRORS for an object that is not of this kind."""
    meta = _type_meta(raw)
    _check_type(meta.kind, meta.api_version, resource.name, resource.api_version)


def _check_type(kind: str, api_version: str, wanted_kind: str, wanted_version: str) -> None:
    """DecodeError for another type: its missing fields would look like deleted objects."""
    if (kind, api_version) != (wanted_kind, wanted_version):
        raise msgspec.DecodeError(
            f"expected {wanted_kind} of {wanted_version}, "
            f"got kind {kind or '(none)'} of {api_version or '(no apiVersion)'}"
        )


def raw_key(raw: msgspec.Raw) -> Key | None:
    """Of an object of any kind; None without a name."""
    meta = _meta_of(raw)
    return (meta.namespace, meta.name) if meta.name else None


def resource_version_of(raw: msgspec.Raw) -> str:
    return _meta_of(raw).resource_version


def ends_initial_events(bookmark: msgspec.Raw) -> bool:
    """Whether a bookmark is that after the initial events of a watch (Kubernetes API Concepts, "Streaming lists")."""
    annotations = _meta_of(bookmark).annotations
    return annotations is not None and annotations.value == "true"


def _meta_of(raw: msgspec.Raw) -> _AnyMeta:
    try:
        return _any_object(raw).metadata
    except msgspec.ValidationError:
        return _AnyMeta()


def is_older(version: str, known: str) -> bool:
    """Whether a resourceVersion is lower than a known one: the server was restored or replaced.

    Versions that are not decimal numbers are opaque, and never lower.
    """
    known, version = known.lstrip("0"), version.lstrip("0")
    are_numbers = known.isdecimal() and known.isascii() and version.isdecimal() and version.isascii()
    return are_numbers and (len(version), version) < (len(known), known)


def too_long(what: str) -> str:
    return (
        f"{what} is longer than {OBJECT_MAX_BYTES >> 20} MiB; kdns stops there. "
        "Check that the server is a Kubernetes API, and which object is so large"
    )


class Lines:
    """Splits a stream of chunks into lines; buffers an incomplete line."""

    def __init__(self) -> None:
        self._incomplete = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without empty ones; DecodeError beyond OBJECT_MAX_BYTES."""
        end, newline, others = chunk.partition(b"\n")
        self._incomplete += end
        if len(self._incomplete) > OBJECT_MAX_BYTES:
            raise msgspec.DecodeError(too_long("a watch event"))
        if not newline:
            return []
        *lines, incomplete = others.split(b"\n")
        lines.insert(0, bytes(self._incomplete))
        self._incomplete = bytearray(incomplete)
        return [line for line in lines if line.strip()]


def backoff_s(failures: int, fraction: float, *, base_s: float = 0.8, cap_s: float = 30.0) -> float:
    """The pause after consecutive failures: exponential, with full jitter; `fraction` is random, from 0 to 1.

    Base and cap are those of client-go's reflector.
    Differs: client-go waits between one and two times the step; full jitter spreads many replicas better.
    """
    return fraction * min(cap_s, base_s * 2.0 ** min(failures - 1, 32)) if failures > 0 else 0.0
