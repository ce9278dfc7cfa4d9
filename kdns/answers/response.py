"""The reply of a directive: a response in records, and whether it may be used again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from kdns.answers.order import AS_IS, Order
from kdns.dns.encode import Names, encode_section
from kdns.dns.names import Labels, encode_name, labels_of
from kdns.dns.query import MAX_MESSAGE_BYTES
from kdns.dns.rrset import RRset
from kdns.dns.types import NOERROR
from kdns.dns.wire import Shape
from kdns.tally import Tally
from kdns.values import Value, evolve

Subject: TypeAlias = Hashable
"""Opaque invalidation key of an answer."""

EVERYTHING: Final[Subject] = "everything"
"""The subject of all answers: touching it drops all of them."""


class Repeat(Value, frozen=True):
    """The difference between a response that a cache has just stored and the later responses to the same packet.

    Later ones are from `plugin` and have no AA. `tallies` replace the first `replaced` tallies of the response. TTLs
    count down from `aged_from_s`; None for TTLs that do not change.
    """

    plugin: str
    tallies: tuple[Tally, ...]
    replaced: int
    aged_from_s: float | None


class Reuse(Value, frozen=True):
    """How long a response may be reused for the same packet: until a subject is touched, or until `expires_s`.

    `expires_s` is on the clock of `Request.received_s`; None for no end. With `repeat` the response itself is for this
    query only, and later ones have the differences of `repeat`.
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
"""The response is for this client only, or temporary, as before a source is read; never kept. Compared by identity."""


NO_METADATA: Final[Mapping[str, str]] = MappingProxyType({})
NO_HEADER: Final = (0, 0)


class ZoneSoa:
    """The SOA of a zone, which can change after answers with it were compiled.

    All negative answers of a zone end in its SOA. They share their tails, because few are different: by the position of
    the zone in the question, and by the OPT. A new SOA rewrites the tails and does not touch the answers.
    """

    __slots__ = ("_size_bytes", "_tails", "_zone", "rrset")

    def __init__(self, rrset: RRset) -> None:
        self.rrset = rrset
        self._zone: Labels = labels_of(rrset.owner)
        self._size_bytes = len(encode_name(self._zone))
        self._tails: dict[tuple[int, bytes], list[bytes]] = {}

    def renew(self, rrset: RRset) -> None:
        """Writes another SOA of the same zone into all tails, in place."""
        self.rrset = rrset
        for (offset, opt), tail in self._tails.items():
            tail[0] = self._record(offset) + opt

    def tail(self, name_end: int, opt: bytes) -> list[bytes]:
        """Returns the SOA record and `opt`, for a question below the zone whose name ends at `name_end`."""
        key = (name_end - self._size_bytes, opt)
        tail = self._tails.get(key)
        if tail is None:
            tail = self._tails[key] = [self._record(key[0]) + opt]
        return tail

    def _record(self, offset: int) -> bytes:
        """Returns the SOA, its names compressed by pointers to `offset`, so that it has the same bytes at any position.

        The root zone cannot be pointed at: its names are written out.
        """
        (record,) = encode_section((self.rrset,), Names.at(self._zone, offset), MAX_MESSAGE_BYTES)
        return record


class MessageSigner(Protocol):
    """Signs a complete message by appending a signature."""

    size_bytes: int
    """The number of bytes that it adds."""

    def __call__(self, wire: bytes) -> bytes:
        """Returns the message that is sent; called for each message of a transfer, in order."""
        ...


class Message(Value, frozen=True):
    """An upstream's message without its OPT: sent as received, with id, flags and spelling of the query.

    Another directive may take it apart (kdns.answers.decode). `shape` is known for most.
    """

    wire: bytes
    shape: Shape | None = None


class Encoded(Value, frozen=True):
    """Records in bytes, compressed for one question.

    The owner of each of `answer` is a pointer to the question; they rotate if `are_addresses`. Only a
    Source makes them (kdns.answers.chain): no directive in front of it could read them.
    """

    answer: tuple[bytes, ...]
    additional: tuple[bytes, ...] = ()
    are_addresses: bool = False


class Response(Value, frozen=True):
    """A response to one query; immutable, `evolve` makes another one.

    Its records are RRsets in three sections, or a `body` in their place; then `rcode` and `options` are the body's.
    `flags` are AA, RA, AD and TC (kdns.dns.query). `soa` is the authority section of a negative answer from a zone that
    changes. `options` are written into the OPT, if the client sent one. `aged_from_s` is the time from which
    TTLs count down, on the clock of `expires_s`; None for TTLs that do not change. `tallies` count the uses of the
    answer. `header` are bits of the header that are set and cleared last. `error` is the reason for the failure, for
    logs. `metadata` are the metadata of the request, for directives that log it. `order` decides which address is
    first. `plugin` is the directive that made it, for metrics. `zone` is the suffix of the question's name that other
    names may compress to. `wildcard` is the owner of the wildcard from which the answer was made, otherwise "".
    `more_messages` are further messages of a zone transfer (RFC 5936 §2.2), for streams only. `signer` is applied to
    the bytes of all messages.
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
        """The upstream's message, b"" without one."""
        return self.body.wire if isinstance(self.body, Message) else b""


def counted_down(response: Response, now_s: float) -> Response:
    """Returns the response, in records, with the TTLs of this moment, if they count down: then it is not reused."""
    if response.aged_from_s is None:
        return response
    age_s = max(0, int(now_s - response.aged_from_s))
    answer, authority, additional = (
        tuple(replace(rrset, ttl=max(0, rrset.ttl - age_s)) for rrset in rrsets)
        for rrsets in (response.answer, response.authority, response.additional)
    )
    reuse = NEVER.and_then(response.reuse)
    return evolve(response, answer=answer, authority=authority, additional=additional, aged_from_s=None, reuse=reuse)
