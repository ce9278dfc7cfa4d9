"""Bodies that go out: JSON and YAML, warnings, pretty printing, compression."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Iterator

import msgspec
import yaml
from aiohttp import web

from kdns.controlplane.negotiate import JSON, YAML, Representation

_COMPRESSED_FROM_BYTES, _BESIDE_LOOP_FROM_BYTES = 128 * 1024, 256 * 1024
_WARNINGS_MAX, _WARNING_CHARACTERS, _WARNINGS_CHARACTERS = 100, 256, 4096
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_BROWSERS = ("curl/", "Wget/", "Mozilla/")


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
    warn(response, warnings or [])
    if len(body) >= _COMPRESSED_FROM_BYTES and "gzip" in request.headers.get("Accept-Encoding", ""):
        compressor = zlib.compressobj(level=1, wbits=31)
        response.body = compressor.compress(body) + compressor.flush()
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Vary"] = "Accept-Encoding"
    return response


async def large_answer(request: web.BaseRequest, body: bytes, *, shape: Representation) -> web.Response:
    """The same for what may be long: others need not wait while it is compressed or turned into YAML."""
    if len(body) < _BESIDE_LOOP_FROM_BYTES:
        return answer(request, body, shape=shape)
    return await asyncio.to_thread(answer, request, body, shape=shape)


def warn(response: web.StreamResponse, warnings: list[str]) -> None:
    """Add Warning headers, which kubectl shows and other clients log."""
    for warning in _shown(warnings):
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')


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
