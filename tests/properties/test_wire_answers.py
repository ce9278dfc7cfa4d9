"""Answers in bytes, read back by dnslib: nothing lost, nothing too long, no address left out for ever."""

from ipaddress import IPv4Address, IPv6Address
from typing import Any

import dnslib
from decoded_message import Decoded, decode
from dns_chain import read
from hypothesis import given
from hypothesis import strategies as st

from kdns.answers.answer import compile_answer
from kdns.answers.response import Response
from kdns.cluster.state import Index
from kdns.dns import types
from kdns.dns.message import query
from kdns.dns.query import AA, Query
from kdns.dns.rdata import text_rdata
from kdns.dns.rrset import Rdata, RRset, Soa, Srv
from kdns.net import packed

ZONE = "cluster.local."
LABELS = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_", min_size=1, max_size=20)
NAMES = st.builds(
    lambda labels, suffix: ".".join((*labels, suffix)),
    st.lists(LABELS, max_size=4),
    st.sampled_from([ZONE, "svc.cluster.local.", "example.org.", "local."]),
)
NUMBERS = st.integers(0, 65535)
SECONDS = st.integers(0, 2**31 - 1)
RDATA: dict[int, st.SearchStrategy[Any]] = {
    types.A: st.binary(min_size=4, max_size=4),
    types.AAAA: st.binary(min_size=16, max_size=16),
    types.CNAME: NAMES,
    types.NS: NAMES,
    types.PTR: NAMES,
    types.SRV: st.builds(Srv, NUMBERS, NUMBERS, NUMBERS, NAMES),
    types.SOA: st.builds(Soa, NAMES, NAMES, SECONDS, SECONDS, SECONDS, SECONDS, SECONDS),
    types.TXT: st.binary(max_size=255).map(text_rdata),
}


@st.composite
def rrsets(draw: st.DrawFn) -> RRset:
    rtype = draw(st.sampled_from(tuple(RDATA)))
    rdata: list[Rdata] = draw(st.lists(RDATA[rtype], min_size=1, max_size=4))
    return RRset(draw(NAMES), rtype, draw(SECONDS), tuple(rdata))


SECTIONS = st.lists(rrsets(), max_size=4).map(tuple)
BUFFERS = st.sampled_from([0, 512, 700, 1232, 4096])


def asked(name: str, qtype: int, payload_bytes: int) -> Query:
    return read(query(name, qtype, payload_bytes=payload_bytes))


def answered(question: Query, message: Response, limit_bytes: int) -> bytes:
    return compile_answer(question, message, limit_bytes, ".").wire(question.packet)


def response_of(answer: tuple[RRset, ...], authority: tuple[RRset, ...], additional: tuple[RRset, ...]) -> Response:
    return Response(0, AA, answer, authority, additional, zone=ZONE)


def each_record(section: tuple[RRset, ...]) -> list[RRset]:
    return [RRset(rrset.owner, rrset.rtype, rrset.ttl, (rdata,)) for rrset in section for rdata in rrset.rdata]


@given(NAMES, st.sampled_from(tuple(RDATA)), BUFFERS, SECTIONS, SECTIONS, SECTIONS)
def test_what_is_encoded_is_what_dnslib_reads(
    name: str,
    qtype: int,
    payload_bytes: int,
    answer: tuple[RRset, ...],
    authority: tuple[RRset, ...],
    additional: tuple[RRset, ...],
) -> None:
    question = asked(name, qtype, payload_bytes)
    message = response_of(answer, authority, additional)
    packet = answered(question, message, 65535)
    decoded = decode(packet)
    for section, section_read in (
        (answer, decoded.answer),
        (authority, decoded.authority),
        (additional, decoded.additional),
    ):
        assert list(section_read) == each_record(section)
    assert dnslib.DNSRecord.parse(packet).q == dnslib.DNSRecord.parse(question.packet).q
    assert packet[:2] == question.packet[:2]
    assert decoded.flags == {"qr", "aa", "rd"}


@given(NAMES, BUFFERS, SECTIONS, SECTIONS, SECTIONS)
def test_no_answer_is_longer_than_its_limit(
    name: str,
    payload_bytes: int,
    answer: tuple[RRset, ...],
    authority: tuple[RRset, ...],
    additional: tuple[RRset, ...],
) -> None:
    question = asked(name, types.A, payload_bytes)
    limit_bytes = max(payload_bytes, 512)
    packet = answered(question, response_of(answer, authority, additional), limit_bytes)
    assert len(packet) <= limit_bytes
    got, wanted = decode(packet), each_record(answer)
    assert all(record in wanted for record in got.answer)
    assert ("tc" in got.flags) == (len(got.answer) < len(wanted))
    if "tc" in got.flags:
        assert not got.authority
        assert not got.additional
    whole = len(answered(question, response_of(answer, authority, additional), 65535))
    assert (whole <= limit_bytes) == (count(got) == sum(map(len, map(each_record, (answer, authority, additional)))))


def count(got: Decoded) -> int:
    return len(got.answer) + len(got.authority) + len(got.additional)


ADDRESSES = st.one_of(
    st.integers(0, 40).map(lambda one: str(IPv4Address(0x0A000000 + one))),
    st.integers(0, 40).map(lambda one: str(IPv6Address(0xFD << 120 | one))),
    st.just("no address"),
)
MOVES = st.lists(st.tuples(st.sampled_from("abcd"), st.lists(ADDRESSES, max_size=3)), max_size=20)


@given(MOVES, ADDRESSES, ADDRESSES)
def test_the_addresses_between_two_are_those_a_search_of_all_finds(
    moves: list[tuple[str, list[str]]], one: str, other: str
) -> None:
    index, held = Index(), dict[str, list[str]]()
    first, last = sorted((packed(one), packed(other)))
    for name, addresses in moves:
        index.move(("", name), map(packed, held.get(name, [])), map(packed, addresses))
        held[name] = addresses
        known = {packed(ip) for ips in held.values() for ip in ips} - {b""}
        if len(first) == len(last):
            wanted = sorted(ip for ip in known if len(ip) == len(first) and first <= ip <= last)
            assert list(index.between(first, last)) == wanted
        for ip in known:
            assert set(index[ip]) == {("", name) for name, ips in held.items() if ip in map(packed, ips)}
