"""minimal: removes the authority and additional sections of positive answers if the protocol allows it."""

from __future__ import annotations

from typing import Final

from kdns.answers.chain import Plugin, Reply, Request, Sees, Serve, ServeResult, then
from kdns.answers.outcome import ResponseClass, response_class_of
from kdns.answers.response import Message, Response
from kdns.dns.query import HEADER_BYTES
from kdns.dns.types import NSEC, NSEC3
from kdns.dns.wire import ANSWER, AUTHORITY, records
from kdns.serverblocks.directive import Directive, NoConfig, Repeat, Row
from kdns.values import evolve

PROOFS: Final = frozenset((NSEC, NSEC3))


class Minimal(Plugin):
    """Removes authority and additional sections of positive answers.

    Differs: an answer with NSEC or NSEC3 records keeps its authority section: they prove that a wildcard applies, and
    without them the answer is bogus (RFC 4035 §3.1.3.3).
    """

    sees = Sees.PACKET

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        reply = next(request)
        if isinstance(reply, Response):
            return shortened(reply) if reply.authority or reply.additional or reply.wire else reply
        return then(reply, shortened)


def shortened(reply: Reply) -> Reply:
    if reply is None or response_class_of(reply) is not ResponseClass.SUCCESS:
        return reply
    if reply.wire:
        return evolve(reply, body=Message(shortened_wire(reply.wire)))
    has_proof = any(rrset.rtype in PROOFS for rrset in reply.authority)
    return evolve(reply, authority=reply.authority if has_proof else (), additional=())


def shortened_wire(wire: bytes) -> bytes:
    """Truncated after the last section that stays: compression pointers lead backwards only."""
    scanned = records(wire)
    has_proof = any(record.section == AUTHORITY and record.rtype in PROOFS for record in scanned)
    last = AUTHORITY if has_proof else ANSWER
    remaining = [record for record in scanned if record.section <= last]
    if len(remaining) == len(scanned):
        return wire
    end = remaining[-1].end if remaining else scanned[0].owner_at
    authorities = wire[8:10] if has_proof else bytes(2)
    return wire[:8] + authorities + bytes(2) + wire[HEADER_BYTES:end]


DIRECTIVE: Final[Row] = Directive("minimal", NoConfig, lambda _config, _world: Minimal(), repeat=Repeat.LAST)
