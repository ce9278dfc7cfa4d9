"""What is sent upstream, and which messages answer it."""

from struct import pack

import pytest
from dns_chain import read
from dns_client import packet
from fake_upstream import answer, query_of

from kdns.upstream.framing import Lengths
from kdns.upstream.message import body_of, has_question, in_random_case, is_response, question_of, repeats_question

PLAIN = packet("www.example.com")
EDNS = packet("www.example.com", payload_bytes=1232, do=True)


def test_messages_on_a_connection_may_come_in_any_pieces() -> None:
    framing, wire = Lengths(bytes), b"\x00\x03abc\x00\x02de"
    arrived = [message for byte in wire for message in framing.received(bytes((byte,)))]
    assert arrived == Lengths(bytes).received(wire) == [(b"ab", b"abc"), (b"de", b"de")]


def with_options(*options: tuple[int, bytes], extra: bytes = b"") -> bytes:
    """The plain query with an OPT of these options, and perhaps a record behind it."""
    rdata = b"".join(pack("!HH", code, len(value)) + value for code, value in options)
    opt = b"\x00\x00\x29\x10\x00\x00\x00\x80\x00" + pack("!H", len(rdata)) + rdata
    return PLAIN[:10] + pack("!H", 1 + bool(extra)) + PLAIN[12:] + opt + extra


@pytest.mark.parametrize(
    ("sent", "forwarded"),
    [
        (PLAIN, PLAIN),
        (
            packet("www.example.com", payload_bytes=1232, do=True),
            packet("www.example.com", payload_bytes=1232, do=True),
        ),
        (with_options((10, b"cookie00"), (12, b"\0" * 30), (11, b"")), with_options()),
        (with_options((8, b"\0\1\x18\0\x0a\1\2"), (10, b"c" * 8)), with_options((8, b"\0\1\x18\0\x0a\1\2"))),
        (with_options((65001, b"x")), with_options((65001, b"x"))),
        (with_options(extra=b"\x01k\x00\x00\xfa\x00\xff\x00\x00\x00\x00\x00\x00"), with_options()),
        (PLAIN + b"junk", PLAIN),
    ],
    ids=["plain", "EDNS", "hop by hop", "subnet", "unknown option", "TSIG", "junk"],
)
def test_what_is_sent_behind_the_id(sent: bytes, forwarded: bytes) -> None:
    assert body_of(read(sent)) == forwarded[2:]


def test_letters_take_their_case_from_entropy_and_nothing_else_changes() -> None:
    question = question_of(query_of("_x-1.[aZ]`{.Example.COM", qtype="HTTPS"))
    for entropy, wanted in ((b"\0", question), (b"\xff", question[:-4].swapcase() + question[-4:])):
        assert in_random_case(question, entropy * len(question)) == wanted


@pytest.mark.parametrize(
    ("message", "response", "about"),
    [
        (answer(PLAIN), True, True),
        (answer(packet("WWW.example.com")), True, True),
        (answer(packet("www.example.org")), True, False),
        (answer(packet("www.example.com", "AAAA")), True, False),
        (answer(PLAIN)[:4] + bytes(8), True, False),
        (answer(PLAIN)[:4] + b"\0\2" + answer(PLAIN)[6:], False, False),
        (PLAIN, False, True),
        (b"", False, False),
        (answer(PLAIN)[:11], False, False),
        (b"\0\0\xa8\0\0\1" + bytes(6) + question_of(read(PLAIN)), False, True),
    ],
    ids=["same", "case", "name", "type", "no question", "two", "a query", "nothing", "short", "an update"],
)
def test_messages_that_answer(message: bytes, response: bool, about: bool) -> None:
    assert is_response(message) is response
    assert repeats_question(message, question_of(read(PLAIN))) is about


def test_a_type_is_no_letter() -> None:
    """HTTPS is type 65, the code of an A, and 97 is that of an a."""
    https, other = (question_of(query_of(qtype=name)) for name in ("HTTPS", "A"))
    other = other[:-4] + b"\x00\x61" + other[-2:]
    assert not repeats_question(answer(query_of(qtype="HTTPS").packet), other)
    assert repeats_question(answer(query_of(qtype="HTTPS").packet), https)
    assert not has_question(bytes(12))


def test_two_queries_of_a_stream_have_different_ids() -> None:
    draws = iter([b"\0\1", b"\0\1", b"\0\2"])
    lengths = Lengths(lambda _: next(draws))
    first, _ = lengths.query(b"", ())
    assert (first, lengths.query(b"", {first})) == (b"\0\1", (b"\0\2", b"\0\2\0\2"))
