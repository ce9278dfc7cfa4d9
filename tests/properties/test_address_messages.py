"""Addresses and denials that one pattern reads are read as by loops over records, also with damaged bytes."""

from itertools import product
from struct import pack
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from kdns.answers.response import Message, Response
from kdns.dns.names import labels_of
from kdns.dns.query import HEADER_BYTES, Query, query_for
from kdns.dns.types import AAAA, A
from kdns.dns.wire import Shape, shape_of
from kdns.plugins.changes.cache.kinds import Contents, contents
from kdns.plugins.sources.forward import bailiwick
from kdns.plugins.sources.forward.bailiwick import checked
from kdns.values import evolve

OPTS = (b"", bytes.fromhex("000029 04d0 0000 8000 0000"), bytes.fromhex("000029 04d0 0100 0000 0000"))
"""None, one with DNSSEC OK, and one with upper bits of the rcode."""
QUERIES = {rtype: query_for(labels_of("www.example.org."), rtype) for rtype in (A, AAAA)}


def message(query: Query, rtype: int, ttls: list[int], opt: bytes) -> bytes:
    """A response with an address for each TTL."""
    size_bytes = 4 if rtype == A else 16
    answer = b"".join(pack("!HHHIH", 0xC00C, rtype, 1, ttl, size_bytes) + bytes(range(size_bytes)) for ttl in ttls)
    counts = pack("!HHHHH", 0x8180, 1, len(ttls), 0, bool(opt))
    return query.packet[:2] + counts + query.packet[HEADER_BYTES:] + answer + opt


def reading(wire: bytes, query: Query) -> tuple[Response, Contents] | str:
    """What `forward` and `cache` read in a message."""
    try:
        response = checked(wire, query, "forward")
        parsed = contents(query, response, float)
        response = evolve(response, body=Message(response.wire) if response.wire else None)
        return response, evolve(parsed, ttls_at=list(parsed.ttls_at))
    except ValueError as error:
        return str(error)


def read_by_loops(wire: bytes, query: Query) -> tuple[Response, Contents] | str:
    """The same, each record read for itself."""
    with patch.object(bailiwick, "shape_of", lambda _wire, _end: None):
        return reading(wire, query)


@given(
    st.sampled_from((A, AAAA)),
    st.sampled_from((A, AAAA)),
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=5),
    st.sampled_from(OPTS),
    st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=2),
    st.binary(max_size=2),
)
@example(A, A, [60, 30], OPTS[1], [(7, 1)], b"")  # fewer answers than records
@example(A, A, [60], OPTS[1], [(7, 2)], b"")  # the OPT would be an answer
@example(A, A, [60], b"", [(2, 0x83)], b"")  # truncated
def test_one_pattern_reads_what_loops_read(
    qtype: int, rtype: int, ttls: list[int], opt: bytes, damage: list[tuple[int, int]], junk: bytes
) -> None:
    query = QUERIES[qtype]
    changed = bytearray(message(query, rtype, ttls, opt))
    for number, byte in damage:
        place = number % len(changed)
        if not HEADER_BYTES <= place < query.question_end:  # an exchange has compared the question
            changed[place] = byte
    wire = bytes(changed) + junk
    assert reading(wire, query) == read_by_loops(wire, query)


MNAMES = (
    b"\0",
    b"\1a\0",
    b"\2ns\xc0\x10",
    b"\xc0\x0c",
    b"\3ns1\7example\3org\0",
    b"\xc0\x11",
    b"\x3f" + b"a" * 63 + b"\xc0\x0c",
)
"""Names in an SOA: with pointers to labels of the question, and one into the middle of a label."""
OWNERS = (b"\0", b"\xc0\x0c", b"\xc0\x10", b"\xc0\x18", b"\xc0\x0e", b"\7example\3org\0")


def denial(query: Query, owner: bytes, names: tuple[bytes, bytes], times: tuple[int, int], opt: bytes) -> bytes:
    """A response with the SOA of a zone; `times` are its TTL and MINIMUM."""
    rdata = b"".join(names) + pack("!IIIII", 1, 7200, 3600, 86400, times[1])
    soa = owner + pack("!HHIH", 6, 1, times[0], len(rdata)) + rdata
    counts = pack("!HHHHH", 0x8183, 1, 0, 1, bool(opt))
    return query.packet[:2] + counts + query.packet[HEADER_BYTES:] + soa + opt


@given(
    st.sampled_from(OWNERS),
    st.tuples(st.sampled_from(MNAMES), st.sampled_from(MNAMES)),
    st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    st.sampled_from(OPTS),
    st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=2),
    st.binary(max_size=2),
)
@example(OWNERS[2], (MNAMES[2], MNAMES[3]), (60, 30), OPTS[1], [(3, 0x80)], b"")  # NODATA
@example(OWNERS[2], (MNAMES[2], MNAMES[3]), (60, 30), OPTS[1], [(3, 0x82)], b"")  # SERVFAIL
@example(OWNERS[2], (MNAMES[2], MNAMES[3]), (60, 30), OPTS[1], [(2, 0x83)], b"")  # truncated
def test_one_pattern_reads_denials_as_loops_do(
    owner: bytes,
    names: tuple[bytes, bytes],
    times: tuple[int, int],
    opt: bytes,
    damage: list[tuple[int, int]],
    junk: bytes,
) -> None:
    query = QUERIES[A]
    changed = bytearray(denial(query, owner, names, times, opt))
    for number, byte in damage:
        place = number % len(changed)
        if not HEADER_BYTES <= place < query.question_end:
            changed[place] = byte
    wire = bytes(changed) + junk
    assert reading(wire, query) == read_by_loops(wire, query)


def test_the_patterns_match() -> None:
    for rtype, query in QUERIES.items():
        for count in (1, 2, 100):
            for opt in OPTS:
                wire = message(query, rtype, [60] * count, opt)
                step, stop = 16 if rtype == A else 28, len(wire) - len(opt)
                places = range(query.question_end + 6, stop, step)
                assert shape_of(wire, query.question_end) == Shape(places, stop, step)
    query = QUERIES[A]
    for owner in OWNERS[:3]:
        for names in product(MNAMES[:5], MNAMES[:5]):
            for opt in OPTS:
                wire = denial(query, owner, names, (60, 30), opt)
                shape = shape_of(wire, query.question_end)
                assert shape == Shape((query.question_end + len(owner) + 4,), len(wire) - len(opt), 0)
                assert shape.ttl_s(wire) == 30
