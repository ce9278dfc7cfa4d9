"""Frame Streams: the framing of dnstap messages on a connection (fstrm's protocol, bidirectional).

A data frame is its length in 4 bytes, and its content. A control frame has the length 0, then its own length, and one
type.
"""

from __future__ import annotations

from struct import pack, unpack_from
from typing import Final

ACCEPT: Final = 1
START: Final = 2
STOP: Final = 3
READY: Final = 4
FINISH: Final = 5
CONTENT_TYPE_FIELD: Final = 1
MAX_CONTROL_BYTES: Final = 512
CONTENT_TYPE: Final = b"protobuf:dnstap.Dnstap"


def data_frame(content: bytes) -> bytes:
    return pack("!I", len(content)) + content


def control_frame(kind: int) -> bytes:
    """Returns a control frame; frames that name the content name dnstap's."""
    field = pack("!II", CONTENT_TYPE_FIELD, len(CONTENT_TYPE)) + CONTENT_TYPE if kind in {READY, START, ACCEPT} else b""
    return pack("!III", 0, 4 + len(field), kind) + field


def control_kind(content: bytes, expected: int) -> int:
    """Returns the type of a control frame; ValueError for another type than expected, or for other content."""
    if len(content) < 4:
        raise ValueError("a control frame without a type")
    (kind,) = unpack_from("!I", content)
    if kind != expected:
        raise ValueError(f"expected a control frame of type {expected}, got type {kind}")
    types, position = [], 4
    while position + 8 <= len(content):
        field, size = unpack_from("!II", content, position)
        if field == CONTENT_TYPE_FIELD:
            types.append(content[position + 8 : position + 8 + size])
        position += 8 + size
    if types and CONTENT_TYPE not in types:
        raise ValueError(f"the reader wants {types[0]!r}")
    return int(kind)
