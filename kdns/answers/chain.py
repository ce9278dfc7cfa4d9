"""The chain of a server block: each directive's plugin answers a request or passes it to the next one.

The order of the chain is CoreDNS's order of directives. A chain runs only for queries without an answer in the table; a
chain in which no plugin waits makes no coroutine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from kdns.answers.answer import MAX_UDP_BYTES
from kdns.answers.decode import from_wire
from kdns.answers.order import Order
from kdns.answers.response import NEVER, NO_METADATA, PRIVATE, Response, counted_down
from kdns.dns.names import Labels, is_below, labels_of
from kdns.dns.query import TC, Query
from kdns.dns.types import CNAME, IN, NOERROR, NOTIMP, REFUSED, SERVFAIL, TRANSFERS
from kdns.tally import Tally
from kdns.values import Value, evolve

MAX_CNAMES: Final = 11
"""CNAMEs of one answer that are followed, as in CoreDNS."""


class Request(Value, frozen=True):
    """One query as plugins see it; immutable, `evolve` makes another one.

    `client` is its address and port, `local` and `local_port` are its destination as the listener knows it, `transport`
    is "udp", "tcp" (also below TLS and HTTPS) or "quic". `zone` and `view` are the server block's, `server` is the
    label of its server, such as `dns://:53`. `received_s` is on the event loop's clock, in seconds. `metadata` are
    facts that a directive adds for later ones, by CoreDNS's labels such as `kubernetes/service`. `depth` counts
    internal queries: 0 for a client's, one more for each query made to answer another. A dry run (`is_dry_run`) finds
    out what the answer would be: `cache` keeps nothing of it, and a directive that needs upstreams raises
    WouldAskError. `options` are those of
    the query's EDNS that a directive set: they are part of the question, as the client's own are not.
    """

    query: Query
    client: tuple[str, int] = ("", 0)
    local: str = ""
    transport: str = "udp"
    zone: str = "."
    received_s: float = 0.0
    metadata: Mapping[str, str] = NO_METADATA
    server: str = ""
    view: str = ""
    local_port: int = 0
    depth: int = 0
    is_dry_run: bool = False
    options: tuple[tuple[int, bytes], ...] = ()

    @property
    def is_stream(self) -> bool:
        """Whether the transport is a stream, so that an answer may have 64 KiB."""
        return self.transport != "udp"

    def about(self, labels: Labels, qtype: int | None = None) -> Request:
        """Returns the same request with another question; raises ValueError for a name that is too long."""
        return evolve(self, query=self.query.changed(labels, qtype))


class WouldAskError(Exception):
    """Ends a dry run: a directive of the block `zone` would ask one of these upstreams the question of `labels`."""

    def __init__(self, request: Request, plugin: str, upstreams: Iterable[str]) -> None:
        super().__init__(f"{plugin} would ask upstreams")
        self.labels = request.query.labels
        self.zone = request.zone
        self.plugin = plugin
        self.upstreams = tuple(upstreams)


Reply: TypeAlias = Response | None
"""The result of a plugin; None for no response."""
ServeResult: TypeAlias = Reply | Awaitable[Reply]
Serve: TypeAlias = Callable[[Request], ServeResult]


class Sees(Enum):
    """The queries that a plugin has to see."""

    EVERY = "every"
    """Every query: its effect depends on the client, on time, or on being called. The table is off."""
    PACKET = "packet"
    """Queries without an answer in the table: its effect depends only on the packet and on `Response.reuse`."""


class Source(Value, frozen=True):
    """Answers to plain questions of one zone from a plugin's own objects, without the directives in front of it.

    `link` makes the function that answers: from the counters of its replies, and from the whole chain, for what that
    alone can answer. No TTL is above `ttl_s`. With `falls_through`, a later directive may have answered a name before
    the source had it; then `is_answered` says whether a directive in front has that answer.
    """

    ttl_s: int
    link: Callable[[tuple[Tally, ...], Serve], Serve]
    falls_through: bool = False
    tallies: tuple[Tally, ...] = ()
    is_answered: Callable[[Request], bool] | None = None

    def in_front_of(self, whole: Serve) -> Serve:
        own, is_answered = self.link(self.tallies, whole), self.is_answered
        return own if is_answered is None else partial(_unless, is_answered, own, whole)


def _unless(
    is_answered: Callable[[Request], bool], own: Serve, whole: Serve, request: Request
) -> Reply | Awaitable[Reply]:
    return whole(request) if is_answered(request) else own(request)


class Plugin(Protocol):
    """The part of a directive that serves queries. The table is used only if every plugin of the block allows it.

    With `takes_notify` it also serves NOTIFY (RFC 1996); other plugins never receive NOTIFY.
    """

    sees: Sees = Sees.EVERY
    takes_notify: bool = False

    def serve(self, request: Request, next: Serve) -> Reply | Awaitable[Reply]:  # noqa: A002 - the name it has in CoreDNS
        """Returns the response to a request, or the reply of `next` to it or to another request.

        A plugin without its own `serve` is not part of the chain.
        """
        return next(request)

    def plain_zones(self) -> Iterable[Labels] | None:
        """Returns the zones whose plain questions (Server.respond) concern it; None for all names.

        Chains are linked without it for other zones, so it must pass their plain questions, and the replies, unchanged.
        """
        return None

    def linked(self, zone: Labels, later: Serve) -> Serve:
        """Returns what answers plain questions of a zone; names in one of `plain_zones` below the zone never come.

        `later` for a pass-through.
        """
        del zone
        return partial(self.serve, next=later)

    def source(self, zone: Labels, later: Source | None, server: str) -> Source | None:
        """Returns the source of a zone as the directives in front see it: its own, or that of the later directives.

        The latter if it would pass all of that source's replies unchanged; it adds its counters. `server` is the label
        of the server. None if it has to see the questions.
        """
        del zone, later, server
        return None


@runtime_checkable
class Observer(Protocol):
    """A plugin that is also called with each sent response."""

    def sent(self, request: Request, response: Response, wire: bytes, took_s: float) -> None:
        """Called after these bytes were sent as the response, `took_s` seconds after the query was received."""
        ...


@runtime_checkable
class Orderer(Protocol):
    """A plugin that decides the order of addresses in the answers of its block."""

    order: Order


@runtime_checkable
class View(Protocol):
    """A plugin that selects the queries of its block; `is_of_packet` if the selection depends on the packet only."""

    view_name: str
    is_of_packet: bool

    def accepts(self, request: Request) -> bool: ...


@runtime_checkable
class ParentSide(Protocol):
    """A plugin that serves zones, and so may have the parent's side of a delegation."""

    def zone_of(self, labels: Labels) -> object | None: ...

    def parent_zone(self, labels: Labels) -> object | None: ...


def has_parent_behind(plugin: object, plugins: Sequence[object], labels: Labels) -> bool:
    """Returns whether a later plugin has the zone above a name, and so its DS (RFC 4035 §3.1.4.1)."""
    behind = plugins[plugins.index(plugin) + 1 :] if plugin in plugins else ()
    return any(isinstance(each, ParentSide) and each.parent_zone(labels) for each in behind)


class Forwarded(NamedTuple):
    """A query to an upstream over this transport, and its response, b"" for none; times are on the loop's clock."""

    upstream: tuple[str, int]
    transport: str
    query: bytes
    response: bytes
    started_s: float
    ended_s: float


@runtime_checkable
class ForwardObserver(Protocol):
    """A plugin that is also called with each query to an upstream."""

    def forwarded(self, request: Request, exchange: Forwarded) -> None: ...


UNHANDLED: Final = Response(SERVFAIL, error="no directive has the answer")
UNANSWERED: Final = Response(SERVFAIL)
"""A directive has the zone but not the name, and no SOA for NXDOMAIN: SERVFAIL without an error, as in CoreDNS."""
NOT_SERVED: Final = Response(REFUSED)


def unhandled(request: Request) -> Reply:
    query = request.query
    return NOT_SERVED if query.qclass != IN or query.qtype in TRANSFERS else UNHANDLED


class Chain:
    """The plugins of a server block, in order, as one function; `notify` is the same for NOTIFY.

    `is_cacheable` is True if the table may be used. `observers` are called with each sent response. `parents` are the
    plugins that may have the parent's side of a delegation. `view` selects the queries of the block, None for all;
    `view_name` is its name, "" for none.
    """

    __slots__ = (
        "end", "is_cacheable", "notify", "observers", "orderer", "parents", "plugins", "serve", "view", "view_name",
    )  # fmt: skip

    def __init__(self, plugins: Iterable[Plugin] = ()) -> None:
        self.plugins = tuple(plugins)
        self.is_cacheable = all(getattr(plugin, "sees", Sees.EVERY) is not Sees.EVERY for plugin in self.plugins)
        self.observers = tuple(plugin for plugin in self.plugins if isinstance(plugin, Observer))
        self.parents = tuple(plugin for plugin in self.plugins if isinstance(plugin, ParentSide))
        self.view = next((plugin for plugin in self.plugins if isinstance(plugin, View)), None)
        self.view_name = self.view.view_name if self.view else ""
        self.orderer = next((plugin for plugin in self.plugins if isinstance(plugin, Orderer)), None)
        self.end: Serve = unhandled if self.plugins else lambda _request: NOT_SERVED  # REFUSED, as in CoreDNS
        self.serve = _linked(self.plugins, self.end)
        notified = [plugin for plugin in self.plugins if getattr(plugin, "takes_notify", False)]
        self.notify = _linked(notified, lambda _request: Response(NOTIMP))

    def for_zone(self, zone: Labels, server: str) -> Serve:
        """Returns the chain of plain questions about names of a zone, except those in one of its `zones_below`.

        It has only plugins that these concern. If they all let a source pass, what the source finds does not enter it.
        """
        serve = self.end
        source: Source | None = None
        for plugin in reversed(self.concerned_by(zone)):
            source = plugin.source(zone, source, server)
            serve = plugin.linked(zone, serve)
        # preferred networks put addresses in order that others point at, which takes them apart
        if source is None or not self.is_cacheable or (self.orderer and self.orderer.order.prefer):
            return serve
        return source.in_front_of(serve)

    def concerned_by(self, zone: Labels) -> list[Plugin]:
        found: list[Plugin] = []
        for plugin in filter(is_linked, self.plugins):
            zones = plugin.plain_zones()
            if zones is None or any(is_below(zone, other) for other in zones):
                found.append(plugin)
        return found

    def zones_below(self, zone: Labels) -> Iterator[Labels]:
        """Yields the zones in a zone from which on the chain may be another one."""
        for plugin in filter(is_linked, self.plugins):
            for below in plugin.plain_zones() or ():
                if is_below(below, zone):
                    yield below


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One server block under one of its zones; `logs_stacks` is set by `errors { stacktrace }`.

    `udp_bytes` is the size of its largest answer over UDP.
    """

    zone: str
    chain: Chain
    logs_stacks: bool = False
    udp_bytes: int = MAX_UDP_BYTES


def _linked(plugins: Sequence[Plugin], serve: Serve) -> Serve:
    for plugin in reversed(plugins):
        if is_linked(plugin):
            serve = partial(plugin.serve, next=serve)
    return serve


def is_linked(plugin: Plugin) -> bool:
    """Returns whether a plugin is part of its chain, which it is with a `serve` of its own."""
    return type(plugin).serve is not Plugin.serve


def then(
    reply: Reply | Awaitable[Reply], change: Callable[[Reply], Reply | Awaitable[Reply]]
) -> Reply | Awaitable[Reply]:
    """Applies `change` to a reply, at once or when it is available. The result of `change` may be awaitable too."""
    if reply is None or isinstance(reply, Response):
        return change(reply)
    return _later(reply, change)


async def _later(reply: Awaitable[Reply], change: Callable[[Reply], Reply | Awaitable[Reply]]) -> Reply:
    changed = change(await reply)
    return changed if changed is None or isinstance(changed, Response) else await changed


async def awaited(reply: Reply | Awaitable[Reply]) -> Reply:
    return reply if reply is None or isinstance(reply, Response) else await reply


def follow(request: Request, response: Response, next: Serve) -> Reply | Awaitable[Reply]:  # noqa: A002 - as in Plugin
    """Returns a response that ends in a CNAME, completed with the answer of `next` for its target.

    `next` are the later directives, or the whole server (Answers.resolve). The response is returned unchanged without
    a later directive that answers for the target, if the target is an owner already (a loop), and above MAX_CNAMES
    records.
    """
    if next is unhandled or not response.answer or len(response.answer) > MAX_CNAMES:
        return response
    try:
        target = labels_of(str(response.answer[-1].rdata[0]))
        if response.answer[-1].rtype != CNAME or tuple(map(bytes.lower, target)) in _owners(response):
            return response
        rewritten = request.about(target)
    except ValueError:
        return response
    return then(next(rewritten), partial(_followed, response, request.received_s))


def for_one_client(reply: Reply) -> Reply:
    return reply and evolve(reply, reuse=PRIVATE)


def is_end(reply: Reply) -> bool:
    return reply is UNHANDLED or reply is UNANSWERED


def is_unanswered(response: Response) -> bool:
    if response.error:
        return response.error == UNHANDLED.error
    return response.rcode in {REFUSED, SERVFAIL} and not (response.plugin or response.wire)


def _owners(response: Response) -> set[Labels]:
    return {tuple(map(bytes.lower, labels_of(rrset.owner))) for rrset in response.answer}


def _followed(response: Response, now_s: float, found: Reply) -> Reply:
    if found is None:  # a client that a directive dropped: others may get more
        return evolve(response, reuse=PRIVATE)
    if is_end(found):
        return response
    if is_unanswered(found):
        return evolve(response, reuse=NEVER.and_then(response.reuse).and_then(found.reuse))
    return joined(response, found, TC, now_s)


def joined(response: Response, found: Response, flags: int, now_s: float) -> Response:
    """Returns the CNAMEs of `response` with the answer for their target, and with these of its flags.

    TTLs that count down, and an SOA whose serial changes, are valid for one query only.
    """
    found = counted_down(from_wire(found), now_s)
    reuse = response.reuse.and_then(found.reuse)
    negative = (found.soa.rrset,) if found.soa is not None else found.authority
    return evolve(
        response,
        rcode=found.rcode,
        flags=response.flags | (found.flags & flags),
        answer=(*response.answer, *found.answer),
        authority=response.authority if found.rcode == NOERROR and found.answer else negative,
        reuse=reuse if found.soa is None else NEVER.and_then(reuse),
        tallies=(*response.tallies, *found.tallies),
        error=found.error,
    )
