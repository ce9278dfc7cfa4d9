"""Bodies in and out: JSON, YAML and protobuf, strictness, pretty printing, compression."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml
from aiohttp import web

from kdns.aio import yamldocs
from kdns.controlplane import protobuf, schema_check
from kdns.controlplane.kinds import Json, Kind
from kdns.controlplane.negotiate import JSON, YAML, Representation
from kdns.controlplane.status import StatusError, bad_request
from kdns.errors import ManifestError

_YAML_TYPES = frozenset({YAML, "application/x-yaml", "text/yaml", "text/x-yaml"})
_READ = f"{JSON}, {YAML}, {protobuf.MEDIA_TYPE}"
_JSON_TYPES = frozenset({JSON, "application/octet-stream", ""})
_COMPRESSED_FROM_BYTES = 128 * 1024
_WARNINGS_MAX, _WARNING_CHARACTERS, _WARNINGS_CHARACTERS = 100, 256, 4096
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_BROWSERS = ("curl/", "Wget/", "Mozilla/")


BODY_S = 60.0
"""How long a body may take to arrive."""


async def body_of(request: web.BaseRequest) -> bytes:
    """The whole body; 413 when it is larger than the server takes, 408 when it does not come."""
    try:
        async with asyncio.timeout(BODY_S):
            return await request.read()
    except TimeoutError as error:
        raise StatusError(408, "Timeout", f"the body did not arrive within {BODY_S:.0f} s") from error
    except web.HTTPRequestEntityTooLarge as error:
        message = f"Request entity too large: limit is {request._client_max_size}"  # noqa: SLF001 - it has no other name
        raise StatusError(413, "RequestEntityTooLarge", message, {}) from error
    except web.RequestPayloadError as error:
        raise bad_request(f"the body cannot be read: {error}") from error


def decoded(body: bytes, media_type: str) -> Any:
    """The JSON, YAML or protobuf value of a body; 400 when it is none, 415 for a type the server does not read."""
    if media_type in _YAML_TYPES:
        return _from_yaml(body)
    if media_type == protobuf.MEDIA_TYPE:
        return protobuf.decoded(body)
    if media_type not in _JSON_TYPES and not media_type.endswith("+json"):
        message = f"the body of the request was in an unknown format - accepted media types include: {_READ}"
        raise StatusError(415, "UnsupportedMediaType", message)
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"the object provided is unrecognized: the body is no JSON: {error}") from error


def _from_yaml(body: bytes) -> Any:
    try:
        found = yamldocs.documents("body", body.decode())
    except (ManifestError, UnicodeDecodeError) as error:
        raise bad_request(f"the object provided is unrecognized: the body is no YAML: {error}") from error
    if len(found) != 1:
        raise bad_request(f"the object provided is unrecognized: wanted one YAML document, found {len(found)}")
    return found[0].value


def decoded_object(body: bytes, media_type: str) -> Json:
    """The object in a body; 400 when there is none."""
    value = decoded(body, media_type)
    if not isinstance(value, dict):
        raise bad_request(f"the object provided is unrecognized: wanted an object, found {type(value).__name__}")
    return value


class Review:
    """The request's fieldValidation: what is done about unknown fields. Warnings gather in `warnings`."""

    def __init__(self, kind: Kind, policy: str) -> None:
        if policy not in {"", "Ignore", "Warn", "Strict"}:
            raise bad_request(f"fieldValidation: found {policy!r}, wanted Ignore, Warn or Strict")
        self.kind, self.policy = kind, policy or "Warn"
        self.warnings: list[str] = []

    def __call__(self, obj: Json) -> Json:
        """The object without unknown fields; 400 for them when strict, and always for values of the wrong type."""
        wrong = schema_check.type_errors(self.kind, obj)
        if wrong:
            raise schema_check.cannot_be_handled(self.kind, wrong[0])
        unknown = [] if self.policy == "Ignore" else schema_check.unknown_fields(self.kind, obj)
        if unknown and self.policy == "Strict":
            raise schema_check.unknown_field_error(self.kind, unknown)
        self.warnings += [f'unknown field "{path}"' for path in unknown]
        return schema_check.prune(self.kind, obj)


def answer(
    request: web.BaseRequest,
    body: bytes,
    *,
    status: int = 200,
    shape: Representation | None = None,
    warnings: list[str] | None = None,
) -> web.Response:
    """JSON bytes as an HTTP response: as YAML, indented or compressed when the client wants it so."""
    media_type = shape.media_type if shape else JSON
    if media_type == YAML:
        body = yaml.dump(
            msgspec.json.decode(body), Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True
        ).encode()
    elif _wants_indent(request):
        body = msgspec.json.format(body, indent=2) + b"\n"
    response = web.Response(status=status, body=body, content_type=media_type)
    for warning in _shown(warnings or []):
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    if len(body) >= _COMPRESSED_FROM_BYTES and "gzip" in request.headers.get("Accept-Encoding", ""):
        compressor = zlib.compressobj(level=1, wbits=31)
        response.body = compressor.compress(body) + compressor.flush()
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Vary"] = "Accept-Encoding"
    return response


def _shown(warnings: list[str]) -> Iterator[str]:
    """As much of the warnings as fits into a header that clients take; control characters are not allowed there."""
    room = _WARNINGS_CHARACTERS
    for warning in warnings[:_WARNINGS_MAX]:
        shown = _CONTROL_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", warning[:_WARNING_CHARACTERS])
        room -= len(shown)
        if room < 0:
            return
        yield shown


def _wants_indent(request: web.BaseRequest) -> bool:
    pretty = request.query.get("pretty")
    if pretty is not None:
        return pretty.lower() not in {"false", "0"}
    return request.headers.get("User-Agent", "").startswith(_BROWSERS)
