"""Classes of responses: an answer, a denial (RFC 2308 §2), a referral (RFC 1034 §4.3.2) or an error."""

from __future__ import annotations

from enum import Enum
from typing import Final

from kdns.answers.response import Response
from kdns.dns.names import text_of
from kdns.dns.types import NOERROR, NS, NXDOMAIN, SOA
from kdns.dns.wire import ANSWER, AUTHORITY, owner_of, records


class ResponseClass(Enum):
    """The classes that `log`, `minimal` and `rrl` distinguish. NODATA needs an SOA, as in CoreDNS."""

    SUCCESS = "success"
    NODATA = "nodata"
    NXDOMAIN = "nxdomain"
    REFERRAL = "referral"
    ERROR = "error"


_NO_ANSWER: Final = bytes(2)


def response_class_of(response: Response) -> ResponseClass:
    if response.wire:
        return response_class_of_wire(response.wire, response.rcode)
    if response.rcode != NOERROR or response.answer:
        return _of_rcode(response.rcode)
    types = {rrset.rtype for rrset in response.authority}
    return _without_answer(types | {SOA} if response.soa is not None else types)


def response_class_of_wire(wire: bytes, rcode: int) -> ResponseClass:
    """ValueError for bytes that are not a message."""
    if rcode != NOERROR or wire[6:8] != _NO_ANSWER:
        return _of_rcode(rcode)
    if wire[8:10] == _NO_ANSWER:
        return ResponseClass.SUCCESS
    return _without_answer({record.rtype for record in records(wire) if record.section == AUTHORITY})


def soa_owner(response: Response) -> str:
    """In lower case; "" without an SOA in the authority section."""
    if response.soa is not None:
        return response.soa.rrset.owner.lower()
    return _authority_owner(response, SOA)


def referral_owner(response: Response) -> str:
    """In lower case; "" without NS records in the authority section."""
    return _authority_owner(response, NS)


def answered_type(response: Response) -> int | None:
    """The type of the answer's first record; None if it is empty."""
    if response.wire:
        return next((record.rtype for record in records(response.wire) if record.section == ANSWER), None)
    return response.answer[0].rtype if response.answer else None


def _authority_owner(response: Response, rtype: int) -> str:
    if response.wire:
        for record in records(response.wire):
            if record.section == AUTHORITY and record.rtype == rtype:
                return text_of(owner_of(response.wire, record)).lower()
        return ""
    return next((rrset.owner.lower() for rrset in response.authority if rrset.rtype == rtype), "")


def _of_rcode(rcode: int) -> ResponseClass:
    if rcode == NOERROR:
        return ResponseClass.SUCCESS
    return ResponseClass.NXDOMAIN if rcode == NXDOMAIN else ResponseClass.ERROR


def _without_answer(types: set[int]) -> ResponseClass:
    if SOA in types:
        return ResponseClass.NODATA
    return ResponseClass.REFERRAL if NS in types else ResponseClass.SUCCESS
