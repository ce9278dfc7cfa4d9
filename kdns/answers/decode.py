"""Responses of upstreams taken apart into records."""

from __future__ import annotations

from collections.abc import Iterable
from struct import unpack_from
from typing import Final

from kdns.answers.response import Response
from kdns.dns.names import text_of
from kdns.dns.query import AA, AD, RA, TC, options_of
from kdns.dns.rdata import expanded, rdata_of
from kdns.dns.rrset import RRset
from kdns.dns.types import OPT
from kdns.dns.wire import ANSWER, Record, owner_of, records
from kdns.values import evolve

_SETTABLE: Final = AA | TC | RA | AD


def from_wire(response: Response) -> Response:
    """Returns the same response with its `wire`, if any, taken apart into records.

    ValueError if the bytes are not a DNS message. Records of one owner, type, class and TTL that stand next to each
    other become one RRset.
    """
    return with_records(response, records(response.wire)) if response.wire else response


def with_records(response: Response, chosen: Iterable[Record]) -> Response:
    """Returns the response with these records of its `wire` in place of the message.

    An OPT gives its options and rcode.
    """
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
        flags=flags & _SETTABLE,
        answer=answer,
        authority=authority,
        additional=additional,
        options=options,
        body=None,
    )
