"""Copies follow the table: what is forgotten, what shares a tail, what is counted, and what is too much."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from dns_chain import server_of
from worker_copies import NUMBER, CopiedServer

from kdns.dns.message import query
from kdns.dns.query import AA
from kdns.dns.rrset import RRset, Soa
from kdns.dns.types import NXDOMAIN, TXT, A
from kdns.dnsserver.answers.response import EVERYTHING, NEVER, Response, Reuse, ZoneSoa
from kdns.dnsserver.chain import Plugin, Reply, Request, Sees, Serve
from kdns.dnsserver.io.workers.messages import Clear, Forget, Keep, Tail, messages
from kdns.tally import Tally

ZONE = "example.org."


def soa_of(serial: int) -> RRset:
    return RRset(ZONE, 6, 5, (Soa("ns.example.org.", "admin.example.org.", serial, 7200, 1800, 86400, 5),))


class Numbered(Plugin):
    """Answers with an address that says how many answers it has made; `none` does not exist, `once` is not kept."""

    sees = Sees.PACKET

    def __init__(self) -> None:
        self.made = 0
        self.soa = ZoneSoa(soa_of(1))
        self.tally = Tally()
        self.meanwhile: Callable[[str], None] = lambda _: None

    def serve(self, request: Request, next: Serve) -> Reply:  # noqa: A002 - as in Plugin
        del next
        self.made += 1
        name = request.query.name
        self.meanwhile(name)
        reuse = NEVER if name.startswith("once") else Reuse((name,), 2.0 if name.startswith("short") else None)
        if name.startswith("none"):
            return Response(NXDOMAIN, AA, soa=self.soa, reuse=reuse, plugin="test", zone=ZONE, tallies=(self.tally,))
        if name.startswith("long"):
            texts = tuple(bytes((255,)) + bytes(255) for _ in range(4))
            return Response(0, AA, (RRset(name, TXT, 5, texts),), reuse=reuse, plugin="test")
        address = RRset(name, A, 5, (bytes((192, 0, 2, self.made)),))
        aged_from_s = 0.0 if name.startswith("aged") else None
        return Response(0, AA, (address,), reuse=reuse, plugin="test", tallies=(self.tally,), aged_from_s=aged_from_s)


@pytest.fixture
def plugin() -> Numbered:
    return Numbered()


@pytest.fixture
def worker(plugin: Numbered) -> CopiedServer:
    return CopiedServer(server_of(plugin))


def packet(name: str, number: int = 1) -> bytes:
    return number.to_bytes(2, "big") + query(f"{name}.{ZONE}", A)[2:]


def waiting(worker: CopiedServer) -> Iterator[str]:
    """The names of the messages that are not delivered yet."""
    for message in messages(memoryview(b"".join(worker.link.frames))):
        yield type(message).__name__


def test_a_copy_answers_until_its_subject_is_forgotten(worker: CopiedServer, plugin: Numbered) -> None:
    first = worker.respond(packet("web"))
    assert worker.respond(packet("web", 2)) == b"\0\2" + first[2:]
    assert (plugin.made, worker.hits) == (1, 1)
    worker.server.table.forget(("other.example.org.",))
    worker.respond(packet("web"))
    assert plugin.made == 1
    worker.server.table.forget((f"web.{ZONE}",))
    assert worker.respond(packet("web")) != first
    assert plugin.made == 2


@pytest.mark.parametrize("drop", ["everything", "swap"])
def test_everything_is_forgotten_at_once(worker: CopiedServer, plugin: Numbered, drop: str) -> None:
    for name in ("web", "none", "mail"):
        worker.respond(packet(name))
    if drop == "swap":
        worker.server.swap(worker.server.blocks)
    else:
        worker.server.table.forget((EVERYTHING,))
    for name in ("web", "none", "mail"):
        worker.respond(packet(name))
    assert (plugin.made, worker.hits) == (6, 0)


def test_an_answer_that_was_begun_before_its_subject_was_forgotten_has_no_copy(
    worker: CopiedServer, plugin: Numbered
) -> None:
    plugin.meanwhile = lambda name: worker.server.table.forget((name,))
    worker.respond(packet("web"))
    worker.respond(packet("web"))
    assert (plugin.made, worker.hits) == (2, 0)
    assert "Keep" not in waiting(worker)


def test_answers_for_one_query_have_no_copy(worker: CopiedServer, plugin: Numbered) -> None:
    worker.respond(packet("once"))
    worker.respond(packet("once"))
    assert (plugin.made, list(waiting(worker))) == (2, [])


def test_a_new_serial_is_in_the_copies_without_new_answers(worker: CopiedServer, plugin: Numbered) -> None:
    before = [worker.respond(packet(name)) for name in ("none1", "none2")]
    plugin.soa.renew(soa_of(2))
    worker.server.table.forget(())
    after = [worker.respond(packet(name)) for name in ("none1", "none2")]
    assert (plugin.made, worker.hits) == (2, 2)
    for old, new in zip(before, after, strict=True):
        assert new != old
        assert new.replace((2).to_bytes(4, "big"), (1).to_bytes(4, "big"), 1) == old


def test_copies_expire_and_count_their_ttls_down(worker: CopiedServer, plugin: Numbered) -> None:
    first = worker.respond(packet("short"), 1.0)
    assert worker.respond(packet("short"), 1.9) == first
    assert worker.respond(packet("short"), 2.1) != first
    assert plugin.made == 2
    aged = [worker.respond(packet("aged"), now_s) for now_s in (0.5, 0.6, 3.2)]
    assert [wire[-10:-6] for wire in aged] == [(ttl).to_bytes(4, "big") for ttl in (5, 5, 2)]
    assert plugin.made == 3


def test_uses_are_counted_once_with_those_of_dropped_copies(worker: CopiedServer, plugin: Numbered) -> None:
    for name in ("web", "web", "web", "none", "none"):
        worker.respond(packet(name))
    assert sum(worker.sent().values()) == 5
    assert plugin.tally.count == 5
    worker.respond(packet("web"))
    worker.server.table.forget((f"web.{ZONE}", f"none.{ZONE}"))
    worker.respond(packet("web"))
    assert sum(worker.sent().values()) == 2 + 2  # the server's own two, and those since the last report
    assert plugin.tally.count == 7
    dropped = [report.dropped for report in worker.reports()]
    assert not any(dropped)
    worker.server.table.forget((f"web.{ZONE}",))
    worker.reports()
    worker.reports()
    assert not worker.feed._tallies  # noqa: SLF001 - nothing is left of dropped copies


def test_a_full_queue_drops_all_copies_instead_of_single_ones(worker: CopiedServer, plugin: Numbered) -> None:
    for name in ("web", "mail"):
        worker.respond(packet(name))
    worker.link.deliver()
    worker.link.is_full = True
    for number in range(1000):
        worker.server.table.forget((f"web.{ZONE}", number))
    partition = worker.server.table.partition("udp", 4)
    worker.feed.keep(NUMBER, 4, next(iter(partition.answers.values())))
    assert list(waiting(worker)) == ["Clear"]
    worker.link.is_full = False
    worker.respond(packet("mail"))
    assert worker.hits == 0
    worker.respond(packet("mail"))
    assert worker.hits == 0  # copies are sent again when the queue is empty
    worker.feed.drained()
    worker.respond(packet("mail"))
    worker.respond(packet("mail"))
    assert (plugin.made, worker.hits) == (2, 1)


def test_answers_that_are_too_long_for_a_message_have_no_copy(worker: CopiedServer) -> None:
    worker.respond(packet("web"))
    (answer,) = worker.server.table.partition("udp", 4).answers.values()
    worker.link.deliver()
    answer.bodies = (bytes(70_000),)
    worker.feed.keep(NUMBER, 4, answer)
    assert list(waiting(worker)) == []


def test_many_subjects_take_several_messages(worker: CopiedServer) -> None:
    worker.server.table.forget(range(1000))
    found = list(messages(memoryview(b"".join(worker.link.frames))))
    assert [hash(number) for message in found for number in message.subjects] == list(range(1000))
    assert {type(message) for message in found} == {Forget}
    assert len(found) > 1
    assert not isinstance(found[0], Clear | Keep | Tail)
