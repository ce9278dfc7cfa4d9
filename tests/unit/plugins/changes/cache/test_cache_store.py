"""The bounds of the store, and the memory of items and of the answers made of them."""

import gc
import tracemalloc

import pytest
from cache_world import World
from dns_chain import read

from kdns.answers.answer import compile_answer
from kdns.answers.chain import Request
from kdns.answers.response import Message, Response
from kdns.dns.message import query
from kdns.dns.query import RA
from kdns.dns.rrset import RRset
from kdns.dns.types import NOERROR, TXT, A
from kdns.dnsserver.blocks import WireResponse
from kdns.plugins.changes.cache import store
from kdns.plugins.changes.cache.kinds import AnswerKind
from kdns.values import evolve


def test_capacity_evicts_the_oldest_that_was_not_used() -> None:
    world = World("cache {\nsuccess 3\n}")
    for name in ("a.", "b.", "c.", "a.", "d."):
        world.ask(name)
    assert len(world.cache.items.success) == 3
    assert world.counts()["evictions success"] == 1
    world.server.table.clear()
    for name in ("a.", "c.", "d."):
        world.ask(name)
    assert [request.query.name for request in world.upstream.asked] == ["a.", "b.", "c.", "d."]


def test_bytes_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_BYTES", 4000)
    world = World()
    for number in range(50):
        world.ask(f"n{number}.")
    assert 0 < world.cache.items.success.size_bytes <= 4000
    assert world.counts()["evictions success"] == 50 - len(world.cache.items.success)


def test_records_that_a_message_was_taken_apart_to_weigh_what_they_hold() -> None:
    """9984 texts of 60 KB would take 600 MB."""
    text, options = RRset("a.", TXT, 60, (b"x" * 60000,)), ((15, b"x" * 5000),)
    item = store.Item.of(b"a", AnswerKind.SUCCESS, Response(NOERROR, 0, (text,), options=options), 0.0, 60.0)
    assert 65000 < item.size_bytes < 67000


@pytest.mark.parametrize("count", [1, 20])
def test_what_the_table_keeps_of_it_weighs_what_it_says(count: int) -> None:
    addresses = tuple(bytes((10, 0, 0, number)) for number in range(count))
    world = World("cache {\nsuccess 1000\n}")
    partition = world.server.table.partition("udp", 4)
    packets = [query(f"{number:016x}.example.org.", A, payload_bytes=1232) for number in range(1000)]
    for packet in packets:
        question = read(packet)
        response = Response(NOERROR, RA, (RRset(question.name, A, 6000, addresses),))
        wire = compile_answer(evolve(question, edns=None), response, 65535, ".", once=True).wire(packet)
        item = store.Item.of(
            store.question_key(Request(question)),
            AnswerKind.SUCCESS,
            Response(body=Message(wire), aged_from_s=0.0),
            0.0,
            6000,
        )
        world.cache.items.success.put(item, lambda _: False)
    gc.collect()
    tracemalloc.start()
    try:
        before_bytes = tracemalloc.get_traced_memory()[0]
        for packet in packets:
            assert isinstance(world.server.respond(packet, partition), WireResponse)
        taken_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
    finally:
        tracemalloc.stop()
    assert len(world.server.table) == len(packets)
    assert world.server.table.generations.size_bytes == pytest.approx(taken_bytes, rel=0.25)
