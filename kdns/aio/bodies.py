"""Bodies that come in: read within bounds, decoded from JSON, YAML or protobuf, with what strict decoding minds."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from kdns.aio import yamldocs
from kdns.controlplane import gotext, protobuf
from kdns.controlplane.duplicates import duplicate_fields
from kdns.controlplane.kinds import Json
from kdns.controlplane.negotiate import JSON, YAML
from kdns.controlplane.patch import APPLY_PATCH
from kdns.controlplane.status import StatusError, bad_request
from kdns.errors import ManifestError

BODY_S = 60.0
"""How long a body may take to arrive."""

_BESIDE_LOOP_FROM_BYTES = 64 * 1024
_YAML_TYPES = frozenset({YAML, "application/x-yaml", "text/yaml", "text/x-yaml", APPLY_PATCH})
_JSON_TYPES = frozenset({JSON, "application/octet-stream", ""})
_READ = f"{JSON}, {YAML}, {protobuf.MEDIA_TYPE}"
_UNREADABLE = "the object provided is unrecognized: "
_KIND_STRUCT = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body; `duplicates` says in the API's words which of its fields are given twice."""

    value: Any
    duplicates: tuple[str, ...] = ()

    @property
    def obj(self) -> Json:
        """The object that it is, to Go one without fields for null; 400 when it is something else."""
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            why = gotext.misfit(self.value, f"value of type {_KIND_STRUCT}")
            raise bad_request(f"{_UNREADABLE}couldn't get version/kind; json parse error: {why}")
        return self.value

    @property
    def configuration(self) -> Json:
        """The same for a body that is applied; 400 in the words that `kubectl apply` shows."""
        if self.value is None or isinstance(self.value, dict):
            return self.obj
        why = gotext.misfit(self.value, f"value of type {gotext.type_name({})}")
        raise bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {why}")


async def received(request: web.BaseRequest) -> bytes:
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


async def decoded(body: bytes, media_type: str, *, strictly: bool) -> Body:
    """The value of a body; 400 when it is none, 415 for a type that the server does not read.

    `strictly` looks for fields given twice. A large body is decoded in a thread: others need not wait for it.
    """
    if len(body) < _BESIDE_LOOP_FROM_BYTES:
        return decode(body, media_type, strictly=strictly)
    return await asyncio.to_thread(decode, body, media_type, strictly=strictly)


def decode(body: bytes, media_type: str, *, strictly: bool) -> Body:
    """The same, at once."""
    if media_type in _YAML_TYPES:
        return _from_yaml(body, strictly=strictly)
    if media_type == protobuf.MEDIA_TYPE:
        return Body(protobuf.decoded(body))
    if media_type not in _JSON_TYPES and not media_type.endswith("+json"):
        message = f"the body of the request was in an unknown format - accepted media types include: {_READ}"
        raise StatusError(415, "UnsupportedMediaType", message)
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"{_UNREADABLE}the body is no JSON: {error}") from error
    if not strictly or msgspec.json.encode(value) == body.rstrip():  # as programs write it: nothing got lost
        return Body(value)
    return Body(value, tuple(f'duplicate field "{path}"' for path in duplicate_fields(body)))


def _from_yaml(body: bytes, *, strictly: bool) -> Body:
    """YAML, which JSON is too: clients that mean YAML mostly send that."""
    try:
        value = msgspec.json.decode(body)
        if not strictly or not duplicate_fields(body):
            return Body(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    repeated: list[tuple[int, str]] = []
    try:
        found = yamldocs.documents("body", body.decode(), repeated)
    except (ManifestError, UnicodeDecodeError) as error:
        raise bad_request(f"{_UNREADABLE}the body is no YAML: {error}") from error
    if len(found) != 1:
        raise bad_request(f"{_UNREADABLE}wanted one YAML document, found {len(found)}")
    lines = [f'line {line}: key "{key}" already set in map' for line, key in repeated]
    told = ("\n  ".join(["yaml: unmarshal errors:", *lines]),) if lines and strictly else ()
    return Body(found[0].value, told)
