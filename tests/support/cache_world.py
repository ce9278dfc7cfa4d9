"""A cache in front of an upstream, with a table, a clock, and no event loop."""

from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from decoded_message import Decoded, decode
from dns_chain import FakeWorld, held, plugin_of, read

from kdns.answers.answer import compile_answer
from kdns.answers.chain import Block, Chain, Plugin, Reply, Request, Sees, Serve, ServeResult
from kdns.answers.response import Message, Response
from kdns.dns.message import query
from kdns.dns.query import AA, AD, RA, RD, Query
from kdns.dns.rrset import RRset, Soa
from kdns.dns.types import NOERROR, NXDOMAIN, SERVFAIL, SOA, A
from kdns.dnsserver.blocks import Server, WireResponse
from kdns.plugins.changes.cache import plugin as cache
from kdns.values import evolve

NO_NAME = Response(NXDOMAIN, RA, (), (RRset(".", SOA, 600, (Soa("m.", "r.", 1, 2, 3, 4, 30),)),))
FAILURE = Response(SERVFAIL)


class Pause:
    """Waits once for whoever drives the coroutine."""

    def __await__(self) -> Generator[None, None, None]:
        yield


@dataclass
class Upstream(Plugin):
    """Answers with the bytes of `value`, or with `reply`; nothing comes while it `is_silent`."""

    sees = Sees.PACKET
    value: int = 1
    ttl_s: int = 60
    is_silent: bool = False
    reply: Callable[[], Reply] | None = None
    asked: list[Request] = field(default_factory=list)

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        del next
        self.asked.append(request)
        return self.later(request.query)

    async def later(self, asked: Query) -> Reply:
        await Pause()
        while self.is_silent:
            await Pause()
        if self.reply:
            return self.reply()
        address = RRset(asked.name, A, self.ttl_s, (bytes((192, 0, 2, self.value)),))
        made = compile_answer(evolve(asked, edns=None), Response(NOERROR, AA | RA | AD, (address,)), 65535, ".")
        return Response(NOERROR, body=Message(made.wire(asked.packet)))


class World:
    """A cache in front of an upstream, with a table, a clock, and no event loop."""

    def __init__(self, stanza: str = "cache", *before: Plugin, behind: Sequence[Plugin] = ()) -> None:
        self.setup = FakeWorld()
        self.upstream = Upstream()
        self.cache = plugin_of(cache.Cache, stanza, self.setup)
        self.server = Server("dns://:53", (Block(".", Chain((*before, self.cache, *behind, self.upstream))),))
        self.setup.servers.append(self.server)
        self.waiting: list[Coroutine[Any, Any, WireResponse]] = []

    def begin(
        self, name: str = "a.", flags: int = RD, transport: str = "udp", qtype: int = A, client: str = "192.0.2.1"
    ) -> Decoded | None:
        """Ask; the response if it is there at once, else the query is put to `waiting`."""
        packet = bytearray(query(name, qtype))
        packet[2:4] = flags.to_bytes(2, "big")
        partition = self.server.table.partition(transport, 4)
        if answer := held(partition, bytes(packet), self.setup.clock_s):
            return decode(answer.wire(bytes(packet)))
        outcome = self.server.respond(bytes(packet), partition, (client, 1), self.setup.clock_s)
        if isinstance(outcome, WireResponse):
            return decode(outcome.wire)
        outcome.send(None)  # as listeners do, at once
        self.waiting.append(outcome)
        return None

    def end(self) -> list[Decoded]:
        """The responses to all waiting queries, in the order in which they come; nobody may wait for ever."""
        responses = []
        for _ in range(20):
            self.setup.advance()
            for one in tuple(self.waiting):
                try:
                    one.send(None)
                except StopIteration as stop:
                    self.waiting.remove(one)
                    responses.append(decode(stop.value.wire))
        return responses

    def ask(self, name: str = "a.", flags: int = RD, transport: str = "udp", qtype: int = A) -> Decoded:
        found = self.begin(name, flags, transport, qtype)
        if found is None:
            (found,) = self.end()
        self.end()
        return found

    def counts(self) -> dict[str, int]:
        """The counters that are not 0, by name and type, as a scrape has them."""
        for partition in self.server.table.partitions.values():
            partition.totals()
        return {
            f"{name.removeprefix('coredns_cache_')}{' ' + sample.labels[1] if len(sample.labels) == 4 else ''}": int(
                sample.value
            )
            for name, family in self.setup.counted.items()
            for sample in family.samples()
            if sample.value
        }


def value(response: Decoded) -> object:
    """The last octet of the first address, and its TTL; the rcode of a response without one."""
    if not response.answer:
        return response.rcode
    (rdata,) = response.answer[0].rdata
    assert isinstance(rdata, bytes)
    return rdata[-1], response.answer[0].ttl


CLIENTS = tuple(f"192.0.2.{number}" for number in range(1, 6))


def asked_for(rrset: RRset) -> Query:
    return read(query(rrset.owner, rrset.rtype))
