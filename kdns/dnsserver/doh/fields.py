"""The fields of HTTP/2 requests: whether they are well-formed, and those that matter for DNS (RFC 9113 §8)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

Fields = Sequence[tuple[bytes, bytes]]

_SINGLE: Final = (b":method", b":scheme", b":authority", b":path", b"host", b"content-length", b"te")
"""Fields that a request has once."""
_CONNECTION: Final = frozenset({b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"})
"""Fields of HTTP/1.1 (RFC 9113 §8.2.2)."""

# names and values as lines (RFC 9113 §8.2.1)
_VALUE: Final = rb"\n(?![\t ])[^\0\r\n]*+(?<![\t ])\n"
_REGULAR: Final = rb"(?:[!-9;-@\[-~]++" + _VALUE + rb")*+"
_REGULAR_LINES: Final = re.compile(_REGULAR)
_REQUEST_LINES: Final = re.compile(rb"(?::(?:method|scheme|authority|path)" + _VALUE + rb")*+" + _REGULAR)
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")


class RequestHead(NamedTuple):
    """The fields of a request that are used. `length` is that of the body, in bytes, None if the client sent none."""

    method: str
    target: str
    content_type: str
    length: int | None


def request_head(fields: Fields) -> RequestHead | None:
    """Returns the head of a request; None if it is malformed (RFC 9113 §8.1.1)."""
    values = dict(fields)
    if len(values) < len(fields):
        names = [name for name, _ in fields]
        if any(names.count(name) > 1 for name in _SINGLE):
            return None
    method, path, length = values.get(b":method"), values.get(b":path"), values.get(b"content-length")
    host = values.get(b"host")
    authority = values.get(b":authority", host)
    if method == b"CONNECT":
        is_complete = path is None and b":scheme" not in values
    else:
        is_complete = bool(method and path) and b":scheme" in values
    if not is_complete or authority is None or (host is not None and host != authority):
        return None
    if not _are_well_formed(fields, values, _REQUEST_LINES):
        return None
    if length is not None and not _LENGTH.fullmatch(length):
        return None
    return RequestHead(
        (method or b"").decode("latin-1"),
        (path or b"").decode("latin-1"),
        values.get(b"content-type", b"").decode("latin-1"),
        None if length is None else int(length),
    )


def are_trailers(fields: Fields) -> bool:
    """Returns whether the fields may follow a request's body: they are well-formed, without pseudo-header fields."""
    return _are_well_formed(fields, dict(fields), _REGULAR_LINES)


def _are_well_formed(fields: Fields, values: dict[bytes, bytes], lines: re.Pattern[bytes]) -> bool:
    text = b"\n".join((*chain.from_iterable(fields), b""))
    return (
        lines.fullmatch(text) is not None
        and text.count(b"\n") == 2 * len(fields)
        and _CONNECTION.isdisjoint(values)
        and values.get(b"te", b"trailers").lower() == b"trailers"
    )
