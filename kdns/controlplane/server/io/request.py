"""A request on a resource: its path, query parameters, headers and body as typed values."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import msgspec
from aiohttp import web

from kdns.controlplane.apimachinery.errors import Cause, StatusError, bad_request, invalid
from kdns.controlplane.apimachinery.field_errors import expected, forbidden, invalid_value, required, unsupported
from kdns.controlplane.apimachinery.kinds import NAMESPACE, Json, Kind, Kinds
from kdns.controlplane.apimachinery.size import check_size
from kdns.controlplane.kinds.catalogue import Catalogue
from kdns.controlplane.schema.check import Pairs
from kdns.controlplane.schema.field_validation import ERRORS_MAX, Policy, duplicate_fields, with_duplicates
from kdns.controlplane.server import protobuf, representation
from kdns.controlplane.server.access import User
from kdns.controlplane.server.discovery import kind_at
from kdns.controlplane.server.patch import APPLY_PATCH, PATCH_TYPES
from kdns.controlplane.server.protobuf import ProtobufError
from kdns.controlplane.server.registry import Request
from kdns.controlplane.server.representation import JSON, YAML, IncludeObject, Renderer
from kdns.controlplane.storage.listing import ListOptions
from kdns.runtime.files import yaml

MANAGER_BYTES_MAX = 128
POLICIES = ("", "Ignore", "Strict", "Warn")
_KINDS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}
_UNKNOWN_AGENT = "unknown"
_WITH_NAME = 2
READ_TIMEOUT_S = 60.0
"""Until a body has arrived."""

_YAML_TYPES = frozenset({YAML, "application/x-yaml", "text/yaml", "text/x-yaml", APPLY_PATCH})
_JSON_TYPES = frozenset({JSON, "", *PATCH_TYPES})
_READ = f"{JSON}, {YAML}, {protobuf.MEDIA_TYPE}"
_SURROGATES = re.compile(r"(?P<whole>\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F]..")
"""Escapes of pairs, and of halves. A backslash that is escaped begins no other escape."""


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body. `duplicates` are errors for the fields that occur twice.

    `pairs` is a JSON object with such fields. Errors name the expected `kind`.
    """

    value: Any
    kind: str
    duplicates: tuple[str, ...] = ()
    pairs: Pairs | None = None

    @property
    def obj(self) -> Json:
        """The body as an object; null is an empty object, as Go decodes it. 400 for any other value."""
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            raise _unreadable(self.kind, expected("an object", self.value))
        for name in ("apiVersion", "kind"):
            if not isinstance(self.value.get(name, ""), str | None):
                raise _unreadable(self.kind, f"{name}: {expected('a string', self.value[name])}")
        return self.value


def _unreadable(kind: str, why: str) -> StatusError:
    """400: the body is not an object of the kind; "" means any object."""
    return bad_request(f"the body is not a {kind or 'JSON object'}: {why}")


async def read_body(request: web.BaseRequest) -> bytes:
    """Raises 413 if the body exceeds the request's `client_max_size`, 408 if it is late.

    Differs: an encoded body, such as gzip, is 415. kube-apiserver does not inflate bodies either, but answers 400,
    because the bytes are not an object.
    """
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding != "identity":
        message = f"the body of the request has the content encoding {encoding!r}; send it without"
        raise StatusError(415, "UnsupportedMediaType", message)
    content = request.content
    if content.is_eof() and content.total_bytes <= request.client_max_size:
        return content.read_nowait()  # it arrived with the head, as most do
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            return await request.read()
    except TimeoutError as error:
        raise StatusError(408, "Timeout", f"the body did not arrive within {READ_TIMEOUT_S:.0f} s") from error
    except web.HTTPRequestEntityTooLarge as error:
        message = f"Request entity too large: limit is {request.client_max_size}"
        raise StatusError(413, "RequestEntityTooLarge", message, {}) from error
    except web.RequestPayloadError as error:
        raise bad_request(f"the body cannot be read: {error}") from error


def decoded(body: bytes, media_type: str, *, strictly: bool, kind: str = "") -> Body:
    """Raises 400 if the body cannot be decoded, 413 for too many values, 415 for an unknown media type.

    `strictly` looks for duplicate fields. `kind` is the expected kind of the body.
    """
    result = _decoded(body, media_type, strictly=strictly, kind=kind)
    check_size(result.value, body if media_type in _JSON_TYPES else None)
    return result


def _decoded(body: bytes, media_type: str, *, strictly: bool, kind: str) -> Body:
    if media_type in _YAML_TYPES:
        return _from_yaml(body, strictly=strictly, kind=kind)
    if media_type == protobuf.MEDIA_TYPE:
        try:
            return Body(protobuf.decoded(body), kind)
        except ProtobufError as error:
            raise _unreadable(kind, str(error)) from error
    if media_type not in _JSON_TYPES:
        message = f"the body of the request was in an unknown format - accepted media types include: {_READ}"
        raise StatusError(415, "UnsupportedMediaType", message)
    try:
        body, value = _from_json(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unreadable("patch" if media_type in PATCH_TYPES else kind, str(error)) from error
    if not strictly or msgspec.json.encode(value) == body.rstrip():  # decoding lost nothing, so there was no duplicate
        return Body(value, kind)
    pairs = with_duplicates(body)
    return Body(value, kind, tuple(f'duplicate field "{path}"' for path in duplicate_fields(pairs)), pairs)


def _from_json(body: bytes) -> tuple[bytes, Any]:
    """The text and its value, with U+FFFD for invalid UTF-8 and lone surrogates, as Go reads them."""
    try:
        return body, msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = _SURROGATES.sub(lambda match: match["whole"] or "\\ufffd", body.decode(errors="replace")).encode()
        return text, msgspec.json.decode(text)


def _from_yaml(body: bytes, *, strictly: bool, kind: str) -> Body:
    """Tries JSON first: it is valid YAML, and most clients send it under this type."""
    try:
        value = msgspec.json.decode(body)
        if not strictly or with_duplicates(body) is None:
            return Body(value, kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        stream = yaml.parse("body", body.decode())
    except UnicodeDecodeError as error:
        raise _unreadable(kind, str(error)) from error
    for mistake in stream.mistakes:
        raise _unreadable(kind, f"line {mistake.line}: {mistake.reason}")
    if len(stream.documents) > 1:
        raise _unreadable(kind, f"expected one YAML document, got {len(stream.documents)}")
    value = stream.documents[0].value if stream.documents else None
    duplicates = (f'line {error.line}: duplicate field "{error.field}"' for error in stream.duplicates[:ERRORS_MAX])
    return Body(value, kind, tuple(duplicates) if strictly else ())


INCLUDE_OBJECT: dict[str, IncludeObject] = {"": "Metadata", "None": "None", "Metadata": "Metadata", "Object": "Object"}
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}")  # Python refuses to read thousands of digits


class ResourceRequest:
    """A request whose path names a resource.

    `kind` is the kind of the bodies: the served version, else the kind of the resource or subresource. `media_type` is
    that of the body without parameters, "" without a Content-Type.
    """

    def __init__(self, request: web.BaseRequest, target: Request, user: User, kinds: Catalogue) -> None:
        self.request, self.target, self.user, self.kinds = request, target, user, kinds
        kind = target.served_version or target.kind
        self.kind = kind_at(kind, target.subresource) if target.subresource else kind
        self.media_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    def text(self, name: str) -> str:
        """A query parameter, "" if it is absent."""
        return str(self.request.query.get(name, ""))

    def flag(self, name: str) -> bool | None:
        """None if the query parameter is absent: all values but false and 0 are true."""
        value = self.request.query.get(name)
        return None if value is None else value.lower() not in {"false", "0"}

    def number(self, name: str) -> int:
        """0 if the query parameter is absent. Raises 400 for anything but an integer of 64 bits."""
        text = self.request.query.get(name, "0")
        if _NUMBER.fullmatch(text) and -(1 << 63) <= int(text) < 1 << 63:
            return int(text)
        raise bad_request(f"{name}: {expected('an integer of 64 bits', text)}")

    @property
    def watches(self) -> bool:
        """`watch=true` on a collection. Differs: the deprecated paths below `/watch/` are 404."""
        return self.request.method == "GET" and not self.target.name and bool(self.flag("watch"))

    @cached_property
    def list_options(self) -> ListOptions:
        """Raises 400 for numbers that cannot be parsed."""
        self.number("timeoutSeconds")
        return ListOptions(
            label_selector=self.text("labelSelector"),
            field_selector=self.text("fieldSelector"),
            limit=self.number("limit"),
            continue_token=self.text("continue"),
            resource_version=self.text("resourceVersion"),
            resource_version_match=self.text("resourceVersionMatch"),
            send_initial=self.flag("sendInitialEvents"),
        )

    def write(self) -> Request:
        """The target with the options of a POST, PUT or PATCH. Raises 422 for invalid values."""
        manager, policy, force = self.text("fieldManager"), self.text("fieldValidation"), self.flag("force")
        dry_run, applies = self.request.query.getall("dryRun", []), self.media_type == APPLY_PATCH
        causes = []
        if force is not None and self.request.method == "PATCH" and not applies:
            causes.append(forbidden("force", "may not be specified for non-apply patch"))
        if applies and not manager:
            causes.append(required("fieldManager", "is required for apply patch"))
        if not (manager.isascii() and manager.isprintable() and len(manager) <= MANAGER_BYTES_MAX):
            causes += _manager_causes(manager)
        if dry_run:
            causes += _dry_run_causes(dry_run)
        if policy not in POLICIES:
            causes.append(unsupported("fieldValidation", policy, POLICIES))
        if causes:
            raise _invalid(self.request.method, causes)
        return msgspec.structs.replace(
            self.target,
            manager=manager or manager_of(self.request.headers.get("User-Agent", "")),
            dry_run=bool(dry_run),
            policy=cast("Policy", policy or "Warn"),
            force=bool(force),
        )

    def deletion(self, options: Json) -> Request:
        """The target, as a dry run if query or DeleteOptions say so. Raises 422 for other values."""
        values = [*self.request.query.getall("dryRun", []), *(options.get("dryRun") or [])]
        return msgspec.structs.replace(self.target, dry_run=checked_dry_run(self.request.method, values))

    async def body(self, *, strictly: bool = False) -> Body:
        body = await read_body(self.request)
        return decoded(body, self.media_type, strictly=strictly, kind=self.kind.kind)

    @cached_property
    def renderer(self) -> Renderer:
        """Renders the representation that the client accepts. Raises 400 for a wrong includeObject."""
        include = INCLUDE_OBJECT.get(self.text("includeObject"))
        if include is None:
            raise bad_request(f"includeObject: {expected('None, Metadata or Object', self.text('includeObject'))}")
        accept, has_forms = self.request.headers.get("Accept", ""), not self.kind.is_review
        shape = representation.representation(accept, has_forms=has_forms, streams=self.watches)
        return Renderer(self.kinds, self.kind, shape, include)


def unknown_path() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def target(path: str, kinds: Kinds, refuse: Callable[[Request], object]) -> Request:
    """The resource that a decoded path below /api or /apis names. Raises 404 for an unknown one.

    `refuse` gets a resource with a subresource that its kind does not have, and may raise another error.
    """
    match path.strip("/").split("/"):
        case ["api", version, *segments]:
            api_version = version
        case ["apis", group, version, *segments]:
            api_version = f"{group}/{version}"
        case _:
            raise unknown_path()
    namespace = None
    if segments[:1] == ["namespaces"] and len(segments) > _WITH_NAME and segments[2] not in NAMESPACE.subresources:
        namespace, segments = segments[1], segments[2:]
    plural, name, subresource, *more = (*segments, "", "", "")
    kind, is_placed = kinds.by_plural.get((api_version, plural)), namespace is not None
    if kind is None or "" in segments or namespace == "" or (is_placed and not kind.namespaced):
        raise unknown_path()
    if (name and is_placed != kind.namespaced) or (kind.is_review and (name or is_placed != kind.namespaced)):
        raise unknown_path()
    request = Request(kind.stored_as or kind, namespace, name, subresource, kind if kind.stored_as else None)
    if subresource and subresource not in kind.subresources:
        refuse(request)
        raise unknown_path()
    if any(more):
        raise unknown_path()
    return request


def checked_dry_run(method: str, values: Sequence[str]) -> bool:
    """Raises 422 for any other value than All."""
    if causes := _dry_run_causes(values):
        raise _invalid(method, causes)
    return bool(values)


def manager_of(user_agent: str) -> str:
    """The manager of a client that names none: the printable part of its User-Agent up to the first slash.

    Differs: kube-apiserver gives a client without User-Agent an entry without a name.
    """
    shown = "".join(filter(str.isprintable, user_agent.partition("/")[0]))
    return shown.encode()[:MANAGER_BYTES_MAX].decode(errors="ignore") or _UNKNOWN_AGENT


def _manager_causes(manager: str) -> list[Cause]:
    causes = []
    if len(manager.encode()) > MANAGER_BYTES_MAX:
        causes.append(Cause("fieldManager", "Too long", f"may not be more than {MANAGER_BYTES_MAX} bytes"))
    position = 0
    for letter in manager:
        if not letter.isprintable():
            why = f"invalid character U+{ord(letter):04X} (at position {position})"
            causes.append(invalid_value("fieldManager", manager, why))
        position += len(letter.encode())
    return causes


def _dry_run_causes(values: Sequence[str]) -> list[Cause]:
    return [] if all(value == "All" for value in values) else [unsupported("dryRun", list(values), ("All",))]


def _invalid(method: str, causes: list[Cause]) -> StatusError:
    return invalid(Kind("meta.k8s.io", "v1", _KINDS[method], ""), "", causes)
