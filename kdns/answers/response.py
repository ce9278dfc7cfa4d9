"""The reply of a directive: a response in records, and whether it may be used again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from kdns.answers.order import AS_IS, Order
from kdns.dns.encode import Names, encode_section
from kdns.dns.names import Labels, encode_name, labels_of
from kdns.dns.query import AA, AD, MAX_MESSAGE_BYTES, RA, TC
from kdns.dns.rrset import RRset
from kdns.dns.types import NOERROR
from kdns.dns.wire import Shape
from kdns.tally import Tally
from kdns.values import Value, evolve

Subject: TypeAlias = Hashable
"""Opaque invalidation key of an answer."""

EVERYTHING: Final[Subject] = "everything"
"""The subject of all answers: forgetting it drops all of them."""


RESPONSE_FLAGS: Final = AA | TC | RA | AD
"""The flags that a directive or an upstream decides."""


class Repeat(Value, frozen=True):
    """How later responses to the same packet differ from the one that a cache has just stored.

    They are from `plugin`, and have no AA. `tallies` replace the first `replaced` tallies of the response. TTLs count
    down from `aged_from_s`, None: they are constant.
    """

    plugin: str
    tallies: tuple[Tally, ...]
    replaced: int
    aged_from_s: float | None


class Reuse(Value, frozen=True):
    """How long a response may be reused for the same packet: until a subject is forgotten, or until `expires_s`.

    `expires_s` is on the clock of `Request.received_s`; None: no limit. With `repeat` the response itself is for this
    query only, and later queries get it with these changes.
    """

    subjects: tuple[Subject, ...] = ()
    expires_s: float | None = None
    repeat: Repeat | None = None

    def and_then(self, other: Reuse) -> Reuse:
        if self is PRIVATE or other is PRIVATE:
            return PRIVATE
        if self is NEVER or other is NEVER or self.repeat or other.repeat:
            return NEVER
        ends = [reuse.expires_s for reuse in (self, other) if reuse.expires_s is not None]
        return Reuse((*self.subjects, *other.subjects), min(ends, default=None))


NEVER: Final = Reuse(("never",), 0.0)
"""The response is for this query only; caches may still read its lifetime. Compared by identity."""
PRIVATE: Final = Reuse(("private",), 0.0)
"""The response is for this client only, or temporary, such as before a source is read. Compared by identity."""


NO_METADATA: Final[Mapping[str, str]] = MappingProxyType({})
NO_HEADER: Final = (0, 0)


class ZoneSoa:
    """The SOA of a zone, which may change after answers with it were compiled.

    All negative answers of a zone end in its SOA. They share these tails, which differ only by the position of the zone
    in the question and by the OPT. A new SOA rewrites the tails and does not touch the answers.
    """

    __slots__ = ("_size_bytes", "_tails", "_zone", "rrset")

    def __init__(self, rrset: RRset) -> None:
        self.rrset = rrset
        self._zone: Labels = labels_of(rrset.owner)
        self._size_bytes = len(encode_name(self._zone))
        self._tails: dict[tuple[int, bytes], list[bytes]] = {}

    def renew(self, rrset: RRset) -> None:
        """Rewrites all tails in place; `rrset` has the same owner."""
        self.rrset = rrset
        for (offset, opt), tail in self._tails.items():
            tail[0] = self._record(offset) + opt

    def tail(self, name_end: int, opt: bytes) -> list[bytes]:
        """The SOA record and `opt`, for a question below the zone whose name ends at `name_end`."""
        key = (name_end - self._size_bytes, opt)
        tail = self._tails.get(key)
        if tail is None:
            tail = self._tails[key] = [self._record(key[0]) + opt]
        return tail

    def _record(self, offset: int) -> bytes:
        """With names compressed by pointers to `offset` only, so that the bytes do not depend on the SOA's position.

        The root zone has no labels to point at: its names are written out.
        """
        (record,) = encode_section((self.rrset,), Names.at(self._zone, offset), MAX_MESSAGE_BYTES)
        return record


class MessageSigner(Protocol):
    """Signs a complete message by appending a signature."""

    size_bytes: int
    """The length of the signature."""

    def __call__(self, wire: bytes) -> bytes:
        """Called for each message of a transfer, in order."""
        ...


class Message(Value, frozen=True):
    """An upstream's message without its OPT: sent as received, but for the query's id, flags and spelling.

    Directives that need its records parse it (kdns.answers.decode). `shape` is None for unusual messages.
    """

    wire: bytes
    shape: Shape | None = None


class Encoded(Value, frozen=True):
    """Records in bytes, compressed for one question.

    The owner of each record of `answer` is a pointer to the question; they rotate if `are_addresses`. Only a Source
    (kdns.answers.chain) returns them: directives could not read them.
    """

    answer: tuple[bytes, ...]
    additional: tuple[bytes, ...] = ()
    are_addresses: bool = False


class Response(Value, frozen=True):
    """A response to one query; immutable, `evolve` copies it with changes.

    - Records are RRsets in three sections, or a `body`; then `rcode` and `options` are those of the body.
    - `flags` are those of RESPONSE_FLAGS; `header` are bits of the header to set and to clear, applied last.
    - `soa` is the authority section of a negative answer, if the zone's serial may change.
    - `options` go into the OPT, if the client sent one.
    - TTLs count down from `aged_from_s`, on the clock of `Reuse.expires_s`; None: they are constant.
    - `tallies` count each use of the answer.
    - `plugin` is the directive that made it, for metrics; `error` is the reason for a failure, and `metadata` are those
      of the request, for logs.
    - `zone` is the suffix of the question name that other names may compress to.
    - `wildcard` is the owner of the wildcard that the answer was made from, or "".
    - `more_messages` are further messages of a zone transfer (RFC 5936 §2.2), on streams only.
    - `signer` signs the bytes of all messages.
    """

    rcode: int = NOERROR
    flags: int = 0
    answer: tuple[RRset, ...] = ()
    authority: tuple[RRset, ...] = ()
    additional: tuple[RRset, ...] = ()
    soa: ZoneSoa | None = None
    reuse: Reuse = NEVER
    plugin: str = ""
    zone: str = ""
    order: Order = AS_IS
    options: tuple[tuple[int, bytes], ...] = ()
    body: Message | Encoded | None = None
    more_messages: Iterable[Response] = ()
    aged_from_s: float | None = None
    tallies: tuple[Tally, ...] = ()
    header: tuple[int, int] = NO_HEADER
    error: str = ""
    metadata: Mapping[str, str] = NO_METADATA
    signer: MessageSigner | None = None
    wildcard: str = ""

    @property
    def wire(self) -> bytes:
        """b"" without an upstream's message."""
        return self.body.wire if isinstance(self.body, Message) else b""


def counted_down(response: Response, now_s: float) -> Response:
    """TTLs that count down, counted down to `now_s`; such a response is not reused. It must be in records."""
    if response.aged_from_s is None:
        return response
    age_s = max(0, int(now_s - response.aged_from_s))
    answer, authority, additional = (
        tuple(replace(rrset, ttl=max(0, rrset.ttl - age_s)) for rrset in rrsets)
        for rrsets in (response.answer, response.authority, response.additional)
    )
    reuse = NEVER.and_then(response.reuse)
    return evolve(response, answer=answer, authority=authority, additional=additional, aged_from_s=None, reuse=reuse)
