"""Padding of responses: which queries have it, and how far a response is padded."""

import dns.message
import pytest
from dns_client import packet, with_options

from kdns.answers.padding import BLOCK_BYTES, is_padded, padded
from kdns.dns.query import MAX_MESSAGE_BYTES
from kdns.dns.types import PADDING

QUESTION = packet("a.test")
WITH_OPT = packet("a.test", payload_bytes=1232)
PAD = (PADDING, bytes(9))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (QUESTION, False),
        (WITH_OPT, False),
        (with_options(WITH_OPT, (3, b"")), False),
        (with_options(WITH_OPT, (10, bytes(12))), False),
        (with_options(WITH_OPT, PAD), True),
        (with_options(WITH_OPT, (PADDING, b"")), True),
        (with_options(WITH_OPT, (3, b""), PAD), True),
        (with_options(WITH_OPT, PAD)[:-1], False),
        (QUESTION + bytes(40), False),
    ],
)
def test_which_queries_are_padded(query: bytes, expected: bool) -> None:
    assert is_padded(query, len(QUESTION)) is expected


def response(text_bytes: int) -> bytes:
    """A response of about this size, whose OPT has an option."""
    message = dns.message.from_text(
        "id 1\nopcode QUERY\nrcode NOERROR\nflags QR\nedns 0\n;QUESTION\na.test. IN TXT\n;ANSWER\n"
        + "".join(f"a.test. 60 IN TXT {'x' * min(200, text_bytes - at)}\n" for at in range(0, text_bytes, 200))
    )
    return with_options(message.to_wire(max_size=MAX_MESSAGE_BYTES), (3, b"server"))


@pytest.mark.parametrize(
    ("size_bytes", "limit_bytes"),
    [(1, MAX_MESSAGE_BYTES), (400, MAX_MESSAGE_BYTES), (1200, MAX_MESSAGE_BYTES), (400, 600), (60000, 61999)],
)
def test_a_response_is_padded_to_a_block_or_to_its_limit(size_bytes: int, limit_bytes: int) -> None:
    plain = response(size_bytes)
    got = padded(plain, limit_bytes)
    assert len(got) == limit_bytes or len(got) % BLOCK_BYTES == 0
    assert len(plain) + 4 <= len(got) <= limit_bytes
    before, after = dns.message.from_wire(plain), dns.message.from_wire(got)
    assert (before.answer, before.flags) == (after.answer, after.flags)
    *options, padding = after.options
    assert (tuple(options), padding.otype, set(padding.to_wire() or b"")) == (before.options, PADDING, {0})


@pytest.mark.parametrize("room_bytes", [0, 1, 3])
def test_a_response_without_room_stays(room_bytes: int) -> None:
    plain = response(400)
    assert padded(plain, len(plain) + room_bytes) == plain


@pytest.mark.parametrize("wire", [QUESTION, WITH_OPT[:-1], b"", response(100) + b"\0"])
def test_what_has_no_opt_at_its_end_stays(wire: bytes) -> None:
    assert padded(wire, MAX_MESSAGE_BYTES) == wire
