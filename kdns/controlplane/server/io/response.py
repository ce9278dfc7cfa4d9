"""Responses: media types, indentation, gzip and Warning headers."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Iterator, Sequence

import msgspec
from aiohttp import hdrs, web

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.server.representation import (
    JSON,
    YAML,
    Representation,
    encoded,
    representation,
)
from kdns.runtime.files.yaml import dumped

_PIECE_BYTES = 256 * 1024
_STALLED_S = 60.0
"""A client that leaves a piece unread longer is disconnected."""
_COMPRESSED_FROM_BYTES = 128 * 1024
_WARNINGS_MAX, _WARNING_CHARACTERS, _WARNINGS_CHARACTERS = 100, 256, 4096
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_WEIGHT = re.compile(r"0(?:\.\d{0,3})?|1(?:\.0{0,3})?")
_BROWSERS = ("curl/", "Wget/", "Mozilla/")


NOT_CACHED = {"Cache-Control": "no-cache, private"}
"""Objects may be secret, and may change, so no proxy may cache a response."""


def response_to(
    request: web.BaseRequest,
    body: bytes,
    *,
    status: int = 200,
    shape: Representation | None = None,
    warnings: Sequence[str] = (),
) -> web.Response:
    """JSON, or YAML of it, in the indentation and compression of the request."""
    media_type = shape.media_type if shape else JSON
    if media_type == YAML:
        body = dumped(msgspec.json.decode(body)).encode()
    elif _wants_indent(request):
        body = msgspec.json.format(body, indent=2) + b"\n"
    response = web.Response(status=status, body=body, content_type=media_type, headers=NOT_CACHED)
    if warnings:
        add_warnings(response, warnings)
    if len(body) >= _COMPRESSED_FROM_BYTES and accepts_gzip(request.headers.get("Accept-Encoding", "")):
        compressor = zlib.compressobj(level=1, wbits=31)
        response.body = compressor.compress(body) + compressor.flush()
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Vary"] = "Accept-Encoding"
    return response


def accepts_gzip(accept_encoding: str) -> bool:
    """gzip is accepted and not worse than identity (RFC 9110 §12.5.3); an invalid weight is 0."""
    weights: dict[str, float] = {}
    for part in accept_encoding.lower().split(","):
        coding, _, parameter = part.partition(";")
        name, _, text = parameter.partition("=")
        is_weight = name.strip() == "q" and _WEIGHT.fullmatch(text.strip())
        weights[coding.strip()] = (float(text) if is_weight else 0.0) if parameter.strip() else 1.0
    gzip = weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0)))
    return gzip > 0 and gzip >= weights.get("identity", 0.0)


def object_response(
    request: web.BaseRequest, obj: Json, *, status: int = 200, warnings: Sequence[str] = ()
) -> web.Response:
    """Serves objects without other forms, such as a Status. Raises 406 if the client accepts neither JSON nor YAML."""
    shape = representation(request.headers.get("Accept", ""), has_forms=False)
    return response_to(request, encoded(obj), status=status, shape=shape, warnings=warnings)


def error_response(request: web.BaseRequest, error: StatusError) -> web.Response:
    """Falls back to JSON for a client that accepts no media type of the server."""
    try:
        return object_response(request, error.body(), status=error.code)
    except StatusError:
        return response_to(request, encoded(error.body()), status=error.code)


async def send(request: web.BaseRequest, response: web.Response, body: bytes) -> None:
    """Sends a large body in pieces; the connection of a client that leaves one unread is aborted."""
    await response.prepare(request)
    try:
        for start in range(0, len(body), _PIECE_BYTES):
            async with asyncio.timeout(_STALLED_S):
                await response.write(body[start : start + _PIECE_BYTES])
    except TimeoutError:
        if transport := request.transport:
            transport.abort()
        return
    await web.StreamResponse.write_eof(response)


def add_warnings(response: web.StreamResponse, warnings: Sequence[str]) -> None:
    """Warning headers (code 299), which kubectl prints and other clients log, before existing ones."""
    existing = response.headers.popall(hdrs.WARNING, [])
    for warning in _truncated(warnings):
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add(hdrs.WARNING, f'299 - "{quoted}"')
    for header in existing:
        response.headers.add(hdrs.WARNING, header)


def _truncated(warnings: Sequence[str]) -> Iterator[str]:
    """Bounded as clients' headers are, without control characters."""
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
