"""The answer table: which packets share an answer, what is counted, and that it cannot grow for ever."""

import gc
import sys
from collections.abc import Iterable
from itertools import pairwise

import pytest
from dns_client import with_options

from kdns.answers import table
from kdns.answers.answer import Answer, ResponseKind
from kdns.answers.response import Reuse, Subject
from kdns.answers.table import AnswerTable, Generations, Partition, ResponseCounts, packet_key
from kdns.dns.message import query
from kdns.plugins.sources.kubernetes.subjects import APEX, NAMESPACES, of_service

A, HTTPS, LOWER_HTTPS = 1, 65, 97
WEB, DB = of_service(("shop", "web")), of_service(("shop", "db"))


def answer(zone: str = ".", bodies: Iterable[bytes] = (b"body",)) -> Answer:
    return Answer(b"HEADHEADHE", 12, tuple(bodies), ResponseKind(zone, A, 0, False, 30, 40))


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
    assert (packet_key(one) == packet_key(other)) == is_same


BARE = query("web.shop.", A, payload_bytes=1232)
COOKIE = with_options(BARE, (10, b"12345678"))


@pytest.mark.parametrize(
    ("packet", "same_as"),
    [
        (with_options(BARE, (10, b"AbCdEfGh")), COOKIE),
        (with_options(BARE, (12, bytes(7) + b"1")), COOKIE),
        (with_options(BARE, (12, b""), (11, b"1234")), COOKIE),
        (with_options(query("WEB.shop.", A, payload_bytes=1232), (10, b"abcdefgh")), COOKIE),
        (with_options(BARE, (10, b"123456789")), None),
        (with_options(query("web.shop.", A, payload_bytes=4096), (10, b"12345678")), None),
        (with_options(BARE, (8, b"12345678")), b""),
        (with_options(BARE, (10, b"1234"), (3, b"")) + b"1", b""),
        (COOKIE[:-1], b""),
        (COOKIE + b"1", b""),
        (COOKIE[:-12], b""),
        (BARE[:11] + b"\2" + BARE[12:] + b"\0\0\x29\4\xd0\0\0\0\0\0\1\1", b""),
    ],
)
def test_options_that_change_no_answer_are_no_part_of_a_key(packet: bytes, same_as: bytes | None) -> None:
    if same_as is None:
        assert packet_key(packet) not in {b"", packet_key(COOKIE), packet_key(BARE)}
    else:
        assert packet_key(packet) == (same_as and packet_key(same_as))


def test_no_packet_has_the_key_of_another_with_options() -> None:
    """The key of the packet that is cut behind the length of its options would be the same."""
    assert packet_key(COOKIE[:-12]) == b""
    assert packet_key(COOKIE) == COOKIE[2:-12]


def test_a_packet_that_is_too_short_has_not_the_key_of_a_query() -> None:
    """The query is for the root, of a type above 255 and of class 0."""
    root = b"\x12\x34" + b"\1\0\0\1\0\0\0\0\0\0" + b"\0" + b"\1\1" + b"\0\0"
    assert packet_key(root) == root[2:]
    assert packet_key(root[2:]) == b""


def test_an_answer_keeps_the_id_and_takes_its_bodies_in_turn() -> None:
    packet = b"\x12\x34" + b"x" * 30
    entry = Answer(b"0123456789", 20, (b"one", b"two", b"three"), answer().kind)
    wires = [entry.wire(packet) for _ in range(6)]
    assert {wire[:20] for wire in wires} == {b"\x12\x34" + b"0123456789" + b"x" * 8}
    assert sorted(wire[20:] for wire in wires) == [b"one", b"one", b"three", b"three", b"two", b"two"]
    assert entry.hits == 6


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
    partition = answers.partition("udp", 4)
    for key, subjects in ((b"web", [WEB]), (b"db", [DB]), (b"both", [WEB, DB]), (b"apex", [APEX])):
        answers.remember(partition, key, answer(), Reuse(tuple(subjects)))
    answers.forget(touched)
    assert (set(partition.answers), len(answers)) == (left, len(left))


def test_lanes_are_apart_and_are_forgotten_together() -> None:
    answers = AnswerTable()
    udp, tcp = answers.partition("udp", 4), answers.partition("tcp", 6)
    assert answers.partition("udp", 4) is udp
    assert (udp.is_stream, tcp.is_stream) == (False, True)
    answers.remember(udp, b"k", answer(), Reuse((WEB,)))
    assert tcp.answers == {}
    answers.remember(tcp, b"k", answer(), Reuse((WEB,)))
    answers.forget([WEB])
    assert (udp.answers, tcp.answers, len(answers)) == ({}, {}, 0)


def test_counts_outlive_the_answers() -> None:
    answers = AnswerTable()
    partition = answers.partition("udp", 4)
    for zone, times in (("a.", 2), ("a.", 3), ("b.", 1), ("c.", 0)):
        one = answer(zone)
        answers.remember(partition, zone.encode() + bytes((times,)), one, Reuse((WEB,)))
        for _ in range(times):
            one.wire(query("web.", A))
    expected = {"a.": 5, "b.": 1}
    assert {kind.zone: times for kind, times in partition.totals()} == expected
    answers.forget([WEB])
    assert {kind.zone: times for kind, times in partition.totals()} == expected
    answers.clear()
    assert {kind.zone: times for kind, times in partition.totals()} == expected


def numbered(number: int) -> bytes:
    return number.to_bytes(2, "big")


def filled(generations: Generations, count: int, subjects: tuple[Subject, ...] = ()) -> tuple[AnswerTable, Partition]:
    """A table of so many answers, none of them used."""
    answers = AnswerTable(generations)
    partition = answers.partition("udp", 4)
    for number in range(count):
        answers.remember(partition, numbered(number), answer(), Reuse(subjects))
    return answers, partition


def uses(partition: Partition) -> int:
    return sum(times for _, times in partition.totals())


def test_what_is_used_survives_a_flood() -> None:
    generations = Generations(100_000)
    answers, partition = filled(generations, 10)
    sizes = []
    for number in range(10, 5000):
        for hot in range(10):
            if number % 20 == 0:
                partition.answers[numbered(hot)].wire(bytes(20))
        answers.remember(partition, numbered(number), answer(), Reuse((WEB,)))
        sizes.append(len(answers))
        assert generations.size_bytes <= generations.max_bytes
    assert set(map(numbered, (*range(10), 4999))) <= partition.answers.keys()
    assert 100 < sizes[-1] < 1000
    assert max(before - after for before, after in pairwise(sizes)) <= 1, "room is made little by little"
    assert uses(partition) == 10 * len(range(20, 5000, 20))


def test_the_tables_of_a_process_have_one_budget() -> None:
    generations = Generations(100_000)
    first, _ = filled(generations, 1000)
    alone = len(first)
    second, _ = filled(generations, alone // 2)
    assert abs(len(first) + len(second) - alone) <= 1
    assert second.generations is first.generations


def test_a_table_of_hot_answers_goes_on() -> None:
    """Where each answer was used, the oldest one goes all the same: no new one looks at all of them."""
    generations = Generations(100_000)
    answers, partition = filled(generations, 200)
    for number in range(200, 2000):
        for each in partition.answers.values():
            each.wire(bytes(20))
        answers.remember(partition, numbered(number), answer(), Reuse())
        assert generations.size_bytes <= generations.max_bytes


def test_a_cleared_table_gives_no_answer_and_frees_its_memory_slowly() -> None:
    generations = Generations(100_000)
    answers, partition = filled(generations, 150, (WEB,))
    for each in partition.answers.values():
        each.wire(bytes(20))
    used_bytes = generations.size_bytes
    answers.clear()
    assert (len(answers), partition.answers, uses(partition), generations.size_bytes) == (0, {}, 150, used_bytes)
    sizes = []
    for number in range(1000):
        answers.remember(partition, numbered(number), answer(), Reuse((DB,)))
        sizes.append(len(answers))
    assert sorted(sizes) == sizes, "what was cleared goes before what came later"
    assert (uses(partition), len(partition.indexes)) == (150, 1)


def test_what_many_answers_depend_on_is_forgotten_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_DEPENDENTS", 10)
    generations = Generations()
    answers, partition = filled(generations, 10, (WEB,))
    answers.remember(partition, b"db", answer(), Reuse((DB,)))
    answers.forget((WEB,))
    assert partition.answers.keys() == {b"db"}
    for number in range(11):
        answers.remember(partition, numbered(number), answer(), Reuse((WEB, DB)))
    answers.forget((WEB,))
    assert partition.answers == {}
    answers.remember(partition, b"web", answer(), Reuse((WEB,)))
    answers.forget((WEB,))
    assert partition.answers == {}
    answers.forget((DB,))
    for number in range(10):  # what is left of them takes no room for ever
        generations.max_bytes = 0
        answers.remember(partition, numbered(number), answer(), Reuse())
    assert (generations.size_bytes, partition.answers) == (0, {})


def test_an_answer_that_is_dropped_early_leaves_nothing() -> None:
    generations = Generations()
    answers = AnswerTable(generations)
    partition = answers.partition("udp", 4)
    for number in range(1000):
        answers.remember(partition, b"web", answer(), Reuse((WEB,), 1000.0 + number))
        answers.forget((WEB,))
    assert generations.size_bytes == 0
    answers.remember(partition, b"web", answer(), Reuse((WEB,), 1000.7))
    cached = partition.answers[b"web"]
    assert (cached.until_s, cached.renew(1000.6), cached.renew(1000.7)) == (1000.7, True, False)


def test_an_answer_whose_ttls_count_down_expires_within_a_second() -> None:
    answers = AnswerTable()
    partition = answers.partition("udp", 4)
    one = answer(bodies=(b"\x00\x00\x00\x3c",))
    one.aged_from_s, one.ttls = 0.0, (b"\x00\x00\x00\x00\x00\x3c",)
    answers.remember(partition, b"key", one, Reuse(expires_s=7.5))
    assert [(one.renew(now_s), one.until_s, one.bodies) for now_s in (3.2, 7.1)] == [
        (True, 4.0, (b"\x00\x00\x00\x39",)),
        (True, 7.5, (b"\x00\x00\x00\x35",)),
    ]
    assert not one.renew(7.5)


def test_the_garbage_collector_does_not_look_at_answers() -> None:
    _, partition = filled(Generations(), 100, (WEB,))
    assert not any(map(gc.is_tracked, partition.answers.values()))
    # CPython 3.14 tracks every dict.
    assert gc.is_tracked(partition.answers) == (sys.version_info >= (3, 14))


def test_padded_packets_make_few_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_KINDS", 10)
    counts = ResponseCounts()
    for number in range(4000):
        counts.add(ResponseKind("dropped", A, 5, False, 17 + number, 17 + number % 250), 1)
    assert sum(counts.by_kind.values()) == 4000
    assert counts.by_kind[ResponseKind("dropped", A, 5, False, 26, 26)] == 1  # the first ones keep their sizes
    assert counts.by_kind[ResponseKind("dropped", A, 5, False, 4096, 256)] > 100
    assert len(counts.by_kind) < 60
