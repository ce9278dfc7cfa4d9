"""A cheap estimate of the state's memory for objects, within a factor of two.

It depends on the object alone, so that a deletion subtracts exactly what the object added.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kdns.cluster.endpoints import PackedEndpoints
from kdns.cluster.objects import EndpointSlice, Object

STATE_MAX_BYTES: Final = 320 << 20
"""The limit for all kinds of one cluster: 250,000 small Services, or 150,000 Pods with their Services and slices."""
OBJECT_BYTES: Final = 128
"""An object's key, and its entries in the state's dicts."""
TEXT_BYTES: Final = 54
"""A string without its characters."""
STRUCT_BYTES: Final = 64
SHARED_BYTES: Final = 128
"""Subtracted for each endpoint's traits, most of which other endpoints share."""
INDEXED_BYTES: Final = 92
"""An address in an index."""

_encode: Final = msgspec.json.Encoder().encode


def object_bytes(obj: Object) -> int:
    """Without the object's addresses in indexes."""
    text = _encode(obj)
    texts = text.count(b'"') // 2 - text.count(b'":')
    size_bytes = OBJECT_BYTES + len(text) + TEXT_BYTES * texts + STRUCT_BYTES * text.count(b"{")
    if isinstance(obj, EndpointSlice) and isinstance(obj.endpoints, PackedEndpoints):
        size_bytes -= SHARED_BYTES * len(obj.endpoints.traits)
    return max(size_bytes, OBJECT_BYTES)
