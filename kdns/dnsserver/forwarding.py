"""Forwarded questions: the short way of a packet to an upstream, and of the upstream's answer to the client.

Most questions about other servers' names are plain packets, and most answers are addresses. They need no request, no
response and no coroutine. Everything else takes the chain. A question whose upstream gives another answer, or none,
continues in the chain with that result. The bytes and the counts are those of the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import msgspec

from kdns.dns.encode import encode_opt
from kdns.dns.names import Labels, encode_name, is_below, labels_of
from kdns.dns.query import AA, AD, HEADER_BYTES, QR, RA, Query
from kdns.dns.types import DS, HINFO, IN, METRIC_TYPES, NOERROR
from kdns.dns.wire import addresses
from kdns.dnsserver.answers.answer import Answer, encode_head, limit_of, response_kind
from kdns.dnsserver.answers.response import Reuse
from kdns.dnsserver.answers.table import AnswerTable, Partition
from kdns.dnsserver.chain import Block, is_linked
from kdns.dnsserver.exact import KEY_HEADER_BYTES, PlainQuestion, in_turns, labels_before
from kdns.tally import Tally

_CHAINED_TYPES: Final = frozenset((DS, HINFO))
"""Types that decide which block answers, or that `loop` looks at."""
_TYPE_AT: Final = 3
_TTL_AT: Final = 6
"""Positions in a record of addresses whose owner is a pointer."""
_UPPER_RCODE_AT: Final = 5
"""The position in an OPT of the upper bits of the rcode (RFC 6891 §6.1.3)."""
_TC: Final = 0x02
_RCODE: Final = 0x0F
_SETTABLE: Final = AA | RA | AD
_AD: Final = AD.to_bytes(2, "big")[1]
_NO_ADDITIONAL: Final = bytes(2)


class Begun(Protocol):
    """A query that was sent to an upstream; `reply` is the response as it came, b"" if the chain has to see the end."""

    @property
    def reply(self) -> bytes:
        """See above; read when the query has ended."""
        ...

    def end(self, rcode: int | None) -> None:
        """Ends it: with a response of this code, or None if the chain continues with it (Request.begun)."""
        ...


@runtime_checkable
class Sender(Protocol):
    """A plugin that sends questions to upstreams. `plugin` is its directive's name."""

    plugin: str

    def sent_zones(self, zone: Labels) -> tuple[Iterable[Labels], Iterable[Labels]]:
        """Returns the zones at or below `zone` whose names it sends, and zones whose names it does not send."""
        ...

    def begin(self, body: bytes, question_end: int, client: str, ended: Callable[[], object]) -> Begun | None:
        """Sends a plain query to the first upstream; `ended` is called when there is a response or an error.

        `body` are the bytes behind the query's id, `question_end` is the position behind its question in the packet.
        None if nothing was sent, and the chain has to decide.
        """
        ...


class Kept(NamedTuple):
    """An answer as a cache keeps it: `records` with their TTLs, and the counters of this use and of the later ones.

    `reuse` and `aged_from_s` are those of the answer in the table (Response); no `reuse` if the table may not have it.
    """

    records: bytes
    tallies: tuple[Tally, ...]
    later_tallies: tuple[Tally, ...]
    reuse: Reuse | None
    aged_from_s: float | None


class Place(Protocol):
    """The place of one question in a cache. Who asks the same meanwhile waits for its answer."""

    def keep(self, message: bytes, records_at: int, ttls_at: Sequence[int], plugin: str) -> Kept:
        """Keeps a message of addresses without an OPT, and gives it to those who wait.

        Its TTLs are at these positions; it is from the directive `plugin`.
        """
        ...

    def leave(self) -> Callable[[], None]:
        """Gives the place up; call the result when the chain has begun with the question."""
        ...


@runtime_checkable
class Keeper(Protocol):
    """A plugin that keeps answers. `plugin` is its directive's name, from which later answers are."""

    plugin: str

    def reserve(self, question: bytes, flags: int, server: str, *, do: bool) -> Place | None:
        """Returns the place of a folded question with these flags, which is then asked with AD.

        None if the chain has to decide: there is an answer, or somebody has asked.
        """
        ...


class Route(NamedTuple):
    """The short way of a zone, given in bytes and as labels, except for names that end in one of `others`."""

    zone: bytes
    labels: Labels
    others: tuple[bytes, ...]
    block: Block
    sender: Sender
    keeper: Keeper | None


def routes_of(blocks: Sequence[Block]) -> tuple[Route, ...]:
    """Returns the routes of these server blocks, those of the longest zones first."""
    if any(block.chain.view for block in blocks):
        return ()
    found = [route for block in blocks if block.chain.is_cacheable for route in _routes(block, blocks)]
    return tuple(sorted(found, key=lambda route: -len(route.zone)))


def _routes(block: Block, blocks: Iterable[Block]) -> Iterator[Route]:
    own = labels_of(block.zone)
    others = [zone for other in blocks if (zone := labels_of(other.zone)) != own and is_below(zone, own)]
    keeper: Keeper | None = None
    for plugin in block.chain.plugins:
        if isinstance(plugin, Sender):
            sent, excluded = plugin.sent_zones(own)
            others += excluded
            for zone in sent:
                if not any(is_below(zone, other) for other in others):
                    below = {encode_name(other) for other in others if is_below(other, zone)}
                    yield Route(encode_name(zone), zone, tuple(below), block, plugin, keeper)
            return
        if is_linked(plugin):
            taken = plugin.own_zones(own)
            if taken is None:
                return
            others += taken
            keeper = plugin if isinstance(plugin, Keeper) else keeper


class Delivery(Protocol):
    """The listener that a question came to."""

    def forwarded(self, forwarding: Forwarding) -> None:
        """Called when the upstream has answered, or nothing more is to be expected of it."""
        ...


class Host(Protocol):
    """The server that a question came to."""

    table: AnswerTable
    label: str

    def next_turn(self) -> int:
        """Returns the index of the next first order of addresses."""
        ...


class Arrival(NamedTuple):
    """A packet with its key in the table, the client that it came from, and the listener that has the outcome."""

    packet: bytes
    key: bytes
    partition: Partition
    client: Any
    received_s: float
    delivery: Delivery


class Forwarding(msgspec.Struct, eq=False):
    """A question on its short way; `begun` is what was sent to an upstream, `epoch` is the table's at that time."""

    host: Host
    route: Route
    question: PlainQuestion
    labels: Labels
    place: Place | None
    arrival: Arrival
    epoch: int
    begun: Begun | None = None

    def ended(self) -> None:
        """Called when the query to the upstream has ended."""
        self.arrival.delivery.forwarded(self)

    def answer(self) -> bytes | None:
        """Returns the response to the client, counted and kept; None if the chain has to continue."""
        route, begun, place = self.route, self.begun, self.place
        packet, key, partition, _, _, _ = self.arrival
        flags, qtype, name_end, edns, packet_bytes = self.question
        end = name_end + 4 + HEADER_BYTES - KEY_HEADER_BYTES
        reply = begun.reply if begun else b""
        found = addresses(reply, end)
        if begun is None or found is None or reply[2] & _TC or reply[3] & _RCODE or reply[end + _TYPE_AT] != qtype:
            return None
        stop, count, order = found.stop, len(found), route.block.chain.order
        if stop < len(reply) and reply[stop + _UPPER_RCODE_AT]:
            return None
        opt = encode_opt(edns) if edns else b""
        if stop + len(opt) > limit_of(edns, route.block.udp_bytes, is_stream=False):
            return None
        is_turned = count > 1 and order.rotate
        if count > 1 and (order.looks_at_addresses or (is_turned and place is None)):
            return None
        begun.end(NOERROR)
        do = edns is not None and edns.do
        flags |= QR | int.from_bytes(reply[2:4], "big") & _SETTABLE
        zone, counted = route.block.zone, qtype if qtype in METRIC_TYPES else 0
        kind = response_kind(zone, counted, NOERROR, do, packet_bytes, stop + len(opt), route.sender.plugin, "")
        partition.counts.add(kind)
        if place is None:
            head = encode_head(flags, 1, count, 0, bool(opt))
            return b"".join((packet[:2], head, packet[HEADER_BYTES:end], reply[end:stop], opt))
        message = b"".join((packet[:2], reply[2:10], _NO_ADDITIONAL, packet[HEADER_BYTES:end], reply[end:stop]))
        records, tallies, later_tallies, reuse, aged_from_s = place.keep(
            message, end, range(found.start + _TTL_AT, stop, found.step), route.sender.plugin
        )
        for tally in tallies:
            tally.count += 1
        if not (do or key[1] & _AD):
            flags &= ~AD
        bodies: tuple[bytes, ...] = (records + opt,)
        if is_turned:
            each = [records[at : at + found.step] for at in range(0, len(records), found.step)]
            bodies = in_turns(each, order, self.host.next_turn(), opt)
        head = encode_head(flags, 1, count, 0, bool(opt))
        if reuse is not None and route.keeper is not None and self.epoch == self.host.table.epoch:
            kind = response_kind(zone, counted, NOERROR, do, packet_bytes, stop + len(opt), route.keeper.plugin, "")
            later = encode_head(flags & ~AA, 1, count, 0, bool(opt))
            kept = Answer(later, end, bodies, kind, 1, later_tallies, counted=1, aged_from_s=aged_from_s)
            if aged_from_s is not None:
                kept.until_s = aged_from_s + 1
            self.host.table.remember(partition, key, kept, reuse)
        return b"".join((packet[:2], head, packet[HEADER_BYTES:end], bodies[1 % len(bodies)]))

    @property
    def query(self) -> Query:
        """The query of the packet."""
        flags, qtype, name_end, edns, _ = self.question
        packet, key, _, _, _, _ = self.arrival
        end = name_end + 4 + HEADER_BYTES - KEY_HEADER_BYTES
        return Query(packet, flags | key[1] & _AD, self.labels, qtype, IN, end, edns, is_plain=True)

    def leave(self) -> Callable[[], None]:
        """Leaves the short way; call the result when the chain has begun with the question."""
        if self.begun is not None:
            self.begun.end(None)
        return self.place.leave() if self.place is not None else _nothing


def _nothing() -> None:
    pass


def is_forwarded(host: Host, routes: Iterable[Route], question: PlainQuestion, arrival: Arrival) -> bool:
    """Sends a question on its short way; returns whether it has one."""
    packet, key, _, client, _, _ = arrival
    flags, qtype, name_end, edns, packet_bytes = question
    for route in routes:
        zone_at = name_end - len(route.zone)
        if key.startswith(route.zone, zone_at):
            break
    else:
        return False
    has_options = packet_bytes > len(key) + 2  # which are not all for the upstream
    if has_options or qtype in _CHAINED_TYPES or key.endswith(route.others, KEY_HEADER_BYTES, name_end):
        return False
    labels = labels_before(key, zone_at)
    if labels is None:
        return False
    place: Place | None = None
    body, end = packet[2:], name_end + 4
    if route.keeper is not None:
        do = edns is not None and edns.do
        place = route.keeper.reserve(key[KEY_HEADER_BYTES:end], flags, host.label, do=do)
        if place is None:
            return False
        body = b"".join((body[:1], bytes((body[1] | _AD,)), body[2:]))
    forwarding = Forwarding(host, route, question, (*labels, *route.labels), place, arrival, host.table.epoch)
    begun = route.sender.begin(body, end + HEADER_BYTES - KEY_HEADER_BYTES, client[0], forwarding.ended)
    if begun is None:
        if place is not None:
            place.leave()()
        return False
    forwarding.begun = begun
    return True
