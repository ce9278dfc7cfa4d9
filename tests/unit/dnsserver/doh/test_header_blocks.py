"""Header blocks of HTTP/2: those that are kept are those that would be made."""

from __future__ import annotations

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdns.dnsserver.doh.header_blocks import MAX_BLOCK_BYTES, MAX_DECODED, MAX_FIELDS, Decoder, Encoder

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
    client, decoder, plain = hpack.Encoder(), Decoder(), hpack.Decoder()
    for fields, table_size in steps:
        if table_size is not None:
            client.header_table_size = table_size
        for _ in range(3):  # the first adds to the table, the second is kept, the third is found
            block = client.encode(fields)
            assert decoder.decode(block, raw=True) == plain.decode(block, raw=True)


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
def test_small_blocks_that_leave_the_table_are_decoded_once(
    monkeypatch: pytest.MonkeyPatch, block: bytes, *, is_kept: bool
) -> None:
    decoder = Decoder()
    first = decoder.decode(block, raw=True)
    plain, decoded = hpack.Decoder.decode, []

    def counted(self: hpack.Decoder, data: bytes, raw: bool = False) -> object:
        decoded.append(data)
        return plain(self, data, raw)

    monkeypatch.setattr(hpack.Decoder, "decode", counted)
    assert decoder.decode(block, raw=True) == first
    assert decoded == ([] if is_kept else [block])
    for number in range(2 * MAX_DECODED):
        decoder.decode(b"\x00\x01a\x01" + bytes([number]))
    decoded.clear()
    decoder.decode(block, raw=True)
    assert decoded == [block]
