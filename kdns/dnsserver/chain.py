"""The chain of a server block: each directive's plugin answers a request or hands it to the next one.

CoreDNS's order of directives is the order of the chain. A chain runs only for what the answer table does not hold; a
chain in which nobody waits makes no coroutine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from kdns.dns.names import Labels, labels_of
from kdns.dns.query import TC, Query
from kdns.dns.types import CNAME, IN, NOERROR, NOTIMP, REFUSED, SERVFAIL, TRANSFERS
from kdns.dnsserver.answers.decode import from_wire
from kdns.dnsserver.answers.order import Order
from kdns.dnsserver.answers.response import NEVER, NO_METADATA, PRIVATE, Response
from kdns.named_tuples import quick_replace

MAX_CNAMES: Final = 11
"""CNAMEs of one answer that are followed, as in CoreDNS."""


@quick_replace
class Request(NamedTuple):
    """One query as plugins see it; immutable, `_replace` makes another one.

    `client` is its address and port, `local` and `local_port` what it was sent to, as the listener knows it,
    `transport` "udp", "tcp", "tls", "https" or "quic". `zone` and `view` are the server block's, `server` is the
    label of its server, such as `dns://:53`. `received_s` is of the event loop's clock, in seconds.
    `metadata` are facts that a directive adds for those behind it, by CoreDNS's labels such as `kubernetes/service`.
    `depth` is how many questions of the server's own led to this one, 0 for a client's.
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

    @property
    def is_stream(self) -> bool:
        """Whether an answer may have 64 KiB."""
        return self.transport != "udp"

    def about(self, labels: Labels, qtype: int | None = None) -> Request:
        """The same request with another question; ValueError for a name that is too long."""
        return self._replace(query=self.query.changed(labels, qtype))


Reply: TypeAlias = Response | None
"""What comes back; None for silence."""
Serve: TypeAlias = Callable[[Request], Reply | Awaitable[Reply]]


class Sees(Enum):
    """Which queries a plugin has to see."""

    EVERY = "every"
    """Each one: what it does or answers depends on the client, on time, or on being called. The table is off."""
    PACKET = "packet"
    """It does nothing that does not depend on the packet alone and on what `Response.reuse` names."""


class Plugin(Protocol):
    """What a directive does to queries. The table stands in front of it only where it says so.

    With `takes_notify` it also serves NOTIFY (RFC 1996), of which the others are not told.
    """

    sees: Sees = Sees.EVERY
    takes_notify: bool = False

    def serve(self, request: Request, next: Serve) -> Reply | Awaitable[Reply]:  # noqa: A002 - the name it has in CoreDNS
        """The response to a request, or what `next` says to it, or to another one in its place.

        A plugin without a `serve` of its own is left out of the chain.
        """
        return next(request)


@runtime_checkable
class Observer(Protocol):
    """A plugin that is also called with what was sent."""

    def sent(self, request: Request, response: Response, wire: bytes, took_s: float) -> None:
        """These bytes were sent as the response, `took_s` seconds after the query was received."""
        ...


@runtime_checkable
class Orderer(Protocol):
    """A plugin that says which addresses come first in the answers of its block."""

    order: Order


@runtime_checkable
class View(Protocol):
    """A plugin that says which queries its block is for; `is_of_packet` where nothing but the packet decides."""

    view_name: str
    is_of_packet: bool

    def accepts(self, request: Request) -> bool:
        """Whether the block is for this query."""
        ...


@runtime_checkable
class ParentSide(Protocol):
    """A plugin that serves zones, and so may have the parent's side of a delegation."""

    def zone_of(self, labels: Labels) -> object | None:
        """The closest zone that a name is at or below; None if there is none."""
        ...

    def parent_zone(self, labels: Labels) -> object | None:
        """The closest zone above a name; None if there is none."""
        ...


def has_parent_behind(plugin: object, plugins: Sequence[object], labels: Labels) -> bool:
    """Whether one of the plugins behind this one has the zone above a name, and so its DS (RFC 4035 §3.1.4.1)."""
    behind = plugins[plugins.index(plugin) + 1 :] if plugin in plugins else ()
    return any(isinstance(each, ParentSide) and each.parent_zone(labels) for each in behind)


class Forwarded(NamedTuple):
    """A question that an upstream was asked over this transport, and its response, b"" for none; loop times."""

    upstream: tuple[str, int]
    transport: str
    query: bytes
    response: bytes
    started_s: float
    ended_s: float


@runtime_checkable
class ForwardObserver(Protocol):
    """A plugin that is also called with what upstreams were asked."""

    def forwarded(self, request: Request, exchange: Forwarded) -> None:
        """An upstream was asked on behalf of this request."""
        ...


UNHANDLED: Final = Response(SERVFAIL, error="no directive has the answer")
UNANSWERED: Final = Response(SERVFAIL)
"""A directive has the zone, not the name, and no SOA to deny it with: SERVFAIL, and no error, as in CoreDNS."""
NO_NOTIFY: Final = Response(NOTIMP)
NOT_SERVED: Final = Response(REFUSED)


def unhandled(request: Request) -> Reply:
    """The end of every chain: SERVFAIL, as no directive answered; REFUSED for transfers and classes but IN."""
    query = request.query
    return NOT_SERVED if query.qclass != IN or query.qtype in TRANSFERS else UNHANDLED


def no_notify(_request: Request) -> Reply:
    """The end of the chain that NOTIFY takes: no directive wants to know of changes."""
    return NO_NOTIFY


def unserved(_request: Request) -> Reply:
    """A server block in which no directive could answer: REFUSED, as in CoreDNS."""
    return NOT_SERVED


class Chain:
    """The plugins of a server block, in order, as one function; `notify` is the same for NOTIFY.

    `is_cacheable` says whether the table may stand in front of it. `observers` are called with what was sent.
    `parents` are the plugins that may have the parent's side of a delegation. `view` says which queries it is for, None
    for all; `view_name` is its name, "" for none.
    """

    __slots__ = ("_orderer", "is_cacheable", "notify", "observers", "parents", "plugins", "serve", "view", "view_name")

    def __init__(self, plugins: Iterable[Plugin] = ()) -> None:
        self.plugins = tuple(plugins)
        self.is_cacheable = all(getattr(plugin, "sees", Sees.EVERY) is Sees.PACKET for plugin in self.plugins)
        self.observers = tuple(plugin for plugin in self.plugins if isinstance(plugin, Observer))
        self.parents = tuple(plugin for plugin in self.plugins if isinstance(plugin, ParentSide))
        self.view = next((plugin for plugin in self.plugins if isinstance(plugin, View)), None)
        self.view_name = self.view.view_name if self.view else ""
        self._orderer = next((plugin for plugin in self.plugins if isinstance(plugin, Orderer)), None)
        self.serve = _linked(self.plugins, unhandled if self.plugins else unserved)
        self.notify = _linked([plugin for plugin in self.plugins if getattr(plugin, "takes_notify", False)], no_notify)

    def ordered(self, reply: Reply) -> Reply:
        """A reply with its addresses in the order of the block; the messages of a zone transfer keep theirs."""
        if reply is None or self._orderer is None or reply.following:
            return reply
        return reply._replace(order=self._orderer.order)


def _linked(plugins: Sequence[Plugin], serve: Serve) -> Serve:
    """The plugins as one function that ends in `serve`."""
    for plugin in reversed(plugins):
        if type(plugin).serve is not Plugin.serve:
            serve = partial(plugin.serve, next=serve)
    return serve


def then(
    reply: Reply | Awaitable[Reply], change: Callable[[Reply], Reply | Awaitable[Reply]]
) -> Reply | Awaitable[Reply]:
    """`change` applied to a reply, at once or when it is available. What `change` returns may be awaited in turn."""
    if reply is None or isinstance(reply, Response):
        return change(reply)
    return _later(reply, change)


async def _later(reply: Awaitable[Reply], change: Callable[[Reply], Reply | Awaitable[Reply]]) -> Reply:
    changed = change(await reply)
    return changed if changed is None or isinstance(changed, Response) else await changed


async def awaited(reply: Reply | Awaitable[Reply]) -> Reply:
    """The reply, when it is available."""
    return reply if reply is None or isinstance(reply, Response) else await reply


def follow(request: Request, response: Response, next: Serve) -> Reply | Awaitable[Reply]:  # noqa: A002 - as in Plugin
    """A response that ends in a CNAME, completed with what `next` answers for its target.

    `next` are the later directives, or the whole server (Answers.resolve). The response is returned unchanged where
    there is no later directive, where nobody answers for the target, where the target is an owner already (a loop),
    and where it has more than MAX_CNAMES records.
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
    return then(next(rewritten), partial(_followed, response))


def for_one_client(reply: Reply) -> Reply:
    """The reply for its client alone: nobody keeps it."""
    return reply and reply._replace(reuse=PRIVATE)


def is_end(reply: Reply) -> bool:
    """Whether a reply is how a chain ends for a name that nobody has."""
    return reply is UNHANDLED or reply is UNANSWERED


def is_unanswered(response: Response) -> bool:
    """Whether no directive and no server block answered: the response is the end of a chain, or of a server."""
    if response.error:
        return response.error == UNHANDLED.error
    return response.rcode in {REFUSED, SERVFAIL} and not (response.plugin or response.wire)


def _owners(response: Response) -> set[Labels]:
    return {tuple(map(bytes.lower, labels_of(rrset.owner))) for rrset in response.answer}


def _followed(response: Response, found: Reply) -> Reply:
    if found is None:  # a client that a directive dropped: others may get more
        return response._replace(reuse=PRIVATE)
    if is_end(found):
        return response
    if is_unanswered(found):
        return response._replace(reuse=NEVER.and_then(response.reuse).and_then(found.reuse))
    return joined(response, found, TC)


def joined(response: Response, found: Response, flags: int) -> Response:
    """The CNAMEs of `response` with the answer that was found behind them, and with these of its flags.

    TTLs that count down, and an SOA whose serial changes, are right for one query only.
    """
    if found.wire:
        found = from_wire(found)
    is_steady = found.aged_from_s is None and found.soa is None
    reuse = response.reuse.and_then(found.reuse)
    negative = (found.soa.rrset,) if found.soa is not None else found.authority
    return response._replace(
        rcode=found.rcode,
        flags=response.flags | (found.flags & flags),
        answer=(*response.answer, *found.answer),
        authority=response.authority if found.rcode == NOERROR and found.answer else negative,
        reuse=reuse if is_steady else NEVER.and_then(reuse),
        tallies=(*response.tallies, *found.tallies),
        error=found.error,
    )
