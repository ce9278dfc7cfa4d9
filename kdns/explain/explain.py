"""The answer of a server to one question, with its causes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from kdns.answers.chain import Request, WouldAskError, awaited
from kdns.answers.decode import from_wire
from kdns.cluster.readiness import Cause
from kdns.dns.names import Labels, labels_of, text_of
from kdns.dns.query import Query, query_for
from kdns.dns.rrset import RRset
from kdns.dns.types import ANY, NOERROR, rcode_name, type_name
from kdns.dns.zonefile import rdata_text
from kdns.dnsserver.blocks import Server
from kdns.errors import InputError
from kdns.plugins.changes.cache.plugin import NAME as CACHE
from kdns.plugins.sources.kubernetes.causes import ClusterCauses
from kdns.plugins.sources.kubernetes.plugin import Kubernetes
from kdns.values import evolve


class Now(NamedTuple):
    """The time on the clock of requests (`Request.received_s`), and in Unix seconds; 0 where nothing is older."""

    loop_s: float = 0.0
    unix_s: float = 0.0


START: Final = Now()
FORWARDED: Final = "forwarded"
LOOPBACK: Final = "127.0.0.1"


class Record(NamedTuple):
    """One record of an answer: its owner with a dot at the end, TTL in seconds, type, and data in text form."""

    owner: str
    ttl_s: int
    rtype: str
    data: str

    def __str__(self) -> str:
        return f"{self.owner} {self.ttl_s} IN {self.rtype} {self.data}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """One question and its answer. `name` has a dot at its end; `verdict` is NXDOMAIN, NODATA, … or NOERROR.

    NODATA is also the verdict of CNAMEs that lead to no record of the type. `block` is the zone of the server block, ""
    for none, `directive` the one that answered, "" for none. Where it would ask `upstreams`, there is no answer here;
    they would be asked for the name `asked`, "" for `name`: for the target of a CNAME, or what `rewrite` makes of it.
    """

    name: str
    qtype: str
    verdict: str
    records: tuple[Record, ...] = ()
    block: str = ""
    directive: str = ""
    upstreams: tuple[str, ...] = ()
    asked: str = ""
    causes: tuple[Cause, ...] = ()

    @property
    def is_answered(self) -> bool:
        """Whether there are records, or upstreams would be asked."""
        return self.verdict == "NOERROR" or self.is_forwarded

    @property
    def is_forwarded(self) -> bool:
        """`upstreams` may be empty all the same: names of upstreams are not resolved here."""
        return self.verdict == FORWARDED

    @property
    def meant(self) -> str:
        """The object that is asked about, also if the name has a typing error; "" for none."""
        return next((cause.meant for cause in self.causes if cause.meant), "")

    @property
    def command(self) -> str:
        """Of the last cause that has one: it is the nearest to what can be mended."""
        return next((cause.command for cause in reversed(self.causes) if cause.command), "")


async def explained(
    server: Server, name: str, qtype: int, client: str = LOOPBACK, now: Now = START, *, is_brief: bool = False
) -> Explanation:
    """The answer of the chain in a dry run; `is_brief` is of ClusterCauses. InputError for no domain name."""
    try:
        labels = labels_of(name)
        query = query_for(labels, qtype)
    except ValueError as error:
        raise InputError(f"{name!r} is no domain name: {error}") from error
    text, label = text_of(query.labels), type_name(qtype)
    request = Request(query, (client, 0), server.local, "tcp", received_s=now.loop_s, server=server.label)
    request = evolve(request, local_port=server.port, is_dry_run=True)
    block, _ = server.block_of(request)
    if block is None:
        zones = " ".join(block.zone for block in server.blocks)
        cause = Cause(f"no server block has the name; their zones are {zones}")
        return Explanation(text, label, "REFUSED", causes=(cause,))
    causes = tuple(_causes(server, query, now, is_brief=is_brief))
    try:
        reply = await awaited(server.resolve(request))
    except WouldAskError as end:
        asked = text_of(end.labels)
        return Explanation(
            text,
            label,
            FORWARDED,
            block=end.zone,
            directive=end.plugin,
            upstreams=end.upstreams,
            asked="" if asked == text else asked,
            causes=causes,
        )
    if reply is None:
        return Explanation(text, label, "no response", block=block.zone, causes=causes)
    response = from_wire(reply)
    verdict = rcode_name(response.rcode)
    if response.rcode == NOERROR and not any(qtype in {rrset.rtype, ANY} for rrset in response.answer):
        verdict = "NODATA"
    if response.error:
        causes = (Cause(response.error), *causes)
    elif response.plugin == CACHE and response.aged_from_s is not None:
        causes = (Cause(f"`cache` has had this answer for {now.loop_s - response.aged_from_s:.0f} s"), *causes)
    elif response.plugin and response.plugin != "kubernetes":
        causes = (Cause(f"the directive `{response.plugin}` answered"), *causes)
    records = tuple(record for rrset in response.answer for record in _records(rrset))
    return Explanation(text, label, verdict, records, block.zone, response.plugin, causes=causes)


def cluster_plugins(server: Server) -> list[Kubernetes]:
    return [plugin for block in server.blocks for plugin in block.chain.plugins if isinstance(plugin, Kubernetes)]


def _causes(server: Server, query: Query, now: Now, *, is_brief: bool) -> Iterator[Cause]:
    plugins = cluster_plugins(server)

    def causes_of(plugin: Kubernetes, labels: Labels) -> ClusterCauses | None:
        zones = plugin.zones
        zone = zones.zone_of(labels)
        return zone and ClusterCauses(zones.state, zones.options, zone, is_brief=is_brief, now_s=now.unix_s)

    for plugin in plugins:
        if causes := causes_of(plugin, query.labels):
            yield from causes.of(query.labels, query.qtype)
            return
    if plugins:
        names = dict.fromkeys(name for plugin in plugins for name in plugin.zones.options.zones)
        yield Cause(f"the name is outside of the cluster's zones {' '.join(names)}")
        causes = causes_of(plugins[0], labels_of(plugins[0].zones.options.primary_zone))
        if causes and (cause := causes.outside(query.labels, query.qtype)):
            yield cause


def _records(rrset: RRset) -> Iterator[Record]:
    for rdata in rrset.rdata:
        yield Record(rrset.owner, rrset.ttl, type_name(rrset.rtype), rdata_text(rrset.rtype, rdata))
