"""What a list page and a watch stream say, decoded straight from their bytes, and when to ask again.

Nothing here talks to a server: bytes and numbers come in, values come out. The rules are those of the
Kubernetes API Concepts page, sections "Efficient detection of changes" and "Retrieving large results sets in chunks".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from kdns.cluster.objects import EndpointSlice, Key, Meta, Namespace, Node, Object, Pod, Service, ServiceCIDR, Slim

T_co = TypeVar("T_co", covariant=True)

LINE_LIMIT_BYTES = 16 << 20
"""No event is longer: etcd refuses objects of more than a few MiB."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
"""What the decoders raise for bytes that are not what the API promises."""


class ListMeta(Slim, frozen=True):
    """metadata of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(Slim, Generic[T_co], frozen=True):
    """One page of a list; Go servers write an empty list as null."""

    metadata: ListMeta
    items: Sequence[T_co] | None = ()


class Event(Slim, frozen=True):
    """One line of a watch; what `object` is depends on `type`."""

    type: str
    object: msgspec.Raw


class Status(Slim, frozen=True):
    """The API's answer when it does not do as asked (meta/v1 Status)."""

    code: int = 0
    reason: str = ""
    message: str = ""


class _Identified(Slim, frozen=True):
    metadata: Meta


class _Versioned(Slim, frozen=True):
    metadata: ListMeta


@dataclass(frozen=True, slots=True)
class Timing:
    """How patiently an API is followed; seconds, except page_objects and refusals.

    A watch that is silent for idle_s is taken up again on a new connection from the last resourceVersion, which costs
    no list: API servers send a bookmark about once a minute, so silence means that the stream is dead. Whatever a
    watch loses in spite of that is found by a list compared in place, at the end of the first watch after verify_s.
    So a stalled stream heals within idle_s + connect_s, a server that loses events within verify_s + 2 * watch_s.
    """

    page_objects: int = 500
    connect_s: float = 10.0
    reply_s: float = 30.0  # without a byte of a reply that is due
    idle_s: float = 90.0
    watch_s: float = 300.0  # asked of the server: a random time between one and two times this
    verify_s: float = 3600.0
    backoff_s: float = 0.8
    backoff_cap_s: float = 30.0
    healthy_s: float = 10.0  # a watch that lived so long makes earlier failures forgotten
    report_s: float = 60.0  # between two log lines about the same outage
    retry_after_cap_s: float = 120.0
    refusals: int = 3  # answers in a row that refuse to resume a watch, until everything is listed again


@dataclass(frozen=True, slots=True)
class Resource:
    """How one kind is asked for and read. An API may do without a kind that `is_optional`, or keep it to itself."""

    kind: type[Object]
    group: str
    plural: str
    path: str
    decode: Callable[[msgspec.Raw], Object]
    decode_page: Callable[[bytes], Page[Object]]
    is_optional: bool = False

    @property
    def rbac_rule(self) -> str:
        """The rule a ClusterRole needs so that this kind can be followed."""
        return f'apiGroups: ["{self.group}"], resources: ["{self.plural}"], verbs: ["list", "watch"]'


def _resource(kind: type[Object], group: str, plural: str, *, is_optional: bool = False) -> Resource:
    root = f"/apis/{group}/v1" if group else "/api/v1"
    decode: Callable[[msgspec.Raw], Object] = msgspec.json.Decoder(kind).decode
    page: msgspec.json.Decoder[Page[Object]] = msgspec.json.Decoder(Page[kind])  # type: ignore[valid-type]
    return Resource(kind, group, plural, f"{root}/{plural}", decode, page.decode, is_optional)


RESOURCES: dict[type[Object], Resource] = {
    resource.kind: resource
    for resource in (
        _resource(Namespace, "", "namespaces"),
        _resource(Service, "", "services"),
        _resource(EndpointSlice, "discovery.k8s.io", "endpointslices"),
        _resource(Pod, "", "pods"),
        _resource(Node, "", "nodes"),
        _resource(ServiceCIDR, "networking.k8s.io", "servicecidrs", is_optional=True),
    )
}

decode_event = msgspec.json.Decoder(Event).decode
decode_status = msgspec.json.Decoder(Status).decode
_raw_page = msgspec.json.Decoder(Page[msgspec.Raw]).decode
_identified = msgspec.json.Decoder(_Identified).decode
_versioned = msgspec.json.Decoder(_Versioned).decode


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that is valid JSON but not of its kind's shape; key is None where even the name is missing."""

    key: Key | None
    reason: str


@dataclass(frozen=True, slots=True)
class Listed:
    """What one page brought; continue_token is "" on the last page."""

    objects: Sequence[Object]
    unreadable: tuple[Unreadable, ...]
    resource_version: str
    continue_token: str


def listed(resource: Resource, body: bytes) -> Listed:
    """A page of a list. One object that cannot be read does not take the others with it.

    Raises one of UNREADABLE when the page as a whole is no list.
    """
    try:
        page = resource.decode_page(body)
    except msgspec.ValidationError:
        return _listed_one_by_one(resource, body)
    return Listed(page.items or (), (), page.metadata.resource_version, page.metadata.continue_)


def _listed_one_by_one(resource: Resource, body: bytes) -> Listed:
    page = _raw_page(body)
    objects: list[Object] = []
    unreadable: list[Unreadable] = []
    for raw in page.items or ():
        try:
            objects.append(resource.decode(raw))
        except msgspec.ValidationError as error:
            unreadable.append(Unreadable(key_of(raw), str(error)))
    return Listed(objects, tuple(unreadable), page.metadata.resource_version, page.metadata.continue_)


def key_of(raw: msgspec.Raw) -> Key | None:
    """(namespace, name) of an object of any kind, or None for one without a name."""
    try:
        meta = _identified(raw).metadata
    except msgspec.ValidationError:
        return None
    return meta.namespace, meta.name


def version_of(raw: msgspec.Raw) -> str:
    """metadata.resourceVersion of an object or bookmark, "" when it has none."""
    try:
        return _versioned(raw).metadata.resource_version
    except msgspec.ValidationError:
        return ""


def went_back(known: str, told: str) -> bool:
    """Whether the server's revision is lower than one it has told before: it was restored or replaced.

    Versions that are no decimal numbers can only be compared for equality and never count as lower.
    """
    return known.isdecimal() and told.isdecimal() and int(told) < int(known)


class Lines:
    """Cuts a stream of chunks into whole lines; the rest waits for the next chunk."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without empty ones. Raises DecodeError for an endless line."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LINE_LIMIT_BYTES:
            raise msgspec.DecodeError(f"a watch event is longer than {LINE_LIMIT_BYTES} bytes")
        return [line for line in lines if line.strip()]


def backoff_s(failures: int, fraction: float, *, base_s: float = 0.8, cap_s: float = 30.0) -> float:
    """Seconds to wait after so many failures in a row: exponential with full jitter.

    `fraction` is a random number in 0..1. No failure, no wait. Base and cap are client-go's reflector's.
    Differs: client-go waits between one and two times the step; full jitter spreads many replicas better.
    """
    return fraction * min(cap_s, base_s * 2.0 ** min(failures - 1, 32)) if failures > 0 else 0.0
