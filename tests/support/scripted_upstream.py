"""Upstreams without sockets: each answers as a script says, and the clock of the setup shows how long it took."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from configured import configured
from dns_chain import FakeWorld

from kdns.answers.answer import compile_answer
from kdns.answers.chain import Request, unhandled
from kdns.answers.response import Response
from kdns.dns.names import labels_of
from kdns.dns.query import MAX_MESSAGE_BYTES, Query, query_for
from kdns.dns.types import type_number
from kdns.dns.zonefile import parse_record
from kdns.plugins.directives import BY_NAME
from kdns.plugins.sources.forward.plugin import Forward
from kdns.upstream.upstream import Transport, Upstream, UpstreamError, UpstreamSpec, UpstreamTimeoutError
from kdns.values import evolve

Says: TypeAlias = Response | bytes | UpstreamError
Script: TypeAlias = Callable[[Query, Transport], Says]


def wire_of(query: Query, response: Response) -> bytes:
    """A message of these records, without an OPT."""
    answer = compile_answer(evolve(query, edns=None), response, MAX_MESSAGE_BYTES, ".")
    return answer.wire(query.packet)


def says(
    *answer: str, authority: Iterable[str] = (), additional: Iterable[str] = (), rcode: int = 0, flags: int = 0
) -> Response:
    """A response of records in zone-file text."""
    first, second, third = (tuple(map(parse_record, lines)) for lines in (answer, authority, additional))
    return Response(rcode, flags, first, second, third)


@dataclass
class ScriptedUpstream:
    """An upstream that does as its script says. A timeout takes the time that it was given, anything else `took_s`."""

    spec: UpstreamSpec
    setup: FakeWorld
    script: Script
    took_s: float = 0.001
    asked: list[tuple[Query, Transport]] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    is_closed: bool = False

    async def exchange(self, query: Query, transport: Transport, timeout_s: float, client: str = "") -> bytes:
        self.clients.append(client)
        self.asked.append((query, transport))
        await asyncio.sleep(0)
        result = self.script(query, transport)
        self.setup.clock_s += timeout_s if isinstance(result, UpstreamTimeoutError) else self.took_s
        if isinstance(result, UpstreamError):
            raise result
        return result if isinstance(result, bytes) else wire_of(query, result)

    def close(self) -> None:
        self.is_closed = True


@dataclass
class ForwardSetup(FakeWorld):
    """Upstreams by address and port, those of `scripts` or else of `script`; coroutines run as tasks."""

    scripts: dict[str, Script] = field(default_factory=dict)
    script: Script = lambda _query, _transport: says()
    scripted: dict[str, ScriptedUpstream] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def upstream(self, spec: UpstreamSpec) -> Upstream:
        name = str(spec.address)
        upstream = self.scripted[name] = ScriptedUpstream(spec, self, self.scripts.get(name, self.script))
        return upstream

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        super().spawn(work)
        try:
            self.tasks.append(asyncio.ensure_future(work()))
        except RuntimeError:  # a chain is built, and nothing runs
            return

    async def pass_time(self, seconds: float, steps: int = 10) -> None:
        """Let time pass, and whoever waits for it go on."""
        for _ in range(steps):
            self.wait(seconds / steps)
            for _ in range(10):
                await asyncio.sleep(0)

    def stop(self) -> None:
        """Cancel what runs."""
        for task in self.tasks:
            task.cancel()


def forward_of(config: str, setup: FakeWorld, zone: str = ".") -> Forward:
    """The plugin of the `forward` stanzas in a block."""
    (block,) = configured(f"{zone} {{\n{config}\n}}\n")
    setup.zones = block.zones
    plugin = Forward(block.configs(BY_NAME["forward"]), setup)
    setup.built = (plugin,)
    return plugin


async def answer(
    plugin: Forward,
    name: str = "example.org.",
    qtype: str = "A",
    *,
    transport: str = "udp",
    client: str = "192.0.2.200",
) -> Response:
    """What the plugin replies; nothing stands behind it."""
    query = query_for(labels_of(name), type_number(qtype))
    reply = plugin.serve(Request(query, (client, 5353), transport=transport), unhandled)
    if not isinstance(reply, Response):
        assert reply is not None
        reply = await reply
    assert reply is not None
    return reply
