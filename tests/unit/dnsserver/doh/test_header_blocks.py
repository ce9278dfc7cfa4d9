"""Header blocks of HTTP/2: those that are kept are those that would be made."""

from __future__ import annotations

import re

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdns.dnsserver.doh import header_blocks
from kdns.dnsserver.doh.fields import Fields
from kdns.dnsserver.doh.frames import ErrorCode, Http2Error
from kdns.dnsserver.doh.header_blocks import (
    MAX_BLOCK_BYTES,
    MAX_DECODED,
    MAX_FIELDS,
    Decoder,
    Encoder,
    _huffman_steps,
)
from kdns.dnsserver.doh.http2 import MAX_FIELD_BYTES

FIELDS: tuple[tuple[str, str], ...] = (
    (":status", "200"),
    ("content-type", "application/dns-message"),
    ("cache-control", "max-age=30"),
)
names, values = st.sampled_from((":path", "accept", "x-a", "x-b")), st.sampled_from(("", "/", "*/*", "long" * 20))
blocks = st.lists(st.tuples(names, values, st.booleans()), max_size=4)
steps = st.lists(st.tuples(blocks, st.sampled_from((None, None, None, 0, 64, 4096))), max_size=12)


@given(steps)
def test_blocks_are_decoded_as_by_hpack(steps: list[tuple[list[tuple[str, str, bool]], int | None]]) -> None:
    client, decoder, plain = hpack.Encoder(), Decoder(list, MAX_FIELD_BYTES), hpack.Decoder()
    for fields, table_size in steps:
        if table_size is not None:
            client.header_table_size = table_size
        for _ in range(3):  # the first adds to the table, the second is kept, the third is found
            block = client.encode(fields)
            assert decoder.value(block) == plain.decode(block, raw=True)


texts = st.binary(max_size=40) | st.sampled_from((b"", b"/dns-query?dns=AAAB", b"\xff" * 130))


@st.composite
def literals(draw: st.DrawFn) -> bytes:
    """A field with its value, of each form of RFC 7541 §6.2, whole or not."""
    first = draw(st.sampled_from((0x00, 0x10, 0x40)))
    mask = 0x3F if first == 0x40 else 0x0F
    index = draw(st.integers(0, 80))
    head = bytes((first | index,)) if index < mask else bytes((first | mask, index - mask))
    parts: list[bytes | bytearray] = []
    for _ in range(1 if index else 2):
        text = draw(texts)
        is_huffman = draw(st.booleans())
        if is_huffman and draw(st.booleans()):
            text = hpack.huffman.HuffmanEncoder(hpack.huffman_constants.REQUEST_CODES, LENGTHS).encode(text)
        length = len(text) + draw(st.sampled_from((0, 0, 0, 0, 1, -1)))
        prefix = hpack.hpack.encode_integer(max(0, length), 7)
        prefix[0] |= 0x80 * is_huffman
        parts += [prefix, text]
    return head + b"".join(parts)


LENGTHS = hpack.huffman_constants.REQUEST_CODES_LENGTH
indexed = st.integers(0x80, 0xFF).map(lambda first: bytes((first,)))
resized = st.sampled_from((b"\x20", b"\x3f\x45", b"\x3f\xe1\x1f", b"\x3f\xff\xff\xff\x0f"))
raw_blocks = st.lists(indexed | indexed | literals() | resized | st.binary(max_size=4), max_size=MAX_FIELDS + 2)


THREE_UPDATES = re.compile(rb"(?:[\x20-\x3e]|\x3f[\x80-\xff]*[\0-\x7f]){3}")
"""hpack takes any number, RFC 7541 section 4.2 two."""


@given(st.lists(st.tuples(raw_blocks.map(b"".join), st.booleans()), max_size=10))
def test_any_block_is_decoded_as_by_hpack(blocks: list[tuple[bytes, bool]]) -> None:
    decoder, plain = Decoder(list, MAX_FIELD_BYTES), hpack.Decoder(MAX_FIELD_BYTES)
    twice = (each for pair in zip(blocks, blocks, strict=True) for each in pair)  # the second may be kept
    for block, are_trailers in twice:
        decode = decoder.fields if are_trailers else decoder.value
        try:
            expected = None if THREE_UPDATES.match(block) else plain.decode(block, raw=True)
        except (hpack.HPACKError, IndexError):
            expected = None
        if expected is None:
            with pytest.raises(Http2Error):
                decode(block)
            return
        assert decode(block) == expected


@pytest.mark.parametrize("update", [b"\x20", b"\x3e", b"\x3f\x45", b"\x3f\xe1\x1f"])
def test_a_block_has_two_updates_of_the_table_size(update: bytes) -> None:
    decoder = Decoder(list, MAX_FIELD_BYTES)
    assert decoder.value(2 * update + b"\x83") == [(b":method", b"POST")]
    with pytest.raises(Http2Error):
        decoder.value(3 * update + b"\x83")


def test_trailers_that_change_the_table_are_no_reason_for_stale_values() -> None:
    decoder = Decoder(list, MAX_FIELD_BYTES)
    decoder.value(b"\x40\x01a\x01b")
    assert decoder.value(b"\xbe") == [(b"a", b"b")]
    decoder.fields(b"\x40\x01c\x01d")
    assert decoder.value(b"\xbe") == [(b"c", b"d")]


def test_a_few_bytes_that_name_many_are_refused() -> None:
    decoder = Decoder(list, MAX_FIELD_BYTES)
    decoder.value(b"\x40\x01a" + bytes(hpack.hpack.encode_integer(4000, 7)) + b"v" * 4000)
    for count in (3, MAX_FIELDS, 10_000):
        block = b"\xbe" * count
        if count == 3:
            assert len(decoder.value(block)) == count
        else:
            with pytest.raises(Http2Error) as caught:
                decoder.value(block)
            assert caught.value.code == ErrorCode.ENHANCE_YOUR_CALM


def test_steps_of_huffman_codes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_blocks, "MAX_HUFFMAN_STEPS", 100)
    encoder = hpack.huffman.HuffmanEncoder(hpack.huffman_constants.REQUEST_CODES, LENGTHS)
    decoder = Decoder(list, MAX_FIELD_BYTES)
    _huffman_steps.clear()
    for first in range(256):
        text = bytes((first, *range(10), first))
        encoded = encoder.encode(text)
        assert decoder.value(b"\x04" + bytes((0x80 | len(encoded),)) + encoded) == [(b":path", text)]
        assert len(_huffman_steps) <= 100


def fields_of(client: hpack.Decoder, block: bytes) -> list[tuple[str, str]]:
    return [(str(name), str(value)) for name, value in client.decode(block)]


def test_equal_fields_are_equal_bytes_on_each_connection() -> None:
    encoders = (Encoder(), Encoder())
    encoded = {encoder.encode(fields) for encoder in encoders for fields in (FIELDS, list(FIELDS), FIELDS)}
    assert len(encoded) == 1
    block = encoded.pop()
    assert fields_of(hpack.Decoder(), block) == list(FIELDS)
    assert len(block) <= 40


@pytest.mark.parametrize(
    ("wanted", "announced"), [((100,), b"\x3f\x45"), ((200, 0, 300), b"\x20"), ((4096,), b""), ((65536,), b"")]
)
def test_a_table_that_shrinks_is_announced_once(wanted: tuple[int, ...], announced: bytes) -> None:
    encoder, client = Encoder(), hpack.Decoder()
    for size in wanted * 100:
        encoder.header_table_size = size
    assert len(encoder.table_size_changes) <= 1
    block, after = encoder.encode(FIELDS), encoder.encode(FIELDS)
    assert (block, after) == (announced + after, Encoder().encode(FIELDS))
    client.max_allowed_table_size = wanted[-1]
    if wanted[-1] < client.header_table_size:
        assert fields_of(client, block) == list(FIELDS)


@pytest.mark.parametrize(
    ("block", "is_kept"),
    [
        (b"\x83\x87", True),
        (b"\x00\x01a\x01b", True),
        (b"\x40\x01a\x01b", False),
        (b"\x83" * MAX_FIELDS, True),
        (b"\x83" * (MAX_FIELDS + 1), False),
        (b"\x00\x01a" + bytes([MAX_BLOCK_BYTES - 4]) + b"v" * (MAX_BLOCK_BYTES - 4), True),
        (b"\x00\x01a" + bytes([MAX_BLOCK_BYTES - 3]) + b"v" * (MAX_BLOCK_BYTES - 3), False),
    ],
)
def test_small_blocks_that_leave_the_table_are_decoded_once(block: bytes, *, is_kept: bool) -> None:
    read: list[Fields] = []

    def noted(fields: Fields) -> Fields:
        read.append(fields)
        return fields

    decoder = Decoder(noted, MAX_FIELD_BYTES)
    first = decoder.value(block)
    assert decoder.value(block) == first
    assert len(read) == (1 if is_kept else 2)
    for number in range(2 * MAX_DECODED):
        decoder.value(b"\x00\x01a\x01" + bytes([number]))
    read.clear()
    decoder.value(block)
    assert read == [first]
