"""The messages between the server and a worker, and their bytes.

A subject is its hash: two subjects with the same hash drop more answers than necessary, never fewer.
Numbers name listeners, servers, tails and tallies; the server's process gives them and never reuses one.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from kdns.dnsserver.answers.answer import ResponseKind

MESSAGE_BYTES: Final = 64 << 10
"""The longest message: less than the smallest buffer of a Linux socket. An answer that is longer has no copies."""
BATCH_BYTES: Final = 32 << 10
"""Shorter messages are sent together, up to so many bytes."""
ITEMS: Final = 256
"""The most items of one message; further ones are in the next message."""
_SIZE: Final = Struct("=I")


class Hello(msgspec.Struct, tag=0, array_like=True, frozen=True):
    """The first message to a worker: the process that it dies with, and the form of its log."""

    parent: int
    log_level: str
    log_format: str


class Attach(msgspec.Struct, tag=1, array_like=True, frozen=True):
    """A request to read the socket that comes with it, as listener `number` of a server."""

    number: int
    server: int
    family: int


class Detach(msgspec.Struct, tag=2, array_like=True, frozen=True):
    """A request to stop reading a listener's socket."""

    number: int


class Keep(msgspec.Struct, tag=3, array_like=True, frozen=True):
    """A copy of an answer. Its bodies are `bodies`, or those of a tail that it shares if `tail` is not 0.

    `tallies` is the number of its tallies, 0 if it has none. Times are on CLOCK_MONOTONIC, which processes share.
    """

    server: int
    family: int
    key: bytes
    head: bytes
    question_end: int
    bodies: tuple[bytes, ...]
    tail: int
    kind: ResponseKind
    hits: int
    tallies: int
    until_s: float
    aged_from_s: float | None
    ttls: tuple[bytes, ...]
    expires_s: float
    subjects: tuple[int, ...]


class Tail(msgspec.Struct, tag=4, array_like=True, frozen=True):
    """The bytes of a tail that negative answers of a server share, from now on."""

    server: int
    number: int
    body: bytes


class Forget(msgspec.Struct, tag=5, array_like=True, frozen=True):
    """A request to drop the answers of a server that depend on one of these subjects."""

    server: int
    subjects: tuple[int, ...]


class Clear(msgspec.Struct, tag=6, array_like=True, frozen=True):
    """A request to drop all answers and tails of a server."""

    server: int


class ReportNow(msgspec.Struct, tag=7, array_like=True, frozen=True):
    """A request for a Report with this number."""

    number: int


class LookAtNext(msgspec.Struct, tag=8, array_like=True, frozen=True):
    """A request for the queries of the next burst as samples."""


class Miss(msgspec.Struct, tag=9, array_like=True, frozen=True):
    """A packet that a worker does not answer, and its client's address as socket.recvfrom returns it."""

    number: int
    packet: bytes
    client: tuple[str | int, ...]
    received_s: float
    is_sample: bool = False


class AttachAck(msgspec.Struct, tag=10, array_like=True, frozen=True):
    """The worker reads the socket of a listener."""

    number: int


class DetachAck(msgspec.Struct, tag=11, array_like=True, frozen=True):
    """The worker does not read the socket any more; all misses of the listener were sent."""

    number: int


class ListenerCounts(NamedTuple):
    """The counts of a listener since the last report: those of Requests."""

    number: int
    durations: tuple[int, ...]
    sum_s: float
    unsent: int
    shed: int


class KindCount(NamedTuple):
    """Responses of one kind since the last report."""

    server: int
    family: int
    kind: ResponseKind
    times: int


class Report(msgspec.Struct, tag=12, array_like=True, frozen=True):
    """Counts since the last report, in several messages. The last of them has the number of the last ReportNow, or 0.

    `uses` are those of tallies by their number, `dropped` is the number of dropped copies with these tallies.
    """

    number: int = 0
    listeners: tuple[ListenerCounts, ...] = ()
    kinds: tuple[KindCount, ...] = ()
    uses: dict[int, int] = {}
    dropped: dict[int, int] = {}


class Sample(msgspec.Struct, tag=13, array_like=True, frozen=True):
    """A query that a worker answered, for the status page."""

    packet: bytes
    client: str
    wire: bytes


ToWorker: TypeAlias = Hello | Attach | Detach | Keep | Tail | Forget | Clear | ReportNow | LookAtNext
FromWorker: TypeAlias = Miss | AttachAck | DetachAck | Report | Sample
Message: TypeAlias = ToWorker | FromWorker

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Message).decode


def framed(message: Message) -> bytes:
    """Returns the bytes of a message behind their number."""
    data = _encode(message)
    return _SIZE.pack(len(data)) + data


def messages(batch: memoryview) -> Iterator[Any]:
    """Yields the messages of a batch; raises msgspec.DecodeError or struct.error for other bytes."""
    at = 0
    while at < len(batch):
        (size_bytes,) = _SIZE.unpack_from(batch, at)
        at += _SIZE.size
        yield _decode(batch[at : at + size_bytes])
        at += size_bytes
