"""Padding of responses on encrypted transports, so that sizes do not reveal names (RFC 7830, RFC 8467)."""

from __future__ import annotations

from struct import pack
from typing import Final

from kdns.dns.query import BARE_OPT_BYTES, read_query
from kdns.dns.types import OPT, PADDING
from kdns.dns.wire import records

BLOCK_BYTES: Final = 468
"""Sizes of padded responses are multiples of this (RFC 8467 §4.1)."""
_OPTION_BYTES: Final = 4
_RDLENGTH_BYTES: Final = 2


def is_padded(packet: bytes, question_end: int) -> bool:
    if len(packet) < question_end + BARE_OPT_BYTES + _OPTION_BYTES:
        return False
    edns = read_query(packet).edns
    return edns is not None and any(code == PADDING for code, _ in edns.options)


def padded(wire: bytes, limit_bytes: int) -> bytes:
    """Padded to the next multiple of BLOCK_BYTES, or to `limit_bytes`.

    Unchanged if there is no room for the option, or no OPT at the end, where kdns writes it.
    """
    try:
        scanned = records(wire)
    except ValueError:  # an upstream's bytes
        return wire
    if not scanned or scanned[-1].rtype != OPT or scanned[-1].end != len(wire):
        return wire
    least_bytes = len(wire) + _OPTION_BYTES
    size_bytes = min(-(-least_bytes // BLOCK_BYTES) * BLOCK_BYTES, limit_bytes)
    if size_bytes < least_bytes:
        return wire
    rdata_at = scanned[-1].rdata_at
    length = size_bytes - rdata_at
    option = pack("!HH", PADDING, size_bytes - least_bytes) + bytes(size_bytes - least_bytes)
    return b"".join((wire[: rdata_at - _RDLENGTH_BYTES], pack("!H", length), wire[rdata_at:], option))
