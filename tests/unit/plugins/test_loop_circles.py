"""Upstreams that send questions back are asked no more, as long as they do; names of others go on."""

from collections.abc import AsyncIterator

import pytest
from dns_chain import read
from scripted_upstream import ForwardSetup, answer, forward_of, says

from kdns.answers.chain import Reply, Request
from kdns.answers.response import Response
from kdns.dns.names import labels_of
from kdns.dns.query import Query
from kdns.dns.types import HINFO
from kdns.plugins.guards.loop import Loop
from kdns.plugins.sources.forward.plugin import Forward
from kdns.serverblocks.directive import NoConfig
from kdns.upstream.upstream import Transport, UpstreamError, UpstreamTimeoutError

CIRCLE, GOOD = "192.0.2.1:53", "192.0.2.2:53"


class Block:
    """`loop` and `forward`; what is sent to 192.0.2.1 comes back while `is_circle`."""

    def __init__(self, stanza: str, zone: str = ".") -> None:
        self.setup = ForwardSetup()
        self.setup.scripts = {CIRCLE: self.back, GOOD: lambda _query, _transport: says(rcode=3)}
        self.is_circle = True
        self.forward: Forward = forward_of(stanza, self.setup, zone)
        self.loop: Loop = Loop(NoConfig(), self.setup)
        self.setup.built = (self.loop, self.forward)

    def back(self, query: Query, _transport: Transport) -> Response | UpstreamError:
        if not self.is_circle:
            return says(rcode=3)
        self.loop.serve(Request(read(query.packet)), self.next)
        return UpstreamTimeoutError("no response")

    def next(self, request: Request) -> Reply:
        del request
        return says(rcode=2)

    def usable(self) -> list[str]:
        return [member.name for member in self.forward.forwarders[0].group.usable]

    def looping(self) -> list[str]:
        return [labels[0] for labels, value in self.setup.exposed["kdns_loop_upstreams"]() if value]

    def questions(self, upstream: str) -> list[str]:
        return [query.name for query, _ in self.setup.scripted[upstream].asked if query.qtype == HINFO]


@pytest.fixture
async def block() -> AsyncIterator[Block]:
    made = Block("forward . 192.0.2.1 192.0.2.2")
    yield made
    made.setup.stop()


async def test_an_upstream_in_a_circle_is_asked_no_more_until_the_circle_is_gone(block: Block) -> None:
    await block.setup.pass_time(1.0)
    assert (block.usable(), block.looping()) == ([GOOD], [CIRCLE])
    (line,) = block.setup.lines
    assert (line["log_level"], line["event"], line["upstream"]) == ("error", "forwarding loop detected", CIRCLE)
    assert [(await answer(block.forward)).rcode for _ in range(5)] == [3] * 5
    await block.setup.pass_time(60.0, 60)
    assert block.usable() == [GOOD]
    assert len(block.setup.lines) == 1
    block.is_circle = False
    await block.setup.pass_time(60.0, 60)
    assert (block.usable(), block.looping()) == ([CIRCLE, GOOD], [])
    assert block.setup.lines[-1]["event"] == "forwarding loop resolved"
    assert len(block.questions(GOOD)) == 1
    names = {*block.questions(CIRCLE), *block.questions(GOOD)}
    assert len(names) == len(block.questions(CIRCLE)) + 1, "each question has a name of its own"


async def test_without_another_upstream_the_answer_is_servfail() -> None:
    alone = Block("forward . 192.0.2.1")
    await alone.setup.pass_time(1.0)
    assert (await answer(alone.forward)).rcode == 2
    assert not [name for name in alone.questions(CIRCLE) if name == "example.org."]
    alone.setup.stop()


@pytest.mark.parametrize(
    ("stanza", "zone", "suffix"),
    [
        ("forward . 192.0.2.2", "example.org", "example.org."),
        ("forward corp.example.org 192.0.2.2", "example.org", "corp.example.org."),
        ("forward example.net 192.0.2.2", "example.org", None),
    ],
)
async def test_the_name_is_one_that_would_come_back_here(stanza: str, zone: str, suffix: str | None) -> None:
    block = Block(stanza, zone)
    await block.setup.pass_time(1.0)
    found = [labels_of(name)[2:] for name in block.questions(GOOD)]
    assert found == ([labels_of(suffix)] if suffix else [])
    block.setup.stop()


async def test_upstreams_that_a_file_brings_are_asked_too() -> None:
    block = Block("forward . 192.0.2.2")
    block.setup.stop()
    block.setup.files = {"/resolv.conf": "nameserver 192.0.2.2"}
    block.forward = forward_of("forward . /resolv.conf", block.setup)
    block.loop = Loop(NoConfig(), block.setup)
    block.setup.built = (block.loop, block.forward)
    await block.setup.pass_time(2.0)
    assert block.usable() == [GOOD]
    block.setup.readers["/resolv.conf"]("nameserver 192.0.2.2\nnameserver 192.0.2.1")
    await block.setup.pass_time(2.0)
    assert (block.usable(), block.looping()) == ([GOOD], [CIRCLE])
    block.setup.readers["/resolv.conf"]("nameserver 192.0.2.2")
    await block.setup.pass_time(2.0)
    assert block.looping() == []
    block.setup.stop()
