"""Which records of an upstream's message reach the client: those that concern the question."""

import pytest
from scripted_upstream import says, wire_of
from zone_text import record_texts

from kdns.answers.decode import from_wire
from kdns.answers.response import Response
from kdns.dns.names import labels_of
from kdns.dns.query import AA, HEADER_BYTES, RA, query_for
from kdns.dns.types import type_number
from kdns.dns.wire import records
from kdns.plugins.sources.forward.bailiwick import checked

OPT = bytes.fromhex("00002904d0000000000000")
EDE = bytes.fromhex("00002904d0000000000006000f00020016")
SOA = "org. 60 IN SOA ns.org. mail.org. 1 2 3 4 5"

# fmt: off
KEPT = {
    "the name": ["www.example.org. 5 IN A 192.0.2.1"],
    "several addresses": ["www.example.org. 5 IN A 192.0.2.1", "WWW.example.org. 5 IN A 192.0.2.2"],
    "a chain": ["www.example.org. 5 IN CNAME a.net.", "a.net. 5 IN CNAME b.a.net.", "b.a.net. 5 IN A 192.0.2.1"],
    "a chain out of order": ["b.net. 5 IN A 192.0.2.1", "a.net. 5 IN CNAME b.net.",
                             "www.example.org. 5 IN CNAME a.net."],
    "a DNAME": ["example.org. 5 IN DNAME example.net.", "www.example.org. 5 IN CNAME www.example.net.",
                "www.example.net. 5 IN A 192.0.2.1"],
    "a DNAME without its CNAME": ["example.org. 5 IN DNAME example.net.", "www.example.net. 5 IN A 192.0.2.1"],
    "a signature": ["www.example.org. 5 IN A 192.0.2.1",
                    "www.example.org. 5 IN RRSIG A 8 2 5 20300101000000 20200101000000 1 org. AAAA"],
}
DROPPED = {
    "another name": ["www.bank.example. 5 IN A 192.0.2.66"],
    "a name above": ["example.org. 5 IN A 192.0.2.66"],
    "a name below": ["a.www.example.org. 5 IN A 192.0.2.66"],
    "a CNAME of another name": ["www.bank.example. 5 IN CNAME a.net.", "a.net. 5 IN A 192.0.2.66"],
    "a DNAME of another zone": ["bank.example. 5 IN DNAME example.net."],
    "a DNAME of the name": ["www.example.org. 5 IN DNAME example.net.", "example.net. 5 IN A 192.0.2.66"],
    "a class": ['www.example.org. 5 CH TXT "x"'],
}
AUTHORITY_KEPT = [
    SOA, ". 5 IN NS a.root.example.", "example.org. 5 IN NS ns.bank.example.",
    "www.example.org. 5 IN NS ns.example.org.",
    "a.org. 5 IN NSEC z.org. A RRSIG NSEC", "a.org. 5 IN RRSIG NSEC 8 2 5 20300101000000 20200101000000 1 org. AAAA",
]
AUTHORITY_DROPPED = [
    "bank.example. 5 IN NS ns.evil.example.", "a.www.example.org. 5 IN NS ns.evil.example.",
    "b.org. 5 IN DS 1 8 2 " + 32 * "00",
]
# fmt: on

GOOD = "www.example.org. 5 IN A 192.0.2.1"


def message(response: Response, name: str = "www.example.org.", opt: bytes = b"") -> Response:
    query = query_for(labels_of(name), type_number("A"))
    wire = wire_of(query, response)
    additionals = int.from_bytes(wire[10:12], "big") + bool(opt)
    return checked(wire[:10] + additionals.to_bytes(2, "big") + wire[12:] + opt, query, "forward")


def shown(response: Response) -> list[list[str]]:
    response = from_wire(response) if response.wire else response
    sections = (response.answer, response.authority, response.additional)
    return [[line for rrset in section for line in record_texts(rrset)] for section in sections]


@pytest.mark.parametrize("lines", KEPT.values(), ids=KEPT)
def test_answers_that_concern_the_question_are_passed_on_as_bytes(lines: list[str]) -> None:
    response = message(says(*lines))
    assert response.wire
    assert shown(response)[0] == shown(says(*lines))[0]


@pytest.mark.parametrize("lines", DROPPED.values(), ids=DROPPED)
def test_other_records_are_left_out_of_the_answer(lines: list[str]) -> None:
    first, *_ = lines
    is_own_dname = first.startswith("www.example.org. 5 IN DNAME")
    response = message(says(GOOD, *lines, flags=AA | RA))
    assert not response.wire
    assert (response.flags, response.plugin) == (AA | RA, "forward")
    assert shown(response) == [[GOOD, *lines[:is_own_dname]], [], []]


def test_the_authority_section_has_zones_of_the_name_and_proofs() -> None:
    assert message(says(authority=AUTHORITY_KEPT)).wire
    assert (
        shown(message(says(authority=[*AUTHORITY_KEPT, *AUTHORITY_DROPPED])))[1]
        == shown(says(authority=AUTHORITY_KEPT))[1]
    )
    behind_cname = says("www.example.org. 5 IN CNAME a.net.", authority=["net. 60 IN SOA ns.net. mail.net. 1 2 3 4 5"])
    assert message(behind_cname).wire


def test_the_additional_section_has_names_of_other_records() -> None:
    authority = ["example.org. 5 IN NS ns.other.example."]
    glue = "ns.other.example. 5 IN A 192.0.2.53"
    assert message(says(GOOD, authority=authority, additional=[glue])).wire
    stranger = "www.bank.example. 5 IN A 192.0.2.66"
    assert shown(message(says(GOOD, authority=authority, additional=[glue, stranger])))[2] == [glue]
    assert shown(message(says(GOOD, additional=[glue])))[2] == []
    dropped = message(
        says(
            GOOD,
            authority=["bank.example. 5 IN NS ns.bank.example."],
            additional=["ns.bank.example. 5 IN A 192.0.2.66"],
        )
    )
    assert shown(dropped) == [[GOOD], [], []]
    service = says("www.example.org. 5 IN SRV 0 0 53 a.example.", additional=["a.example. 5 IN A 192.0.2.1"])
    assert message(service).wire


@pytest.mark.parametrize(("opt", "options"), [(OPT, ()), (EDE, ((15, b"\0\x16"),))])
def test_the_opt_becomes_options(opt: bytes, options: tuple[tuple[int, bytes], ...]) -> None:
    response = message(says(GOOD), opt=opt)
    assert (response.options, response.rcode) == (options, 0)
    assert [record.rtype for record in records(response.wire)] == [1]
    assert len(response.wire) == len(message(says(GOOD)).wire)
    assert message(says(GOOD, "a.b. 5 IN A 192.0.2.66"), opt=opt).options == options


def test_an_opt_before_other_records_is_taken_out_too() -> None:
    query = query_for(labels_of("www.example.org."), 1)
    wire = wire_of(query, says())
    extra = b"\xc0\x0c" + bytes.fromhex("00010001000000050004c0000201")
    response = checked(wire[:10] + b"\0\2" + wire[12:] + EDE + extra, query, "forward")
    assert not response.wire
    assert (response.options, shown(response)[2]) == (((15, b"\0\x16"),), [GOOD])


def test_an_opt_in_another_section_is_left_out() -> None:
    query = query_for(labels_of("www.example.org."), 1)
    wire = wire_of(query, says())
    response = checked(wire[:6] + b"\0\1" + wire[8:] + b"\xc0\x0c" + bytes.fromhex("00290001000000000000"), query, "")
    assert (response.wire, shown(response)) == (b"", [[], [], []])


def test_the_upper_bits_of_the_rcode_are_in_the_opt() -> None:
    assert message(says(rcode=3), opt=OPT[:5] + b"\1" + OPT[6:]).rcode == 19


def test_a_response_without_its_question_is_a_response() -> None:
    query = query_for(labels_of("www.example.org."), 1)
    wire = wire_of(query, says(rcode=5))
    response = checked(wire[:4] + b"\0\0" + wire[6:12], query, "forward")
    assert (response.rcode, shown(response)) == (5, [[], [], []])


@pytest.mark.parametrize("name", ["www.example.org.", "."])
def test_any_end_of_a_message_is_a_message_or_an_error(name: str) -> None:
    query = query_for(labels_of(name), 1)
    wire = wire_of(
        query, says(*KEPT["a chain"], authority=AUTHORITY_KEPT, additional=["ns.example.org. 5 IN A 192.0.2.1"])
    )
    for end in range(HEADER_BYTES, len(wire)):
        with pytest.raises(ValueError, match=r"."):
            checked(wire[:end], query, "forward")
    for position in range(HEADER_BYTES, len(wire)):
        for byte in (0, 0x3F, 0xC0, 0xFF):
            try:
                response = checked(wire[:position] + bytes((byte,)) + wire[position + 1 :], query, "forward")
            except ValueError:
                continue
            if response.wire:
                from_wire(response)  # what is passed on may be taken apart by another directive


MALFORMED = {
    "a label of an unknown kind in a CNAME": "www.example.org. 5 IN CNAME a.example.",
    "a name that runs out of an MX": "www.example.org. 5 IN MX 10 a.example.",
    "an address of three bytes": "www.example.org. 5 IN A 192.0.2.1",
}


@pytest.mark.parametrize("about", MALFORMED)
def test_a_record_that_is_none_of_its_type_is_an_error(about: str) -> None:
    query = query_for(labels_of("www.example.org."), 1)
    wire = bytearray(wire_of(query, says(MALFORMED[about])))
    (record,) = records(bytes(wire))
    match about.split()[0:2]:
        case ["a", "label"]:
            wire[record.rdata_at] = 0x80
        case ["a", "name"]:
            wire[record.rdata_at + 2] = 63
        case _:
            wire[record.rdata_at - 1] = 3
            del wire[-1]
    with pytest.raises(ValueError, match=r"unknown kind|runs out|wrong length"):
        checked(bytes(wire), query, "forward")
