"""Removes records of an upstream's response that are out of bailiwick (RFC 2181 §5.4.1, RFC 5452 §6).

Records that stay: in the answer section those of the question name, and of names that CNAMEs and DNAMEs lead to; in the
authority section those of zones of these names, and NSEC and NSEC3 records, which prove nothing without signatures;
in the additional section those of names in the other records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from struct import unpack_from
from typing import Final

from kdns.answers.chain import MAX_CNAMES
from kdns.answers.decode import with_records
from kdns.answers.response import Message, Response
from kdns.dns.encode import QUESTION_POINTER
from kdns.dns.names import POINTER, Labels, is_below
from kdns.dns.query import HEADER_BYTES, Query
from kdns.dns.rdata import ADDRESS_BYTES, LAYOUTS, NamesAt, check_rdata
from kdns.dns.types import AAAA, ANY, CNAME, DNAME, HTTPS, IN, MX, NS, NSEC, NSEC3, OPT, RRSIG, SRV, SVCB, A
from kdns.dns.wire import ADDITIONAL, ANSWER, AUTHORITY, Record, records, shape_of, without_opt
from kdns.upstream.message import response_to

PROOFS: Final = frozenset((NSEC, NSEC3))
CHECKED: Final = frozenset((A, AAAA, *LAYOUTS))
"""Types with rdata that may be invalid."""
NAMED_AT: Final = {NS: 0, MX: 2, SRV: 6, SVCB: 2, HTTPS: 2}
"""Type → position in the rdata of a name that may have addresses in the additional section."""

MAX_PARSED: Final = 256
"""The most remaining records of a message that is parsed to remove others, which takes up to 10 ms."""
POINTERS: Final = 8
"""The most successive pointers that `is_plain` follows; other readers of names have no such limit."""

_ONE: Final = b"\0\1"
_NO_ADDITIONAL: Final = bytes(2)
_UPPER_RCODE_AT: Final = 5
"""The position in an OPT of the upper bits of the rcode (RFC 6891 §6.1.3)."""


def checked(wire: bytes, query: Query, plugin: str) -> Response:
    """The upstream's message as a response, with the query's id and spelling, and only records in bailiwick.

    If all are, the message's other bytes stay, except for the OPT. ValueError if the bytes are not a DNS message, and
    for invalid rdata, which would be an internal error in another directive.
    """
    packet, end = query.packet, query.question_end
    if query.qclass == IN and (shape := shape_of(wire, end)):
        stop = shape.stop
        upper_rcode = wire[stop + _UPPER_RCODE_AT] << 4 if stop < len(wire) else 0
        own = b"".join((packet[:2], wire[2:10], _NO_ADDITIONAL, packet[HEADER_BYTES:end], wire[end:stop]))
        return Response(upper_rcode | wire[3] & 15, plugin=plugin, body=Message(own, shape))
    wire = response_to(query, wire)
    scanned, names = records(wire), NamesAt(wire)
    end = HEADER_BYTES
    for record in scanned:
        owner_at, rtype, rdata_at, end = record.owner_at, record.rtype, record.rdata_at, record.end
        if wire[owner_at] and not wire.startswith(QUESTION_POINTER, owner_at):
            names.at(owner_at)
        if rtype in CHECKED and end - rdata_at != ADDRESS_BYTES.get(rtype):
            check_rdata(rtype, wire, rdata_at, end, names)
    has_question = wire.startswith(_ONE, 4)
    wire = wire[: end if scanned else query.question_end if has_question else len(wire)]
    if not (has_question and is_plain(wire, query, scanned)):
        related = in_bailiwick(wire, query, scanned)
        if len(related) < len(scanned) or any(record.rtype == OPT for record in scanned[:-1]):
            if len(related) > MAX_PARSED:
                raise ValueError(f"more than {MAX_PARSED} records beside some that do not concern the question")
            return with_records(Response(body=Message(wire), plugin=plugin), related)
    bare, options, upper_rcode = without_opt(wire, scanned)
    return Response(upper_rcode | wire[3] & 15, body=Message(bare), options=options, plugin=plugin)


def is_plain(wire: bytes, query: Query, scanned: Iterable[Record]) -> bool:
    """Whether all records are in bailiwick, as far as pointers tell without reading a name.

    In most messages owners are pointers to the question name or the target of the previous CNAME, and zones are
    pointers into the question name.
    """
    owners = {HEADER_BYTES}
    zones: Collection[int] = ()
    for record in scanned:
        if record.section == ADDITIONAL:
            if record.rtype != OPT or record.end != len(wire):
                return False
            continue
        if record.rclass != query.qclass or record.rtype == OPT:
            return False
        is_own = wire.startswith(QUESTION_POINTER, record.owner_at)
        start = HEADER_BYTES if is_own else _start(wire, record.owner_at)
        if record.section == ANSWER:
            if start not in owners:
                return False
            if record.rtype == CNAME:
                owners.add(_start(wire, record.rdata_at))
        else:
            zones = zones or _label_starts(query)
            if start not in zones and wire[start]:
                return False
    return True


def _start(wire: bytes, position: int) -> int:
    """Follows up to POINTERS pointers at the start of a name; they lead backwards (RFC 1035 §4.1.4)."""
    try:
        for _ in range(POINTERS):
            if wire[position] < 0xC0:
                break
            target = (wire[position] << 8 | wire[position + 1]) - POINTER
            if target >= position:
                raise ValueError("a pointer leads forward")
            position = target
    except IndexError:
        raise ValueError("a name runs out of the message") from None
    return position


def _label_starts(query: Query) -> frozenset[int]:
    position = HEADER_BYTES
    starts = {position}
    for label in query.labels:
        position += 1 + len(label)
        starts.add(position)
    return frozenset(starts)


def in_bailiwick(wire: bytes, query: Query, scanned: Sequence[Record]) -> list[Record]:
    names = NamesAt(wire)
    chain = _chain(names, query, [record for record in scanned if record.section == ANSWER])
    zones = {labels[count:] for labels in chain for count in range(len(labels) + 1)}
    named = set(chain)
    related: list[Record] = []
    for record in scanned:
        if record.rtype == OPT:
            if record.section == ADDITIONAL:
                related.append(record)
            continue
        if query.qclass not in {record.rclass, ANY}:
            continue
        owner = names.at(record.owner_at)
        rtype = _covered(wire, record)
        if record.section == ANSWER:
            is_related = owner in chain or (rtype == DNAME and owner in zones)
        elif record.section == AUTHORITY:
            is_related = owner in zones or rtype in PROOFS
        else:
            is_related = owner in named
        if not is_related:
            continue
        related.append(record)
        if record.rtype in NAMED_AT and record.section != ADDITIONAL:
            name_starts = record.rdata_at + NAMED_AT[record.rtype]
            if name_starts < record.end:
                named.add(names.at(name_starts))
    return related


def _chain(names: NamesAt, query: Query, answer: Iterable[Record]) -> tuple[Labels, ...]:
    aliases: dict[Labels, Labels] = {}
    suffixes: dict[Labels, Labels] = {}
    for record in answer:
        if record.rtype in {CNAME, DNAME} and record.rclass == query.qclass:
            into = aliases if record.rtype == CNAME else suffixes
            into.setdefault(names.at(record.owner_at), names.at(record.rdata_at))
    chain = [query.labels]
    while len(chain) <= MAX_CNAMES:
        name = chain[-1]
        target = aliases.get(name)
        if target is None:
            target = next(
                (name[: -len(owner)] + suffix for owner, suffix in suffixes.items() if owner and _below(name, owner)),
                None,
            )
        if target is None or target in chain:
            break
        chain.append(target)
    return tuple(chain)


def _below(name: Labels, owner: Labels) -> bool:
    return name != owner and is_below(name, owner)


def _covered(wire: bytes, record: Record) -> int:
    if record.rtype != RRSIG or record.end < record.rdata_at + 2:
        return record.rtype
    (covered,) = unpack_from("!H", wire, record.rdata_at)
    return int(covered)
