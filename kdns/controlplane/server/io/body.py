"""The body of a request: read within limits of size and time, decoded from JSON, YAML or protobuf."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from kdns.controlplane.apimachinery.errors import StatusError, bad_request
from kdns.controlplane.apimachinery.field_errors import expected
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.apimachinery.size import check_size
from kdns.controlplane.schema.check import Pairs
from kdns.controlplane.schema.field_validation import ERRORS_MAX, duplicate_fields, with_duplicates
from kdns.controlplane.server.patch import APPLY_PATCH, PATCH_TYPES
from kdns.controlplane.server.protobuf import decoding as protobuf
from kdns.controlplane.server.protobuf.wire import ProtobufError
from kdns.controlplane.server.representation import JSON, YAML
from kdns.runtime.files import yaml

READ_TIMEOUT_S = 60.0
"""How long a body may take to arrive."""

_YAML_TYPES = frozenset({YAML, "application/x-yaml", "text/yaml", "text/x-yaml", APPLY_PATCH})
_JSON_TYPES = frozenset({JSON, "", *PATCH_TYPES})
_READ = f"{JSON}, {YAML}, {protobuf.MEDIA_TYPE}"
_SURROGATES = re.compile(r"(?P<whole>\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F]..")
"""Escapes of pairs, and of halves. A backslash that is escaped begins no other escape."""


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body. `duplicates` names the fields that occur twice, each as the API's warning or error says it.

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
    """Returns 400: the body is not an object of the kind, or, if `kind` is "", not an object."""
    return bad_request(f"the body is not a {kind or 'JSON object'}: {why}")


async def read_body(request: web.BaseRequest) -> bytes:
    """Returns the whole body. Raises 413 if it exceeds the request's `client_max_size`, 408 if it is late.

    Differs: an encoded body, such as gzip, is 415. kube-apiserver does not inflate bodies either, but answers with 400,
    because the bytes are not an object.
    """
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding != "identity":
        message = f"the body of the request has the content encoding {encoding!r}; send it without"
        raise StatusError(415, "UnsupportedMediaType", message)
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
    """Returns the value of a body. Raises 400 if it cannot be decoded, 413 for too many values, 415 for an unknown
    media type.

    `strictly` looks for duplicate fields. `kind` is the expected kind of the body.
    """
    whole = _decoded(body, media_type, strictly=strictly, kind=kind)
    check_size(whole.value, body if media_type in _JSON_TYPES else None)
    return whole


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
    """Returns a JSON text and its value, with U+FFFD for invalid UTF-8 and lone surrogates, as Go reads them."""
    try:
        return body, msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        whole = _SURROGATES.sub(lambda found: found["whole"] or "\\ufffd", body.decode(errors="replace")).encode()
        return whole, msgspec.json.decode(whole)


def _from_yaml(body: bytes, *, strictly: bool, kind: str) -> Body:
    """Returns the value of a YAML body.

    JSON is tried first: it is valid YAML, and most clients send it under this type.
    """
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
