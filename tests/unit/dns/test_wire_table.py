"""The answer table: which packets share an answer, what is counted, and that it cannot grow for ever."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kdns.dns import table
from kdns.dns.answer import Answer, ResponseKind
from kdns.dns.message import query
from kdns.dns.response import Reuse, Subject
from kdns.dns.table import AnswerTable, ResponseCounts, key_of
from kdns.plugins.kubernetes.subjects import APEX, NAMESPACES, of_service

A, HTTPS, LOWER_HTTPS = 1, 65, 97
WEB, DB = of_service(("shop", "web")), of_service(("shop", "db"))


def answer(zone: str = ".", bodies: Iterable[bytes] = (b"body",)) -> Answer:
    return Answer(b"HEADHEADHE", 12, list(bodies), ResponseKind(zone, A, 0, False, 30, 40))


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (query("web.shop.", A), query("WEB.Shop.", A), True),
        (query("web.shop.", A, payload_bytes=1232), query("WEB.Shop.", A, payload_bytes=1232), True),
        (query("web.shop.", A), b"\xff\xff" + query("web.shop.", A)[2:], True),
        (query("web.shop.", HTTPS), query("web.shop.", LOWER_HTTPS), False),
        (query("web.shop.", A, payload_bytes=0x4141), query("web.shop.", A, payload_bytes=0x6161), False),
        (query("web.shop.", HTTPS, payload_bytes=1232), query("web.shop.", LOWER_HTTPS, payload_bytes=1232), False),
        (query("web.shop.", A), query("web.shop.", A, payload_bytes=1232), False),
        (query("web.shop.", A), query("web.shop.", A, rd=False), False),
        (query("web.shop.", A), query("web.shop2.", A), False),
        (query("web.shop.", A)[:-1] + b"\x41", query("web.shop.", A)[:-1] + b"\x61", False),
    ],
)
def test_keys(one: bytes, other: bytes, is_same: bool) -> None:
    assert (key_of(one) == key_of(other)) == is_same


def test_an_answer_keeps_the_id_and_takes_its_bodies_in_turn() -> None:
    packet = b"\x12\x34" + b"x" * 30
    made = Answer(b"0123456789", 20, [b"one", b"two", b"three"], answer().kind)
    wires = [made.wire(packet) for _ in range(6)]
    assert {wire[:20] for wire in wires} == {b"\x12\x34" + b"0123456789" + b"x" * 8}
    assert sorted(wire[20:] for wire in wires) == [b"one", b"one", b"three", b"three", b"two", b"two"]
    assert made.hits == 6


@pytest.mark.parametrize(
    ("touched", "left"),
    [
        ([], {b"web", b"db", b"both", b"apex"}),
        ([WEB], {b"db", b"apex"}),
        ([DB], {b"web", b"apex"}),
        ([APEX], {b"web", b"db", b"both"}),
        ([WEB, DB, APEX], set()),
        ([of_service(("shop", "other"))], {b"web", b"db", b"both", b"apex"}),
        ([NAMESPACES], set()),
    ],
)
def test_what_a_change_forgets(touched: list[Subject], left: set[bytes]) -> None:
    answers = AnswerTable()
    lane = answers.lane("udp", 4)
    for key, subjects in ((b"web", [WEB]), (b"db", [DB]), (b"both", [WEB, DB]), (b"apex", [APEX])):
        answers.remember(lane, key, answer(), Reuse(tuple(subjects)))
    answers.forget(touched)
    assert (set(lane.answers), len(answers)) == (left, len(left))


def test_lanes_are_apart_and_are_forgotten_together() -> None:
    answers = AnswerTable()
    udp, tcp = answers.lane("udp", 4), answers.lane("tcp", 6)
    assert answers.lane("udp", 4) is udp
    assert (udp.is_stream, tcp.is_stream) == (False, True)
    answers.remember(udp, b"k", answer(), Reuse((WEB,)))
    assert tcp.answers == {}
    answers.remember(tcp, b"k", answer(), Reuse((WEB,)))
    answers.forget([WEB])
    assert (udp.answers, tcp.answers, len(answers)) == ({}, {}, 0)


def test_counts_outlive_the_answers() -> None:
    answers = AnswerTable()
    lane = answers.lane("udp", 4)
    for zone, times in (("a.", 2), ("a.", 3), ("b.", 1), ("c.", 0)):
        one = answer(zone)
        answers.remember(lane, zone.encode() + bytes((times,)), one, Reuse((WEB,)))
        for _ in range(times):
            one.wire(query("web.", A))
    expected = {"a.": 5, "b.": 1}
    assert {kind.zone: times for kind, times in lane.totals()} == expected
    answers.forget([WEB])
    assert {kind.zone: times for kind, times in lane.totals()} == expected
    answers.clear()
    assert {kind.zone: times for kind, times in lane.totals()} == expected


def test_a_full_table_starts_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    size_bytes = answer().size_bytes + len(b"body") + 2
    monkeypatch.setattr(table, "MAX_TABLE_BYTES", 9 * size_bytes)
    answers = AnswerTable()
    lane = answers.lane("udp", 4)
    sizes = []
    for number in range(35):
        answers.remember(lane, number.to_bytes(2, "big"), answer(), Reuse((WEB,)))
        sizes.append(len(answers))
        assert len(lane.answers) == len(answers)
    assert max(sizes) == 10
    assert (34).to_bytes(2, "big") in lane.answers


def test_padded_packets_make_few_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_KINDS", 10)
    counts = ResponseCounts()
    for number in range(4000):
        counts.add(ResponseKind("dropped", A, 5, False, 17 + number, 17 + number % 250), 1)
    assert sum(counts.by_kind.values()) == 4000
    assert counts.by_kind[ResponseKind("dropped", A, 5, False, 26, 26)] == 1  # the first ones keep their sizes
    assert counts.by_kind[ResponseKind("dropped", A, 5, False, 4096, 256)] > 100
    assert len(counts.by_kind) < 60
