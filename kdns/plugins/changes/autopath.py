"""autopath [ZONES…] RESOLV-CONF | @kubernetes: tries a client's search path in the server, so that one query is enough.

A client with a search path first queries `name` as `name.FIRST`. If that does not exist, autopath tries each further
element of the path, then the name alone; the first that exists is the answer, after a CNAME. The path is from a file,
for all clients, or that of the client's pod, found by its address.

With @kubernetes the answer depends on the client, so it is not in the answer table. Each name that is tried passes
`acl` and `cache`, which are behind this directive.
Differs: an address that pods of several namespaces share, as with hostNetwork, has no path; CoreDNS takes the first
pod's.
Differs: coredns_autopath_success_total counts answers under another name; CoreDNS also counts names that exist as
queried.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from kdns.answers.chain import Plugin, Reply, Request, Sees, Serve, ServeResult, awaited, is_unanswered, then
from kdns.answers.decode import from_wire
from kdns.answers.response import PRIVATE, Response, Reuse
from kdns.corefile.address import all_zones
from kdns.corefile.lines import Stanza
from kdns.dns.names import Labels, ZoneSet, is_below, labels_of, lowered, text_of
from kdns.dns.rrset import RRset
from kdns.dns.types import CNAME, IN, NXDOMAIN, TRANSFERS
from kdns.net import packed
from kdns.plugins.sources.kubernetes.options import PodMode
from kdns.plugins.sources.kubernetes.plugin import Kubernetes
from kdns.serverblocks.directive import Directive, World
from kdns.serverblocks.stanza import configured, count
from kdns.values import evolve

NAME: Final = "autopath"
USAGE: Final = "autopath [ZONES...] RESOLV-CONF|@kubernetes"
OWN_RESOLV_CONF: Final = "/etc/resolv.conf"
REREAD_S: Final = 60.0
MAX_ELEMENTS: Final = 32
"""The longest search path (glibc has no limit, older versions six)."""

SearchPath = tuple[Labels, ...]


@dataclass(frozen=True, slots=True)
class AutopathConfig:
    """The search path is that of the file `path`, with "" that of the client's pod."""

    zones: tuple[str, ...]
    path: str = ""


def parse(stanza: Stanza, zones: tuple[str, ...]) -> AutopathConfig:
    count(stanza, USAGE)
    *named, source = stanza.args
    if not source.text or (source.text.startswith("@") and source.text != "@kubernetes"):
        raise source.expected("the path of a resolv.conf file, or @kubernetes for the search paths of Pods")
    path = "" if source.text == "@kubernetes" else source.text
    return configured(AutopathConfig(all_zones(named) or zones, path), stanza, {})


def search_of(text: str) -> SearchPath:
    """The last `search` or `domain` of a resolv.conf(5), without words that are not names."""
    words: list[str] = []
    for line in text.splitlines():
        keyword, *values = line.split() or [""]
        if keyword in {"search", "domain"}:
            words = values if keyword == "search" else values[:1]
    names: list[Labels] = []
    for word in words:
        try:
            names.append(lowered(labels_of(word)))
        except ValueError:
            continue
    return tuple(dict.fromkeys(labels for labels in names if labels and b"" not in labels))[:MAX_ELEMENTS]


class Autopath(Plugin):
    """Tries the search path for a missing name below the path's first element."""

    sees = Sees.PACKET

    def __init__(self, config: AutopathConfig, world: World) -> None:
        self._world = world
        self._zones = ZoneSet(config.zones)
        self._of_pods = not config.path
        self._search: SearchPath = ()
        self._cluster: Kubernetes | None = None
        self._successes = world.counters(
            "coredns_autopath_success", "Queries answered with another name of the search path.", ("server",)
        )
        every_s = REREAD_S if self._of_pods else 0.0
        world.watch_file("resolv.conf", config.path or OWN_RESOLV_CONF, every_s, self._read, is_optional=self._of_pods)
        if self._of_pods:
            world.spawn(self.check)

    def _read(self, text: str) -> None:
        self._search = search_of(text)

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        query = request.query
        if query.qclass != IN or query.qtype in TRANSFERS or query.labels not in self._zones:
            return next(request)
        path = self._path_of(query.labels, request.client[0])
        if path is None:
            return next(request)
        if not path or not is_below(query.labels, path[0]) or query.labels == path[0]:
            if not self._of_pods:
                return next(request)
            path = ()
        return then(next(request), partial(self._after_first, request, path, next))

    def _found_cluster(self) -> Kubernetes | None:
        if self._cluster is None:
            plugins = self._world.plugins()
            self._cluster = next((plugin for plugin in plugins if isinstance(plugin, Kubernetes)), None)
        return self._cluster

    def _path_of(self, labels: Labels, client: str) -> SearchPath | None:
        """() for an unknown path; None for names that no Pod queries first, which are below `namespace.svc.ZONE`."""
        if not self._of_pods:
            return self._search
        cluster = self._found_cluster()
        zones = cluster.zones if cluster else None
        zone = zones.zone_of(labels) if zones and zones.options.pods is PodMode.VERIFIED else None
        relative = labels[: len(labels) - zone.depth] if zone else ()
        if zones is None or zone is None or len(relative) < 3 or relative[-1] != b"svc":
            return None
        namespaces = {key[0] for key in zones.state.pods_by_ip[packed(client)]}
        if len(namespaces) != 1:
            return ()
        namespace = namespaces.pop().encode("ascii", "replace")
        own = ((namespace, b"svc", *zone.labels), (b"svc", *zone.labels), zone.labels)
        return tuple(dict.fromkeys(name for name in (*own, *self._search) if name))

    def _after_first(
        self,
        request: Request,
        path: SearchPath,
        next: Serve,  # noqa: A002 - as in Plugin
        reply: Reply,
    ) -> ServeResult:
        """If the name exists, its reply is the same for all clients, unlike those of the search path."""
        if reply is None or not _is_missing(reply):
            return reply
        if not path:
            return evolve(reply, reuse=PRIVATE)
        return self._walk(request, reply, path, next)

    async def _walk(self, request: Request, first: Response, path: SearchPath, next: Serve) -> Reply:  # noqa: A002 - as in Plugin
        base = request.query.labels[: len(request.query.labels) - len(path[0])]
        reuse = first.reuse
        for element in (*path[1:], ()):
            try:
                attempt = request.about((*base, *element))
            except ValueError:  # a name that is too long does not exist
                continue
            reply = await awaited(next(attempt))
            if reply is None:
                return None
            reuse = reuse.and_then(reply.reuse)
            if not _is_missing(reply):
                return self._answer(request, reply, (*base, *element), reuse)
        return evolve(first, reuse=self._reuse(reuse))

    def _answer(self, request: Request, reply: Response, labels: Labels, reuse: Reuse) -> Response:
        reply = from_wire(reply)
        answer = reply.answer
        if answer:
            alias = RRset(request.query.name, CNAME, answer[0].ttl, (text_of(labels),))
            answer = (alias, *(rrset for rrset in answer if rrset.rtype != CNAME or rrset.owner != alias.owner))
        authority = (reply.soa.rrset, *reply.authority) if reply.soa else reply.authority
        tally = self._successes.tally(request.server)
        return evolve(
            reply,
            answer=answer,
            authority=authority,
            soa=None,
            zone="",
            reuse=self._reuse(reuse),
            tallies=(*reply.tallies, tally),
            plugin=NAME if request.is_dry_run else reply.plugin,
        )

    def _reuse(self, reuse: Reuse) -> Reuse:
        return PRIVATE if self._of_pods else reuse

    async def check(self) -> None:
        cluster = self._found_cluster()
        if cluster is None or cluster.zones.options.pods is not PodMode.VERIFIED:
            reason = "`kubernetes` with `pods verified` is not in its block"
            self._world.log("error", "directive without effect", directive=NAME, reason=reason)


def _is_missing(reply: Response) -> bool:
    if reply.wire:
        return reply.wire[3] & 15 == NXDOMAIN
    return reply.rcode == NXDOMAIN or is_unanswered(reply)


DIRECTIVE: Final = Directive(USAGE, AutopathConfig, Autopath, parse=parse)
