"""forward FROM TO… { … }: forwards queries to other servers, and passes on their answers unchanged.

Of several stanzas of a block the first whose FROM has the name answers; `next` and `next_on_nodata` lead to the one
after it.
Differs: truncated UDP answers are always retried over TCP; CoreDNS does so with prefer_udp only.
Differs: `next` has an effect only if a later stanza has the name; CoreDNS answers SERVFAIL if the next stanza is for
other names.
Differs: zone transfers are refused; CoreDNS forwards them and returns the first message only.
Differs: records out of bailiwick are removed, see kdns.plugins.sources.forward.bailiwick.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator
from itertools import chain
from typing import Final

from kdns.answers.chain import (
    Forwarded,
    ForwardObserver,
    Plugin,
    Reply,
    Request,
    Sees,
    Serve,
    ServeResult,
    WouldAskError,
)
from kdns.answers.response import NO_METADATA, Response
from kdns.dns.names import Labels, ZoneSet, labels_of
from kdns.dns.query import extended_error
from kdns.dns.types import NETWORK_ERROR, NOERROR, REFUSED, SERVFAIL, TRANSFERS
from kdns.fair_queue import FairShares
from kdns.plugins.observers.metadata import Facts
from kdns.plugins.sources.forward.bailiwick import checked
from kdns.plugins.sources.forward.config import OPTIONS, USAGE, ForwardConfig, parse
from kdns.plugins.sources.forward.group import Group, Member, Members, order
from kdns.serverblocks.directive import Directive, Repeat, World
from kdns.upstream.message import response_to
from kdns.upstream.upstream import Transport, UpstreamError, UpstreamTimeoutError
from kdns.values import evolve

NAME: Final = "forward"
TIMEOUT_S: Final = 5.0
"""The timeout of a query with all attempts, as in CoreDNS."""
MAX_ATTEMPTS: Final = 100
"""The most attempts of one query if max_connect_attempts sets no limit."""

FAILED: Final = Response(SERVFAIL, plugin=NAME, options=(extended_error(NETWORK_ERROR),), error="no healthy proxies")

_TC: Final = 0x02


class Forward(Plugin):
    """All stanzas of a server block. Answers are not reusable, but `cache` stores them."""

    sees = Sees.PACKET
    plugin = NAME

    def __init__(self, configs: tuple[ForwardConfig, ...], world: World) -> None:
        self.forwarders: Final = tuple(Forwarder(config, world) for config in configs)

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        query = request.query
        if query.qtype in TRANSFERS:
            return next(request)
        if request.is_dry_run:
            return self._would_ask(request, next)
        matching = [forwarder for forwarder in self.forwarders if forwarder.matches(query.labels)]
        if len(matching) == 1:
            return matching[0].forward(request)
        return _forward_in_turn(matching, request) if matching else next(request)

    def _would_ask(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        for forwarder in self.forwarders:
            if forwarder.matches(request.query.labels):
                raise WouldAskError(request, NAME, (member.name for member in forwarder.group.members))
        return next(request)

    def plain_zones(self) -> Iterable[Labels]:
        return chain.from_iterable(forwarder.plain_zones() for forwarder in self.forwarders)

    def linked(self, zone: Labels, later: Serve) -> Serve:
        only = self.forwarders[0].linked(zone, later) if len(self.forwarders) == 1 else None
        return only or super().linked(zone, later)


async def _forward_in_turn(matching: list[Forwarder], request: Request) -> Reply:
    for forwarder in matching[:-1]:
        response = await forwarder.forward(request)
        if not forwarder.falls_through(response):
            return response
    return await matching[-1].forward(request)


class Forwarder:
    """One stanza: the names that it forwards, and its upstreams."""

    def __init__(self, config: ForwardConfig, world: World) -> None:
        self.group = Group(config, world)
        self.zones = ZoneSet(config.zones)
        self._excluded = ZoneSet(config.excluded)
        self._config = config
        self._world = world
        self._order = order(config.policy, world.random)
        self._shares = FairShares(config.max_concurrent)
        self._observers: tuple[ForwardObserver, ...] | None = None
        reason = f"concurrent queries exceeded maximum {config.max_concurrent}"
        self._too_many = Response(REFUSED, plugin=NAME, error=reason)
        self._broken = world.counters(
            "coredns_forward_healthcheck_broken", "Queries for which no upstream was healthy.", ()
        ).tally()
        self._rejects = world.counters(
            "coredns_forward_max_concurrent_rejects", "Queries refused because max_concurrent queries waited.", ()
        ).tally()

    def matches(self, labels: Labels) -> bool:
        """`labels` are folded. FROM itself is always forwarded, in spite of `except`."""
        zone = self.zones.closest(labels)
        if zone is None or not self._config.excluded:
            return zone is not None
        return labels == zone or labels not in self._excluded

    def falls_through(self, response: Response) -> bool:
        """Whether the next stanza answers instead (`next`, `next_on_nodata`)."""
        if response is self._too_many or (not response.wire and response.options == FAILED.options):
            return False
        config = self._config
        if response.rcode in config.next_rcodes:
            return True
        has_answer = response.wire[6:8] != b"\0\0" if response.wire else bool(response.answer)
        return config.next_on_nodata and response.rcode == NOERROR and not has_answer

    def plain_zones(self) -> Iterable[Labels]:
        yield from self.zones
        yield from map(labels_of, self._config.excluded)

    def linked(self, zone: Labels, later: Serve) -> Serve | None:
        """As Plugin.linked; None if some names of the zone are forwarded and others are not."""
        closest = self.zones.closest(zone)
        if closest is None:
            return later
        if zone not in self._excluded:
            return self.forward
        return None if closest == zone else later  # FROM itself is forwarded

    async def forward(self, request: Request) -> Response:
        """SERVFAIL if no upstream answers, REFUSED beyond `max_concurrent`."""
        config, now_s = self._config, self._world.now_s
        client = request.client[0]
        if config.max_concurrent and not self._shares.take(client):
            self._rejects.count += 1
            return self._too_many
        members = self.group.usable
        transport = self.transport(request)
        failures, answers_left = 0, len(members)
        response, has_answer = FAILED, False
        at_s = now_s()
        deadline_s = at_s + TIMEOUT_S
        try:
            for member in self._candidates(members):
                if at_s >= deadline_s:
                    break
                sent_s = at_s
                try:
                    wire = await self._exchange(
                        member, request, transport, min(config.read_timeout_s, deadline_s - at_s)
                    )
                    if wire[2] & _TC and transport == "udp":
                        wire = await self._whole(member, request, wire, deadline_s)
                    response = checked(wire, request.query, NAME)
                except (UpstreamError, ValueError) as error:
                    at_s = now_s()
                    member.failed(transport)
                    response = response if has_answer else evolve(FAILED, error=_reason(error, member, transport))
                    failures += not isinstance(error, UpstreamTimeoutError)
                    if failures >= self._max_failures(len(members)):
                        break
                    continue
                at_s = now_s()
                member.durations[response.rcode].add(at_s - sent_s)
                has_answer = True
                answers_left -= 1
                if response.rcode not in config.failover_rcodes or answers_left <= 0:
                    break
        finally:
            if config.max_concurrent:
                self._shares.release(client)
        return response

    def _exchange(self, member: Member, request: Request, transport: Transport, timeout_s: float) -> Awaitable[bytes]:
        """The upstream's message; passed to the block's observers, and the upstream's address to `metadata`."""
        if request.metadata is not NO_METADATA and isinstance(request.metadata, Facts):
            request.metadata.note(f"{NAME}/upstream", str(member.upstream.spec.address))
        if self._observers is None and (plugins := self._world.plugins()):
            self._observers = tuple(plugin for plugin in plugins if isinstance(plugin, ForwardObserver))
        if self._observers:
            return self._observed(self._observers, member, request, transport, timeout_s)
        return member.upstream.exchange(request.query, transport, timeout_s, request.client[0])

    async def _observed(
        self,
        observers: tuple[ForwardObserver, ...],
        member: Member,
        request: Request,
        transport: Transport,
        timeout_s: float,
    ) -> bytes:
        started_s, wire = self._world.now_s(), b""
        try:
            received = await member.upstream.exchange(request.query, transport, timeout_s, request.client[0])
            wire = response_to(request.query, received)
        finally:
            spec = member.upstream.spec
            over = transport if spec.scheme == "dns" else spec.scheme
            address = (spec.address.host, spec.address.port)
            exchange = Forwarded(address, over, request.query.packet, wire, started_s, self._world.now_s())
            for observer in observers:
                observer.forwarded(request, exchange)
        return wire

    def transport(self, request: Request) -> Transport:
        """The client's protocol, where any stream is TCP, or that of the stanza's options."""
        config = self._config
        return "tcp" if config.force_tcp or (request.transport != "udp" and not config.prefer_udp) else "udp"

    def _max_failures(self, members: int) -> int:
        limit = self._config.max_connect_attempts
        return 2 * members if limit is None else min(limit or MAX_ATTEMPTS, MAX_ATTEMPTS)

    def _candidates(self, members: Members) -> Iterator[Member]:
        """Upstreams that are not down, round after round; the first round is in the order of the policy.

        If all are down, a random one is the last attempt, because health checks may be wrong.
        """
        upstreams = self._order(members) if len(members) > 1 else members
        while members:
            down = 0
            for member in upstreams:
                if not member.is_down:
                    yield member
                    continue
                down += 1
                if down == len(members):
                    self._broken.count += 1
                    if not self._config.failfast:
                        yield members[self._world.random.randrange(down)]
                    return
            upstreams = members

    async def _whole(self, member: Member, request: Request, truncated: bytes, deadline_s: float) -> bytes:
        """Retries a truncated answer over TCP; if that fails, clients over UDP get the truncated one.

        So the cache gets whole answers, and a client with a higher limit than the upstream's needs one query only.
        """
        timeout_s = min(self._config.read_timeout_s, deadline_s - self._world.now_s())
        try:
            return await self._exchange(member, request, "tcp", timeout_s)
        except UpstreamError:
            if request.transport != "udp":
                raise
            return truncated


def _reason(error: Exception, member: Member, transport: Transport) -> str:
    """The upstream and its error, for logs; a timeout has Go's text, for operators' existing patterns."""
    spec = member.upstream.spec
    over = transport if spec.scheme == "dns" else spec.scheme
    if isinstance(error, UpstreamTimeoutError):
        return f"read {over} {spec.address}: i/o timeout"
    return f"{over} {spec.address}: {error}"


DIRECTIVE: Final = Directive(USAGE, ForwardConfig, Forward, OPTIONS, Repeat.ADD, parse=parse, example=". ::1")
