"""Encodes dnstap's protobuf messages (dnstap.proto) by hand: they have few fields."""

from __future__ import annotations

from typing import Final, NamedTuple

from kdns.net import packed, without_zone

CLIENT_QUERY: Final = 5
CLIENT_RESPONSE: Final = 6
FORWARDER_QUERY: Final = 7
FORWARDER_RESPONSE: Final = 8

INET: Final = 1
INET6: Final = 2
PROTOCOLS: Final = {"udp": 1, "tcp": 2, "tls": 3, "https": 4, "quic": 7}

NANOSECONDS: Final = 1_000_000_000

_VARINT: Final = 0
_BYTES: Final = 2
_FIXED32: Final = 5
_DNSTAP_MESSAGE: Final = 1


class Tap(NamedTuple):
    """One message; times are in Unix seconds, None is unknown.

    `initiator` sent the query, to `responder`. `query` and `response` are None unless `full`.
    """

    kind: int
    transport: str
    initiator: tuple[str, int]
    query_s: float
    responder: tuple[str, int] | None = None
    response_s: float | None = None
    query: bytes | None = None
    response: bytes | None = None


def payload(tap: Tap, identity: bytes, version: bytes, extra: bytes = b"") -> bytes:
    body = message(tap)
    head = b"".join(_text(field, text) for field, text in ((1, identity), (2, version), (3, extra)) if text)
    return head + _text(14, body) + _number(15, _DNSTAP_MESSAGE)


def message(tap: Tap) -> bytes:
    initiator = packed(without_zone(tap.initiator[0]))
    parts = [_number(1, tap.kind)]
    responder = packed(without_zone(tap.responder[0])) if tap.responder else b""
    if known := initiator or responder:
        parts.append(_number(2, INET if len(known) == 4 else INET6))
    parts.append(_number(3, PROTOCOLS.get(tap.transport, PROTOCOLS["udp"])))
    if initiator:
        parts.append(_text(4, initiator))
    if responder:
        parts.append(_text(5, responder))
    if initiator:
        parts.append(_number(6, tap.initiator[1]))
    if tap.responder and responder:
        parts.append(_number(7, tap.responder[1]))
    parts.append(_time(8, tap.query_s))
    if tap.query is not None:
        parts.append(_text(10, tap.query))
    if tap.response_s is not None:
        parts.append(_time(12, tap.response_s))
    if tap.response is not None:
        parts.append(_text(14, tap.response))
    return b"".join(parts)


def _time(field: int, unix_s: float) -> bytes:
    seconds, nanoseconds = divmod(round(unix_s * NANOSECONDS), NANOSECONDS)
    return _number(field, seconds) + _key(field + 1, _FIXED32) + nanoseconds.to_bytes(4, "little")


def _number(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + varint(value)


def _text(field: int, value: bytes) -> bytes:
    return _key(field, _BYTES) + varint(len(value)) + value


def _key(field: int, wire_type: int) -> bytes:
    return varint(field << 3 | wire_type)


def varint(value: int) -> bytes:
    """Groups of 7 bits, the lowest first."""
    octets = bytearray()
    while value > 127:
        octets.append(value & 127 | 128)
        value >>= 7
    octets.append(value)
    return bytes(octets)
