"""The kind and lifetime of a reply: success, denial (RFC 2308), failure (RFC 9520), or not cacheable.

Differs: the TTL of a denial is at most the SOA's MINIMUM (RFC 2308 §5); CoreDNS takes the SOA's TTL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

from kdns.answers.response import PRIVATE, Message, Response
from kdns.dns.encode import QUESTION_POINTER
from kdns.dns.names import Labels, labels_of, lowered
from kdns.dns.query import TC, Query
from kdns.dns.rdata import NamesAt
from kdns.dns.rrset import RRset, Soa
from kdns.dns.types import ANY, CNAME, NOERROR, NOTIMP, NS, NXDOMAIN, OPT, RRSIG, SERVFAIL, SOA
from kdns.dns.wire import ANSWER, AUTHORITY, Record, records
from kdns.values import Value, evolve

MAX_CNAMES: Final = 32
"""The most CNAMEs of one answer that are followed to its records."""
TTL_BYTES: Final = Struct("!I")
FLAGS: Final = Struct("!H")
FLAGS_AT: Final = 2

_TYPE_AT: Final = 3
"""The position of a type below 256 in a record whose owner is a pointer."""
_TC: Final = TC >> 8
_ANSWERING: Final = frozenset((NOERROR, NXDOMAIN))
_TIMES: Final = Struct("!II")
_TIMES_AT: Final = 8
_HALF: Final = 1 << 31


class AnswerKind(Enum):
    """The kind of a reply."""

    SUCCESS = "success"
    """The answer has records, or is a referral."""
    DENIAL = "denial"
    """NXDOMAIN or NODATA, with an SOA."""
    FAILURE = "failure"
    """SERVFAIL or NOTIMP."""
    OTHER = "other"
    """Not cacheable."""

    __hash__ = object.__hash__  # Enum's own is written in Python, and each query looks up a few


class Contents(Value, frozen=True):
    """The kind of a reply; `ttl_s` is the smallest TTL of its records, 0 without any.

    `is_valid`: it replaces stale answers (RFC 8767 §5). `ttls_at` are the positions of a message's TTLs.
    """

    kind: AnswerKind
    ttl_s: int = 0
    is_valid: bool = False
    ttls_at: Sequence[int] = ()


OTHER: Final = Contents(AnswerKind.OTHER)


class Fact(NamedTuple):
    """One record. `rdata` is the target of a CNAME, the MINIMUM of an SOA, or the times of an RRSIG."""

    section: int
    owner: Labels
    rtype: int
    rclass: int
    ttl: int
    rdata: Labels | tuple[int, int] | int | None = None


def contents(query: Query, response: Response, unix_s: Callable[[], float]) -> Contents:
    """ValueError if the reply's bytes are not a DNS message.

    A reply with a signature that is expired or not valid yet is OTHER: a validator would refuse it.
    """
    body = response.body
    if not isinstance(body, Message):
        return _contents(query, response.rcode, response.flags, list(_of_records(response)), unix_s)
    wire, shape = body.wire, body.shape
    rcode = response.rcode & ~15 | wire[3] & 15
    if shape and not wire[2] & _TC:
        if not shape.step and rcode in _ANSWERING:
            return Contents(AnswerKind.DENIAL, shape.ttl_s(wire), is_valid=True, ttls_at=shape.ttls_at)
        if shape.step and not rcode and wire[query.question_end + _TYPE_AT] == query.qtype:
            return Contents(AnswerKind.SUCCESS, shape.ttl_s(wire), is_valid=True, ttls_at=shape.ttls_at)
    scanned = records(wire)
    (flags,) = FLAGS.unpack_from(wire, FLAGS_AT)
    facts = list(_of_wire(query, wire, scanned))
    return evolve(_contents(query, rcode, flags, facts, unix_s), ttls_at=ttls_at(scanned))


def ttls_at(scanned: Iterable[Record]) -> Sequence[int]:
    return [record.ttl_at for record in scanned if record.rtype != OPT]


def _contents(query: Query, rcode: int, flags: int, facts: list[Fact], unix_s: Callable[[], float]) -> Contents:
    ttl_s = min((fact.ttl for fact in facts), default=0)
    if flags & TC or any(fact.rtype == RRSIG and not _is_current(fact, unix_s()) for fact in facts):
        return OTHER
    if rcode in {SERVFAIL, NOTIMP}:
        return Contents(AnswerKind.FAILURE)
    if rcode not in {NOERROR, NXDOMAIN}:
        return OTHER
    soa = next((fact for fact in facts if fact.section == AUTHORITY and fact.rtype == SOA), None)
    if rcode == NOERROR and any(fact.section == ANSWER for fact in facts):
        if answers(query, facts):
            return Contents(AnswerKind.SUCCESS, ttl_s, is_valid=True)
        if not any(fact.owner == query.labels for fact in facts):
            return OTHER
    elif rcode == NOERROR and soa is None and any(fact.rtype == NS and fact.section == AUTHORITY for fact in facts):
        return Contents(AnswerKind.SUCCESS, ttl_s, is_valid=True)
    if soa is None:
        return Contents(AnswerKind.OTHER, is_valid=True)
    minimum = soa.rdata if isinstance(soa.rdata, int) else 0
    return Contents(AnswerKind.DENIAL, min(ttl_s, minimum), is_valid=True)


def answers(query: Query, facts: list[Fact]) -> bool:
    """Whether the answer has records of the question's type at the end of its CNAMEs, which have one target each.

    CNAMEs without such records are not cached: they would live as long as the CNAMEs, while the missing records may
    exist a moment later.
    """
    answer = [fact for fact in facts if fact.section == ANSWER and fact.rclass == query.qclass]
    targets: dict[Labels, Labels] = {}
    for fact in answer:
        if fact.rtype == CNAME and targets.setdefault(fact.owner, fact.rdata) != fact.rdata:  # type: ignore[arg-type] # a CNAME's is a name
            return False
    name = query.labels
    if query.qtype in {CNAME, ANY}:
        return any(fact.owner == name and query.qtype in {fact.rtype, ANY} for fact in answer)
    seen: set[Labels] = set()
    while name in targets:
        if name in seen or len(seen) > MAX_CNAMES:
            return False
        seen.add(name)
        name = targets[name]
    return any(fact.owner == name and fact.rtype == query.qtype for fact in answer)


def _is_current(fact: Fact, unix_s: float) -> bool:
    """Whether an RRSIG is valid now (RFC 4034 §3.1.5: serial numbers of 32 bits)."""
    expiration, inception = fact.rdata if isinstance(fact.rdata, tuple) else (0, 0)
    now = int(unix_s)
    return (int(expiration) - now) % (2 * _HALF) < _HALF and (now - int(inception)) % (2 * _HALF) < _HALF


def _of_wire(query: Query, packet: bytes, scanned: Iterable[Record]) -> Iterator[Fact]:
    name, names = query.labels, NamesAt(packet)
    for record in scanned:
        section, rtype, rdata_at, end = record.section, record.rtype, record.rdata_at, record.end
        if rtype == OPT:
            continue
        owner: Labels = ()
        if section == ANSWER:
            is_own = packet.startswith(QUESTION_POINTER, record.owner_at)
            owner = name if is_own else names.at(record.owner_at)
        rdata: Labels | tuple[int, int] | int | None = None
        if rtype == CNAME:
            rdata = names.at(rdata_at)
        elif rtype == SOA and end - rdata_at >= TTL_BYTES.size:
            (rdata,) = TTL_BYTES.unpack_from(packet, end - TTL_BYTES.size)
        elif rtype == RRSIG and end - rdata_at >= _TIMES_AT + _TIMES.size:
            rdata = _TIMES.unpack_from(packet, rdata_at + _TIMES_AT)
        yield Fact(section, owner, rtype, record.rclass, record.ttl, rdata)


def _of_records(response: Response) -> Iterator[Fact]:
    negative = (response.soa.rrset,) if response.soa is not None else ()
    sections = (response.answer, (*response.authority, *negative), response.additional)
    for section, rrsets in enumerate(sections, ANSWER):
        for rrset in rrsets:
            owner = lowered(labels_of(rrset.owner))
            for rdata in rrset.rdata:
                yield Fact(section, owner, rrset.rtype, rrset.rclass, rrset.ttl, _fact_of(rrset, rdata))


def _fact_of(rrset: RRset, rdata: object) -> Labels | tuple[int, int] | int | None:
    if rrset.rtype == CNAME and isinstance(rdata, str):
        return lowered(labels_of(rdata))
    if isinstance(rdata, Soa):
        return rdata.minimum
    if rrset.rtype == RRSIG and isinstance(rdata, bytes) and len(rdata) >= _TIMES_AT + _TIMES.size:
        return _TIMES.unpack_from(rdata, _TIMES_AT)
    return None


def without_flags(response: Response, flags: int) -> Response:
    body = response.body
    if not isinstance(body, Message):
        return evolve(response, flags=response.flags & ~flags) if response.flags & flags else response
    current = body.wire[FLAGS_AT] << 8 | body.wire[FLAGS_AT + 1]
    if not current & flags:
        return response
    wire = b"".join((body.wire[:FLAGS_AT], FLAGS.pack(current & ~flags), body.wire[FLAGS_AT + FLAGS.size :]))
    return evolve(response, body=Message(wire, body.shape))


def with_ttl(response: Response, ttl_s: int, positions: Sequence[int] = ()) -> Response:
    """Sets the TTL of all records; `positions` are those of a message's TTLs, if known."""
    body = response.body
    if isinstance(body, Message):
        ttl, wire = TTL_BYTES.pack(ttl_s), body.wire
        changed = bytearray()
        for position in positions or ttls_at(records(wire)):
            if not wire.startswith(ttl, position):
                changed = changed or bytearray(wire)
                changed[position : position + TTL_BYTES.size] = ttl
        return evolve(response, body=Message(bytes(changed), body.shape)) if changed else response
    return _with_ttls(_with_soa_record(response), lambda _: ttl_s)


def capped(response: Response, success_s: int, denial_s: int) -> Response:
    """Limits TTLs to those of items of its kind, but not in an upstream's message.

    A shared SOA is written out with its current serial: such a response is not reused.
    """
    limit_s = success_s if response.answer else denial_s
    shared = (response.soa.rrset,) if response.soa else ()
    rrsets = (*response.answer, *response.authority, *response.additional, *shared)
    if all(rrset.ttl <= limit_s for rrset in rrsets):
        return response
    limited = _with_ttls(_with_soa_record(response), lambda ttl_s: min(ttl_s, limit_s))
    return evolve(limited, reuse=PRIVATE) if shared else limited


def _with_soa_record(response: Response) -> Response:
    if response.soa is None:
        return response
    return evolve(response, authority=(*response.authority, response.soa.rrset), soa=None)


def _with_ttls(response: Response, ttl_s: Callable[[int], int]) -> Response:
    answer, authority, additional = (
        tuple(RRset(rrset.owner, rrset.rtype, ttl_s(rrset.ttl), rrset.rdata, rrset.rclass) for rrset in rrsets)
        for rrsets in (response.answer, response.authority, response.additional)
    )
    return evolve(response, answer=answer, authority=authority, additional=additional)
