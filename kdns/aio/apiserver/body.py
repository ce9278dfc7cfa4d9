"""The body of a request: read within limits of size and time, decoded from JSON, YAML or protobuf."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from kdns.aio.apiserver.aside import aside
from kdns.aio.files import yaml
from kdns.controlplane.meta import gotext
from kdns.controlplane.meta.errors import StatusError, bad_request
from kdns.controlplane.meta.kinds import Json
from kdns.controlplane.schema.field_validation import ERRORS_MAX, duplicate_fields
from kdns.controlplane.server.patch import APPLY_PATCH
from kdns.controlplane.server.protobuf import messages
from kdns.controlplane.server.protobuf.decoding import decoded as decoded_protobuf
from kdns.controlplane.server.representation import JSON, YAML
from kdns.errors import ManifestError

READ_TIMEOUT_S = 60.0
"""How long a body may take to arrive."""

_YAML_TYPES = frozenset({YAML, "application/x-yaml", "text/yaml", "text/x-yaml", APPLY_PATCH})
_JSON_TYPES = frozenset({JSON, "application/octet-stream", ""})
_READ = f"{JSON}, {YAML}, {messages.MEDIA_TYPE}"
_UNREADABLE = "the object provided is unrecognized: "
_KIND_STRUCT = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body. `duplicates` names the fields that occur twice, each as the API's warning or error says it."""

    value: Any
    duplicates: tuple[str, ...] = ()
    size_bytes: int = 0

    @property
    def obj(self) -> Json:
        """The body as an object; null is an empty object, as Go decodes it. 400 for any other value."""
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            why = gotext.misfit(self.value, f"value of type {_KIND_STRUCT}")
            raise bad_request(f"{_UNREADABLE}couldn't get version/kind; json parse error: {why}")
        return self.value

    @property
    def configuration(self) -> Json:
        """The body of a server-side apply as an object; its 400 differs in the text, which `kubectl apply` shows."""
        if self.value is None or isinstance(self.value, dict):
            return self.obj
        why = gotext.misfit(self.value, f"value of type {gotext.type_name({})}")
        raise bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {why}")


async def read_body(request: web.BaseRequest) -> bytes:
    """The whole body; 413 when it exceeds the request's `client_max_size`, 408 when it does not arrive in time.

    Differs: an encoded body, such as gzip, is 415. kube-apiserver does not inflate bodies either, but answers with 400,
    because the bytes are no object.
    """
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding != "identity":
        message = f"the body of the request has the content encoding {encoding!r}, wanted none"
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


async def decoded_body(body: bytes, media_type: str, *, strictly: bool) -> Body:
    """The value of a body; 400 when it cannot be decoded, 415 for a media type that the server does not read.

    `strictly` looks for duplicate fields.
    """
    return await aside(lambda: _decoded(body, media_type, strictly=strictly), len(body))


def _decoded(body: bytes, media_type: str, *, strictly: bool) -> Body:
    """`decoded_body` at once."""
    if media_type in _YAML_TYPES:
        return _from_yaml(body, strictly=strictly)
    if media_type == messages.MEDIA_TYPE:
        return Body(decoded_protobuf(body), size_bytes=len(body))
    if media_type not in _JSON_TYPES and not media_type.endswith("+json"):
        message = f"the body of the request was in an unknown format - accepted media types include: {_READ}"
        raise StatusError(415, "UnsupportedMediaType", message)
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"{_UNREADABLE}the body is no JSON: {error}") from error
    if not strictly or msgspec.json.encode(value) == body.rstrip():  # decoding lost nothing, so there was no duplicate
        return Body(value, size_bytes=len(body))
    return Body(value, tuple(f'duplicate field "{path}"' for path in duplicate_fields(body)), len(body))


def _from_yaml(body: bytes, *, strictly: bool) -> Body:
    """The value of a YAML body. JSON is tried first: it is YAML too, and what most clients send under this type."""
    try:
        value = msgspec.json.decode(body)
        if not strictly or not duplicate_fields(body):
            return Body(value, size_bytes=len(body))
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    repeated: list[tuple[int, str]] = []
    try:
        documents = yaml.documents("body", body.decode(), repeated)
    except (ManifestError, UnicodeDecodeError) as error:
        raise bad_request(f"{_UNREADABLE}the body is no YAML: {error}") from error
    if len(documents) != 1:
        raise bad_request(f"{_UNREADABLE}wanted one YAML document, found {len(documents)}")
    lines = [f'line {line}: key "{key}" already set in map' for line, key in repeated[:ERRORS_MAX]]
    duplicates = ("\n  ".join(["yaml: unmarshal errors:", *lines]),) if lines and strictly else ()
    return Body(documents[0].value, duplicates, len(body))
