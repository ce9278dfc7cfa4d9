"""The same question is in flight once: which clients wait for whom, and which get a reply of their own."""

import pytest
from cache_world import CLIENTS, World, value
from dns_chain import FakeWorld, plugin_of

from kdns.answers.chain import Reply
from kdns.plugins.changes.cache.flights import MAX_WAITERS
from kdns.plugins.changes.rewrite.plugin import Rewrite


def test_the_same_question_is_asked_once_at_a_time() -> None:
    world = World()
    for _ in range(5):
        assert world.begin() is None
    assert world.begin("b.") is None
    responses = world.end()
    assert sorted(map(str, map(value, responses))) == ["(1, 60)"] * 6
    assert [request.query.name for request in world.upstream.asked] == ["a.", "b."]
    assert world.counts() == {"requests": 6, "misses": 6}


@pytest.mark.parametrize("at_once", [False, True], ids=["one after the other", "at once"])
@pytest.mark.parametrize(
    "rule",
    [
        "edns0 local set 65001 {client_ip}",
        "edns0 local set 65001 {client_port}",
        "edns0 local set 65001 {protocol}",
        "edns0 local set 65001 {server_ip}",
        "edns0 local set 65001 {kubernetes/client-namespace}",
        "edns0 subnet set 32 128",
    ],
)
def test_what_is_asked_for_one_client_is_for_that_client(rule: str, *, at_once: bool) -> None:
    """A query that a directive behind the cache puts a fact about the client into has an answer of its own."""
    world = World(behind=[plugin_of(Rewrite, f"rewrite {rule}", FakeWorld())])
    for client in CLIENTS:
        assert world.begin(client=client) is None, "it is asked for, not kept"
        if not at_once:
            assert len(world.end()) == 1
    if at_once:
        assert len(world.end()) == len(CLIENTS)
    assert [request.client[0] for request in world.upstream.asked] == [*CLIENTS]
    assert not len(world.cache.items.success)


def test_those_who_wait_for_another_client_s_answer_are_then_asked_for_together() -> None:
    world = World(behind=[plugin_of(Rewrite, "rewrite edns0 subnet set 32 128", FakeWorld())])
    for client in CLIENTS:
        world.begin(client=client)
    with pytest.raises(StopIteration):
        world.waiting.pop(0).send(None)
    for waiter in world.waiting:
        waiter.send(None)
    assert len(world.upstream.asked) == len(CLIENTS)
    assert len(world.end()) == len(CLIENTS) - 1


def test_who_asked_first_may_go_away() -> None:
    world = World()
    world.upstream.is_silent = True
    for _ in range(3):
        world.begin()
    world.waiting.pop(0).close()
    world.upstream.is_silent = False
    assert list(map(value, world.end())) == [(1, 60), (1, 60)]
    assert len(world.upstream.asked) == 2


def test_who_waits_may_go_away() -> None:
    world = World()
    world.upstream.is_silent = True
    for _ in range(3):
        world.begin()
    assert world.end() == []
    world.waiting.pop().close()
    world.upstream.is_silent = False
    assert list(map(value, world.end())) == [(1, 60), (1, 60)]


def test_a_defect_concerns_those_who_meet_it() -> None:
    def fail() -> Reply:
        raise ZeroDivisionError

    world = World()
    world.upstream.reply = fail
    world.begin()
    world.begin()
    with pytest.raises(ZeroDivisionError):
        world.end()
    del world.waiting[0]
    world.upstream.reply = None
    assert list(map(value, world.end())) == [(1, 60)]


def test_so_many_may_wait() -> None:
    world = World()
    world.upstream.is_silent = True
    at_once = [world.begin() for _ in range(MAX_WAITERS + 3)]
    assert [response.rcode for response in at_once if response] == ["SERVFAIL"] * 2
    assert not world.end()
    world.upstream.is_silent = False
    assert len(world.end()) == MAX_WAITERS + 1
