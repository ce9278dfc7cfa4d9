"""Exact answers: the short way from a packet to an answer that depends on nothing but its subjects.

Most first questions are plain packets about a zone whose answers no earlier plugin changes. Their answers are put
together from what the plugin of the zone finds, without a request, a response and a chain. The bytes are those of the
chain, which answers everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import pack
from typing import Final, NamedTuple, Protocol, runtime_checkable

from kdns.dns.encode import encode_opt
from kdns.dns.names import MAX_LABEL_BYTES, MAX_NAME_BYTES, Labels, encode_name, is_below, labels_of
from kdns.dns.query import AA, AD, BARE_OPT_BYTES, CD, HEADER_BYTES, QR, RD, Edns, bare_edns
from kdns.dns.types import DS, IN, METRIC_TYPES, OPT
from kdns.dnsserver.answers.answer import Answer, encode_head, fitting, limit_of, response_kind
from kdns.dnsserver.answers.order import Order
from kdns.dnsserver.answers.response import Subject, ZoneSoa
from kdns.dnsserver.chain import Block, Effect, Plugin, is_linked
from kdns.tally import Tally

KEY_HEADER_BYTES: Final = HEADER_BYTES - 2
"""The position of the question in a key of the table, which has no id."""
MAX_TYPE: Final = 127
"""Types above are about messages and zones, or rare (RFC 6895 §3.1)."""
_CHAINED_TYPES: Final = frozenset((DS, OPT))
_IN: Final = pack("!H", IN)
_NO_OPTIONS: Final = bytes(2)
_FLAGS: Final = {
    pack("!HHHHH", RD | others, 1, 0, 0, additionals): RD | others & CD
    for others in (0, AD, CD, AD | CD)
    for additionals in (0, 1)
}
"""Headers of plain questions, and the flags that their answers repeat."""


class Found(NamedTuple):
    """The content of an answer: encoded records, or the SOA of a negative answer.

    The owner of `records` is a pointer to the question; they are addresses, which may change places, if they have no
    `additional` records.
    """

    rcode: int
    subjects: tuple[Subject, ...]
    soa: ZoneSoa | None = None
    records: tuple[bytes, ...] = ()
    additional: tuple[bytes, ...] = ()


class ExactNames(Protocol):
    """The names of one zone. `ttl_s` is the longest TTL of their records, `plugin` is their directive's name."""

    labels: Labels
    ttl_s: int
    plugin: str

    def find(self, labels: Sequence[bytes], qtype: int, name: bytes) -> Found | None:
        """Returns the content of an answer of class IN; None if the chain has to answer.

        `labels` are those in front of the zone, `name` is the whole name in bytes; all folded.
        """
        ...


@runtime_checkable
class HasExactNames(Protocol):
    """A plugin with zones that have exact answers."""

    def exact_names(self) -> Iterable[ExactNames]:
        """Returns the names of these zones; none of a zone that has another zone of the plugin below it."""
        ...


class ExactZone(NamedTuple):
    """A zone with exact answers: its name in bytes, its server block, and the effects of earlier plugins."""

    name: bytes
    names: ExactNames
    block: Block
    checks: tuple[Callable[[bytes, int, bool], bool], ...]
    tallies: tuple[Tally, ...]

    def has_reply_before(self, question: bytes, flags: int, *, do: bool) -> bool:
        """Returns whether an earlier plugin has a reply of its own; see Effect."""
        return any(has_reply(question, flags, do) for has_reply in self.checks)


def exact_zones(blocks: Sequence[Block], server: str) -> tuple[ExactZone, ...]:
    """Returns the zones of these server blocks that have exact answers, the longest first.

    All names of such a zone belong to one block, whichever client asks.
    """
    if any(block.chain.view for block in blocks):
        return ()
    found = [zone for block in blocks if block.chain.is_cacheable for zone in _zones_of(block, blocks, server)]
    return tuple(sorted(found, key=lambda zone: -len(zone.name)))


def _zones_of(block: Block, blocks: Sequence[Block], server: str) -> Iterator[ExactZone]:
    earlier: list[Plugin] = []
    for plugin in block.chain.plugins:
        for names in plugin.exact_names() if isinstance(plugin, HasExactNames) else ():
            zone = names.labels
            effects = [one.effect(zone, names.ttl_s, server) for one in earlier]
            if zone and None not in effects and _has_all_names(block, zone, blocks):
                yield _exact_zone(names, block, [effect for effect in effects if effect])
        if is_linked(plugin):
            earlier.append(plugin)


def _exact_zone(names: ExactNames, block: Block, effects: Iterable[Effect]) -> ExactZone:
    tallies = tuple(tally for effect in effects for tally in effect.tallies)
    checks = tuple(effect.has_reply for effect in effects if effect.has_reply)
    return ExactZone(encode_name(names.labels), names, block, checks, tallies)


def _has_all_names(block: Block, zone: Labels, blocks: Iterable[Block]) -> bool:
    """Returns whether this block is the closest for each name of a zone."""
    own = labels_of(block.zone)
    others = [labels_of(other.zone) for other in blocks if other is not block]
    is_closest = not any(is_below(zone, other) and len(other) >= len(own) for other in others)
    return is_below(zone, own) and is_closest and not any(is_below(other, zone) for other in others)


class PlainQuestion(NamedTuple):
    """A query that is nothing but a question of class IN, and an OPT.

    `flags` are those that the answer repeats; the name ends at `name_end` of the key. The packet has `packet_bytes`.
    """

    flags: int
    qtype: int
    name_end: int
    edns: Edns | None
    packet_bytes: int


def exact_answer(
    key: bytes, question: PlainQuestion, zones: Iterable[ExactZone], next_turn: Callable[[], int], *, is_stream: bool
) -> tuple[Answer, tuple[Subject, ...]] | None:
    """Returns the answer to a packet, given by its key in the table, and the subjects of the answer.

    None if the chain has to answer. `next_turn` returns the index of the first order of addresses.
    """
    flags, qtype, name_end, edns, packet_bytes = question
    for zone in zones:
        zone_at = name_end - len(zone.name)
        if key.startswith(zone.name, zone_at):
            break
    else:
        return None
    labels = labels_before(key, zone_at)
    if labels is None or zone.block.chain.order.looks_at_addresses:
        return None
    found = zone.names.find(labels, qtype, key[KEY_HEADER_BYTES:name_end])
    do = edns is not None and edns.do
    if found is None:
        return None
    if zone.checks and zone.has_reply_before(key[KEY_HEADER_BYTES : name_end + 4], flags, do=do):
        return None
    end = name_end + 4 + HEADER_BYTES - KEY_HEADER_BYTES
    opt = encode_opt(edns) if edns else b""
    limit_bytes = limit_of(edns, zone.block.udp_bytes, is_stream=is_stream)
    made = _bodies(found, end, limit_bytes, opt, zone.block.chain.order, next_turn)
    if made is None:
        return None
    bodies, additionals = made
    counts = len(found.records), found.soa is not None, additionals + bool(opt)
    head = encode_head(QR | AA | flags | found.rcode, 1, *counts)
    counted = qtype if qtype in METRIC_TYPES else 0
    place, plugin = zone.block.zone, zone.names.plugin
    kind = response_kind(place, counted, found.rcode, do, packet_bytes, end + len(bodies[0]), plugin, "")
    return Answer(head, end, bodies, kind, tallies=zone.tallies), found.subjects


def _bodies(
    found: Found, question_end: int, limit_bytes: int, opt: bytes, order: Order, next_turn: Callable[[], int]
) -> tuple[tuple[bytes, ...] | list[bytes], int] | None:
    """Returns what is behind the question, in each order that addresses take, and the number of additional records.

    Additional records that do not fit are left out silently (RFC 2181 §9); None if an answer does not fit.
    """
    _, _, soa, records, additional = found
    if soa is not None:
        return soa.tail(question_end - 4, opt), 0
    room_bytes = limit_bytes - question_end - len(opt) - sum(map(len, records))
    if room_bytes < 0:
        return None
    if additional:
        if sum(map(len, additional)) > room_bytes:
            additional, _ = fitting(additional, room_bytes)
    elif order.rotate and len(records) > 1:
        return in_turns(records, order, next_turn(), opt), 0
    return (b"".join((*records, *additional, opt)),), len(additional)


def in_turns(records: Sequence[bytes], order: Order, turn: int, opt: bytes) -> tuple[bytes, ...]:
    """Returns the records with `opt`, in each order that they take; `turn` is the first one."""
    turns = order.turns((), records, turn)
    return tuple([b"".join([*map(records.__getitem__, each), opt]) for each in turns])


def plain_question(key: bytes) -> PlainQuestion | None:
    """Returns the question of a packet, given by its key in the table; None for any other packet."""
    flags = _FLAGS.get(key[:KEY_HEADER_BYTES])
    if flags is None:
        return None
    edns: Edns | None = None
    name_end = len(key) - 4
    packet_bytes = len(key) + 2
    if key[KEY_HEADER_BYTES - 1]:
        edns = bare_edns(key[-BARE_OPT_BYTES:-2] + _NO_OPTIONS)  # options are not part of a key
        if edns is None or edns.version:
            return None
        name_end -= BARE_OPT_BYTES
        packet_bytes += key[-2] << 8 | key[-1]
    qtype = key[name_end] << 8 | key[name_end + 1]
    if key[name_end + 2 : name_end + 4] != _IN or qtype > MAX_TYPE or qtype in _CHAINED_TYPES:
        return None
    return (
        None
        if name_end - KEY_HEADER_BYTES > MAX_NAME_BYTES
        else PlainQuestion._make((flags, qtype, name_end, edns, packet_bytes))
    )


def labels_before(key: bytes, end: int) -> list[bytes] | None:
    """Returns the labels of the name up to a position; None if no label ends there."""
    labels = []
    at = KEY_HEADER_BYTES
    while at < end:
        size = key[at]
        if not 0 < size <= MAX_LABEL_BYTES:
            return None
        at += 1 + size
        labels.append(key[at - size : at])
    return labels if at == end else None
