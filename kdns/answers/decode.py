"""Messages of upstreams → records."""

from __future__ import annotations

from collections.abc import Iterable
from struct import unpack_from

from kdns.answers.response import RESPONSE_FLAGS, Response
from kdns.dns.names import text_of
from kdns.dns.query import options_of
from kdns.dns.rdata import expanded, rdata_of
from kdns.dns.rrset import RRset
from kdns.dns.types import OPT
from kdns.dns.wire import ANSWER, Record, owner_of, records
from kdns.values import evolve


def from_wire(response: Response) -> Response:
    """Parses the response's `wire`, if any, into records; ValueError if it is not a DNS message.

    Adjacent records of one owner, type, class and TTL become one RRset.
    """
    return with_records(response, records(response.wire)) if response.wire else response


def with_records(response: Response, chosen: Iterable[Record]) -> Response:
    """Replaces the message by these of its records; an OPT gives its options and rcode."""
    packet = response.wire
    sections: tuple[list[RRset], ...] = ([], [], [])
    options = response.options
    (flags,) = unpack_from("!H", packet, 2)
    rcode = flags & 15
    for record in chosen:
        if record.rtype == OPT:
            options = (*options, *options_of(packet[record.rdata_at : record.end]))
            rcode |= record.ttl >> 24 << 4
            continue
        section = sections[record.section - ANSWER]
        owner = text_of(owner_of(packet, record))
        rdata = rdata_of(record.rtype, expanded(record.rtype, packet, record.rdata_at, record.end))
        last = section[-1] if section else None
        key = (owner, record.rtype, record.ttl, record.rclass)
        if last is not None and (last.owner, last.rtype, last.ttl, last.rclass) == key:
            section[-1] = RRset(owner, record.rtype, record.ttl, (*last.rdata, rdata), record.rclass)
        else:
            section.append(RRset(owner, record.rtype, record.ttl, (rdata,), record.rclass))
    answer, authority, additional = map(tuple, sections)
    return evolve(
        response,
        rcode=response.rcode & ~15 | rcode,
        flags=flags & RESPONSE_FLAGS,
        answer=answer,
        authority=authority,
        additional=additional,
        options=options,
        body=None,
    )
