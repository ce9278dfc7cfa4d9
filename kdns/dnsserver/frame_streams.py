"""Frame Streams: the framing of dnstap messages on a connection (fstrm's protocol, bidirectional).

A data frame is its length in 4 bytes, and its content. A control frame has the length 0, then its own length, and one
type.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import pack, unpack_from
from typing import Final, Literal, TypeAlias

from kdns.dnsserver.listener_options import TlsConfig
from kdns.net import HostPort

ACCEPT: Final = 1
START: Final = 2
STOP: Final = 3
READY: Final = 4
FINISH: Final = 5
CONTENT_TYPE_FIELD: Final = 1
MAX_CONTROL_BYTES: Final = 512
CONTENT_TYPE: Final = b"protobuf:dnstap.Dnstap"

Scheme: TypeAlias = Literal["unix", "tcp", "tls"]


@dataclass(frozen=True, slots=True)
class FrameSpec:
    """The destination of frames: a socket's `path`, or an `address`; `skip_verify` disables verification of TLS.

    With `listens`, collectors connect to it, and `tls` is the certificate of this end.
    At most `queued` frames wait, and `buffer_bytes` of them are written to a connection at a time.
    """

    scheme: Scheme
    path: str = ""
    address: HostPort | None = None
    skip_verify: bool = False
    queued: int = 10_000
    buffer_bytes: int = 1 << 20
    listens: bool = False
    tls: TlsConfig | None = None

    def __str__(self) -> str:
        return f"unix://{self.path}" if self.scheme == "unix" else f"{self.scheme}://{self.address}"


def data_frame(content: bytes) -> bytes:
    """Returns a data frame."""
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
