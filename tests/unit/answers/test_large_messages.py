"""Messages of others that are large or odd: what a client gets of them, and how much work they make."""

from collections.abc import Callable
from struct import pack

import pytest
from decoded_message import decode
from dns_chain import read

from kdns.answers import answer
from kdns.answers.answer import compile_answer, limit_of, with_room
from kdns.answers.response import Message, Response
from kdns.dns.message import query
from kdns.dns.names import Labels, encode_name, labels_of
from kdns.dns.query import HEADER_BYTES, Query
from kdns.dns.rdata import NamesAt, name_at
from kdns.dns.types import A
from kdns.plugins.sources.forward.bailiwick import checked
from kdns.values import evolve

NAME = "Big.example.org."
POINTER = b"\xc0\x0c"


def asked(payload_bytes: int = 0) -> Query:
    return read(query(NAME, A, payload_bytes=payload_bytes))


def record(owner: bytes, rtype: int = A, rdata: bytes = b"\x0a\x00\x00\x01") -> bytes:
    return owner + pack("!HHIH", rtype, 1, 60, len(rdata)) + rdata


def message(*sections: list[bytes]) -> bytes:
    one = asked()
    counts = [*map(len, sections), 0, 0, 0][:3]
    head = one.packet[:2] + pack("!HHHHH", 0x8180, 1, *counts) + one.packet[HEADER_BYTES : one.question_end]
    return head + b"".join(part for section in sections for part in section)


def sent(query: Query, response: Response, *, is_stream: bool = False) -> bytes:
    limit_bytes = limit_of(query.edns, 1232, is_stream=is_stream)
    found = with_room(query, response, limit_bytes)
    wire = compile_answer(query, found, limit_bytes, ".").wire(query.packet)
    assert len(wire) <= limit_bytes
    return wire


@pytest.mark.parametrize(("payload_bytes", "answers"), [(0, 29), (600, 34), (1232, 74), (65535, 74)])
def test_what_does_not_fit_is_cut_without_a_look_at_the_rest(
    payload_bytes: int, answers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that asks for 4,000 addresses over UDP again and again is answered from the bytes of the first ones."""
    monkeypatch.setattr(answer, "from_wire", None)
    monkeypatch.setattr(answer, "records", None)
    response = decode(sent(asked(payload_bytes), Response(body=Message(message([record(POINTER)] * 4000)))))
    assert ("tc" in response.flags, len(response.answer)) == (True, answers)


def test_sections_behind_the_answer_are_left_out_silently() -> None:
    wire = message([record(POINTER)] * 5, [record(POINTER, 2, POINTER)] * 5, [record(b"\0")] * 100)
    response = decode(sent(asked(), Response(body=Message(wire))))
    assert ("tc" in response.flags, len(response.answer), len(response.authority)) == (False, 5, 5)
    assert 0 < len(response.additional) < 100
    assert sent(asked(), Response(body=Message(wire)), is_stream=True)[2:] == wire[2:]


def test_options_that_leave_no_room_are_left_out() -> None:
    """An upstream's error with 60 KB of text is no answer over UDP."""
    long, short = (15, b"\0\3" + b"x" * 60000), (15, b"\0\3")
    response = Response(body=Message(message([record(POINTER)])))
    whole = sent(asked(1232), response)
    assert sent(asked(1232), evolve(response, options=(long,))) == whole
    assert len(sent(asked(1232), evolve(response, options=(short,)))) == len(whole) + 6


def test_what_stands_behind_the_last_record_is_left_out() -> None:
    wire = message([record(POINTER)])
    assert checked(wire + b"junk", asked(), "forward").wire == wire
    assert checked(message() + b"junk", asked(), "forward").wire == message()


def chained(pointers: int) -> tuple[bytes, int]:
    """A name behind so many pointers, each of which points at the one before, and where the last one is."""
    positions = [0, *range(3, 3 + 2 * pointers, 2)]
    return b"\1A\0" + b"".join(pack("!H", 0xC000 | at) for at in positions[:-1]), positions[-1]


READERS: dict[str, Callable[[bytes, int], Labels]] = {
    "one": lambda wire, at: name_at(wire, at)[0],
    "many": lambda wire, at: NamesAt(wire).at(at),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_pointers_to_pointers_end(read: Callable[[bytes, int], Labels]) -> None:
    assert [label.lower() for label in read(*chained(100))] == [b"a"]
    with pytest.raises(ValueError, match="pointer"):
        read(*chained(8000))
    with pytest.raises(ValueError, match="forward"):
        read(b"\xc0\x00", 0)


def test_a_message_of_pointers_to_pointers_is_refused() -> None:
    """Each of 2,900 owners would be read over 7,900 pointers, which took 5 s."""
    start = len(message()) + HEADER_BYTES
    pointers = b"".join(pack("!H", 0xC000 | at) for at in (12, *range(start, start + 2 * 7899, 2)))
    wire = message([record(POINTER, 16, pointers), *[record(pointers[-2:])] * 2900])
    with pytest.raises(ValueError, match="pointers"):
        checked(wire, asked(), "forward")


def test_labels_that_many_names_end_in_are_read_once() -> None:
    long = encode_name((b"A",) * 126)
    wire = long + b"".join(b"\1B" + pack("!H", 0xC000 | 2) for _ in range(4000))
    names = NamesAt(wire)
    found = [names.at(len(long) + 4 * number) for number in range(4000)]
    assert {*found} == {(b"b", *(b"a",) * 125)}
    assert found[0][1] is found[-1][1]
    with pytest.raises(ValueError, match="long"):
        NamesAt(b"\x3f" + b"x" * 63 + long).at(0)


def test_a_message_of_many_records_is_not_taken_apart() -> None:
    others = [record(encode_name(labels_of("other.example.")))]
    assert not checked(message([record(POINTER)] * 200 + others), asked(), "forward").wire
    with pytest.raises(ValueError, match="256 records"):
        checked(message([record(POINTER)] * 300 + others), asked(), "forward")
