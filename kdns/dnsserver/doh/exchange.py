"""DNS over HTTPS as values (RFC 8484): the query in a request, and the cache lifetime of its response."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from http import HTTPStatus
from struct import unpack_from
from typing import Final, NamedTuple
from urllib.parse import unquote, unquote_to_bytes

from kdns.dns.names import skip_name
from kdns.dns.query import HEADER_BYTES, MAX_MESSAGE_BYTES
from kdns.dns.types import OPT, SOA
from kdns.dns.wire import records, shape_of

PATH: Final = "/dns-query"
MEDIA_TYPE: Final = "application/dns-message"
METHODS: Final = ("GET", "POST")
NO_RECORDS_S: Final = 5
"""The cache lifetime of a response without records, as in CoreDNS."""
MAX_AGE_S: Final = 3600
"""The longest cache lifetime of a response, as in CoreDNS."""

_BASE64URL: Final = re.compile(rb"[A-Za-z0-9_-]+")
_QUESTIONS_AT: Final = 4
_ONE: Final = b"\0\1"


class HttpError(Exception):
    """The client does not speak this version of HTTP; `to_send` has the bytes that say so."""


@dataclass(slots=True)
class HttpRequest:
    """One request, possibly incomplete. `is_cut`: the body is too long, and dropped."""

    stream: int
    method: str
    target: str
    content_type: str = ""
    body: bytes = b""
    is_cut: bool = False


class Refusal(NamedTuple):
    """An HTTP error, with the reason as its body."""

    status: HTTPStatus
    text: str


def query_of(request: HttpRequest) -> bytes | Refusal:
    """The DNS message of a request, or the error.

    Differs: a wrong method, a wrong content type and a body that is too long are 405, 415 and 413 (RFC 9110); CoreDNS
    answers 400.
    """
    path, _, parameters = request.target.partition("?")
    if path != PATH:
        return Refusal(HTTPStatus.NOT_FOUND, f"the path is {PATH}")
    if request.method not in METHODS:
        return Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"the methods are {' and '.join(METHODS)}")
    if request.is_cut:
        return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a message has at most {MAX_MESSAGE_BYTES} bytes")
    if request.method == "POST":
        if request.content_type.partition(";")[0].strip().lower() != MEDIA_TYPE:
            return Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the content type is {MEDIA_TYPE}")
        return request.body or Refusal(HTTPStatus.BAD_REQUEST, "the body is empty")
    return _parameter(parameters)


def _parameter(parameters: str) -> bytes | Refusal:
    """The message in the parameter `dns`: base64url without padding (RFC 8484 §6)."""
    pairs = (pair.partition("=") for pair in parameters.split("&"))
    values = [value for name, _, value in pairs if unquote(name) == "dns"]
    if len(values) != 1:
        return Refusal(HTTPStatus.BAD_REQUEST, "the parameter `dns` holds the message, once")
    text = unquote_to_bytes(values[0])
    if not _BASE64URL.fullmatch(text) or len(text) % 4 == 1:  # Python's decoder skips other characters
        return Refusal(HTTPStatus.BAD_REQUEST, "the parameter `dns` is base64url without padding")
    return urlsafe_b64decode(text + b"=" * (-len(text) % 4))


def max_age_s(wire: bytes) -> int:
    """The cache lifetime of a response: at most that of any record (RFC 8484 §5.1) and MINIMUM (RFC 2308 §5)."""
    try:
        if wire.startswith(_ONE, _QUESTIONS_AT):
            shape = shape_of(wire, skip_name(wire, HEADER_BYTES) + 4)
            if shape:
                return min(MAX_AGE_S, shape.ttl_s(wire))
        scanned = [record for record in records(wire) if record.rtype != OPT]
    except ValueError:
        return 0
    ttls = [record.ttl for record in scanned]
    ttls += [unpack_from("!I", wire, record.end - 4)[0] for record in scanned if record.rtype == SOA]
    return min(*ttls, MAX_AGE_S) if ttls else NO_RECORDS_S
