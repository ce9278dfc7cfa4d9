"""The chain of a server block: each directive's plugin answers a request or passes it to the next one.

The order is CoreDNS's order of directives. A chain runs only for misses of the answer table; if no plugin waits, it
makes no coroutine.
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
"""The most CNAMEs that are followed for one answer, as in CoreDNS."""


class Request(Value, frozen=True):
    """One query as plugins see it; immutable, `evolve` copies it with changes.

    - `local` and `local_port` are its destination as the listener knows it.
    - `transport` is "udp", "tcp" (also for TLS and HTTPS) or "quic".
    - `zone` and `view` are the server block's, `server` is the label of its address, such as `dns://:53`.
    - `received_s` is on the event loop's clock.
    - `metadata` are facts from earlier directives, by CoreDNS's labels such as `kubernetes/service`.
    - `depth` is 0 for a client's query, 1 for an internal query made to answer it, and so on.
    - `is_dry_run`: only find out the answer. `cache` stores nothing, a directive that needs upstreams raises
      WouldAskError.
    - `options` are EDNS options that a directive added: unlike the client's they are part of the question.
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
        """On a stream an answer may have 64 KiB."""
        return self.transport != "udp"

    def about(self, labels: Labels, qtype: int | None = None) -> Request:
        """With another question; raises ValueError for a name that is too long."""
        return evolve(self, query=self.query.changed(labels, qtype))


class WouldAskError(Exception):
    """Ends a dry run: `plugin`, in the block of `zone`, would send a query for `labels` to one of `upstreams`."""

    def __init__(self, request: Request, plugin: str, upstreams: Iterable[str]) -> None:
        super().__init__(f"{plugin} would ask upstreams")
        self.labels = request.query.labels
        self.zone = request.zone
        self.plugin = plugin
        self.upstreams = tuple(upstreams)


Reply: TypeAlias = Response | None
"""None: send nothing."""
ServeResult: TypeAlias = Reply | Awaitable[Reply]
Serve: TypeAlias = Callable[[Request], ServeResult]


class Sees(Enum):
    """Which queries a plugin has to see."""

    EVERY = "every"
    """All: its effect depends on the client, on time, or on being called. The table is off."""
    PACKET = "packet"
    """Misses of the table: its effect depends only on the packet and on `Response.reuse`."""


class Source(Value, frozen=True):
    """Answers plain questions of one zone from a plugin's own objects, bypassing the directives in front of it.

    `link` makes the function that answers, from the tallies to count and the whole chain to fall back to. No TTL is
    above `ttl_s`. `falls_through`: names that the source lacks are answered by later directives. Then a directive in
    front may still hold an old answer: `is_answered` says so.
    """

    ttl_s: int
    link: Callable[[tuple[Tally, ...], Serve], Serve]
    falls_through: bool = False
    tallies: tuple[Tally, ...] = ()
    is_answered: Callable[[Request], bool] | None = None

    def in_front_of(self, whole: Serve) -> Serve:
        own, is_answered = self.link(self.tallies, whole), self.is_answered
        return own if is_answered is None else partial(_unless, is_answered, own, whole)


def _unless(is_answered: Callable[[Request], bool], own: Serve, whole: Serve, request: Request) -> ServeResult:
    return whole(request) if is_answered(request) else own(request)


class Plugin(Protocol):
    """The part of a directive that serves queries. The table is on only if every plugin of the block allows it.

    With `takes_notify` it also serves NOTIFY (RFC 1996).
    """

    sees: Sees = Sees.EVERY
    takes_notify: bool = False

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - the name it has in CoreDNS
        """Responds, or passes this request or another one to `next`.

        A plugin that does not override this is not in the chain.
        """
        return next(request)

    def plain_zones(self) -> Iterable[Labels] | None:
        """The zones whose plain questions (Server.respond) it needs to see; None for all names.

        For other zones the chain is linked without it: there it must be pass-through for questions and replies.
        """
        return None

    def linked(self, zone: Labels, later: Serve) -> Serve:
        """The function for plain questions of a zone, without names in other `plain_zones` below it.

        `later` itself if the plugin is pass-through.
        """
        del zone
        return partial(self.serve, next=later)

    def source(self, zone: Labels, later: Source | None, server: str) -> Source | None:
        """The source of a zone for the directives in front: its own, or that of the `later` directives.

        It returns `later`, with its tallies added, if it would pass all replies of that source unchanged; None if it
        has to see the questions. `server` is the label of the address.
        """
        del zone, later, server
        return None


@runtime_checkable
class Observer(Protocol):
    """A plugin that is also called with each sent response."""

    def sent(self, request: Request, response: Response, wire: bytes, took_s: float) -> None:
        """Called after `wire` was sent, `took_s` seconds after the query was received."""
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
    """A plugin that serves zones, and may have the parent side of a delegation."""

    def zone_of(self, labels: Labels) -> object | None: ...

    def parent_zone(self, labels: Labels) -> object | None: ...


def has_parent_behind(plugin: object, plugins: Sequence[object], labels: Labels) -> bool:
    """Whether a later plugin has the zone above a name, and so its DS (RFC 4035 §3.1.4.1)."""
    behind = plugins[plugins.index(plugin) + 1 :] if plugin in plugins else ()
    return any(isinstance(later, ParentSide) and later.parent_zone(labels) for later in behind)


class Forwarded(NamedTuple):
    """A query to an upstream and its response, b"" for none; times are on the loop's clock."""

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
"""A directive has the zone but not the name, and no SOA for NXDOMAIN: SERVFAIL that is no error, as in CoreDNS."""
NOT_SERVED: Final = Response(REFUSED)


def unhandled(request: Request) -> Reply:
    query = request.query
    return NOT_SERVED if query.qclass != IN or query.qtype in TRANSFERS else UNHANDLED


class Chain:
    """The plugins of a server block, linked to one function `serve`, and for NOTIFY to `notify`.

    `is_cacheable`: the table may be used. `parents` may have the parent side of a delegation. `view` selects the
    queries of the block, None for all; `view_name` is "" without one.
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
        """Links the plugins that plain questions of a zone concern; its `zones_below` have chains of their own.

        If all of them pass the replies of a source unchanged, the source answers first.
        """
        serve = self.end
        source: Source | None = None
        for plugin in reversed(self.concerned_by(zone)):
            source = plugin.source(zone, source, server)
            serve = plugin.linked(zone, serve)
        # preferred networks sort addresses, which `Encoded` records cannot be
        if source is None or not self.is_cacheable or (self.orderer and self.orderer.order.prefer):
            return serve
        return source.in_front_of(serve)

    def concerned_by(self, zone: Labels) -> list[Plugin]:
        concerned: list[Plugin] = []
        for plugin in filter(is_linked, self.plugins):
            zones = plugin.plain_zones()
            if zones is None or any(is_below(zone, other) for other in zones):
                concerned.append(plugin)
        return concerned

    def zones_below(self, zone: Labels) -> Iterator[Labels]:
        """Zones below a zone that may have another chain."""
        for plugin in filter(is_linked, self.plugins):
            for below in plugin.plain_zones() or ():
                if is_below(below, zone):
                    yield below


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A server block under one of its zones. `logs_stacks`: `errors { stacktrace }`. `udp_bytes`: UDP answer limit."""

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
    """A plugin that does not override `serve` is not in the chain."""
    return type(plugin).serve is not Plugin.serve


def then(reply: ServeResult, change: Callable[[Reply], ServeResult]) -> ServeResult:
    """Applies `change` to a reply, now or when it is there; `change` may itself return an awaitable."""
    if reply is None or isinstance(reply, Response):
        return change(reply)
    return _later(reply, change)


async def _later(reply: Awaitable[Reply], change: Callable[[Reply], ServeResult]) -> Reply:
    changed = change(await reply)
    return changed if changed is None or isinstance(changed, Response) else await changed


async def awaited(reply: ServeResult) -> Reply:
    return reply if reply is None or isinstance(reply, Response) else await reply


def follow(request: Request, response: Response, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
    """Completes a response that ends in a CNAME with the answer of `next` for its target.

    `next` are the later directives, or the whole server (World.resolve). The response stays as it is if nothing
    answers for the target, if the target is an owner already (a loop), and above MAX_CNAMES records.
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


def _followed(response: Response, now_s: float, target: Reply) -> Reply:
    if target is None:  # a directive drops this client's queries: others may get more
        return evolve(response, reuse=PRIVATE)
    if is_end(target):
        return response
    if is_unanswered(target):
        return evolve(response, reuse=NEVER.and_then(response.reuse).and_then(target.reuse))
    return joined(response, target, TC, now_s)


def joined(response: Response, target: Response, flags: int, now_s: float) -> Response:
    """The CNAMEs of `response` and the answer for their target, with those of its flags that are in `flags`.

    TTLs that count down, and an SOA whose serial changes, are valid for one query only.
    """
    target = counted_down(from_wire(target), now_s)
    reuse = response.reuse.and_then(target.reuse)
    negative = (target.soa.rrset,) if target.soa is not None else target.authority
    return evolve(
        response,
        rcode=target.rcode,
        flags=response.flags | (target.flags & flags),
        answer=(*response.answer, *target.answer),
        authority=response.authority if target.rcode == NOERROR and target.answer else negative,
        reuse=reuse if target.soa is None else NEVER.and_then(reuse),
        tallies=(*response.tallies, *target.tallies),
        error=target.error,
    )
