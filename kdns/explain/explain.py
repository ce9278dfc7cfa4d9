"""The answer of a server to one question, with its causes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from kdns.cluster.readiness import Cause
from kdns.dns.names import Labels, labels_of, text_of
from kdns.dns.query import Query, query_for
from kdns.dns.rrset import RRset
from kdns.dns.types import ANY, NOERROR, rcode_name, type_name
from kdns.dns.zonefile import rdata_text
from kdns.dnsserver.answers.decode import from_wire
from kdns.dnsserver.blocks import Exchange, Server, discard
from kdns.dnsserver.chain import Block, Request
from kdns.errors import InputError
from kdns.plugins.cache.plugin import NAME as CACHE
from kdns.plugins.forward.plugin import Forward
from kdns.plugins.kubernetes.causes import ClusterCauses
from kdns.plugins.kubernetes.plugin import Kubernetes


class Now(NamedTuple):
    """The time on the clock of requests (`Request.received_s`), and in Unix seconds; 0 where nothing is older."""

    loop_s: float = 0.0
    unix_s: float = 0.0


START: Final = Now()


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
    for none, `directive` the one that answered, "" for none. `upstreams` would be asked: then there is no answer here.
    """

    name: str
    qtype: str
    verdict: str
    records: tuple[Record, ...] = ()
    block: str = ""
    directive: str = ""
    upstreams: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()

    @property
    def is_answered(self) -> bool:
        """Whether there are records, or upstreams would be asked."""
        return bool(self.verdict == "NOERROR" or self.upstreams)

    @property
    def command(self) -> str:
        """The command of the last cause that has one: it is the nearest to what can be mended."""
        return next((cause.command for cause in reversed(self.causes) if cause.command), "")


def explained(server: Server, name: str, qtype: int, now: Now = START, *, is_brief: bool = False) -> Explanation:
    """Returns the explanation of a full name; raises InputError for text that is no name.

    The answer is the chain's own if the server has no `exact` answers, and no upstream is asked. `is_brief` is of
    ClusterCauses.
    """
    try:
        labels = labels_of(name)
        query = query_for(labels, qtype)
    except ValueError as error:
        raise InputError(f"{name!r} is no domain name: {error}") from error
    text, label = text_of(query.labels), type_name(qtype)
    block, _ = server.block_of(Request(query))
    if block is None:
        zones = " ".join(one.zone for one in server.blocks)
        cause = Cause(f"no server block has the name; their zones are {zones}")
        return Explanation(text, label, "REFUSED", causes=(cause,))
    causes = tuple(_causes(block, query, now, is_brief=is_brief))
    outcome = server.respond(query.packet, server.table.partition("tcp", 4), ("127.0.0.1", 0), now.loop_s)
    if not isinstance(outcome, Exchange):
        discard(outcome)
        upstreams = tuple(_upstreams(block, query.labels))
        return Explanation(
            text, label, "forwarded", block=block.zone, directive="forward", upstreams=upstreams, causes=causes
        )
    response = outcome.response
    if response is None:
        return Explanation(text, label, "no response", block=block.zone, causes=causes)
    response = from_wire(response) if response.wire else response
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


def _causes(block: Block, query: Query, now: Now, *, is_brief: bool) -> Iterator[Cause]:
    """Yields the causes among the objects, if a `kubernetes` of the block has the zone of the name."""
    zones: list[str] = []
    for plugin in block.chain.plugins:
        if isinstance(plugin, Kubernetes):
            of_plugin = plugin.zones
            zone = of_plugin.zone_of(query.labels)
            zones += of_plugin.options.zones
            if zone is not None:
                found = ClusterCauses(of_plugin.state, of_plugin.options, zone, is_brief=is_brief, now_s=now.unix_s)
                yield from found.of(query.labels, query.qtype)
                return
    if zones:
        yield Cause(f"the name is outside of the cluster's zones {' '.join(zones)}")


def _upstreams(block: Block, labels: Labels) -> Iterator[str]:
    for plugin in block.chain.plugins:
        if isinstance(plugin, Forward):
            for forwarder in plugin.forwarders:
                if forwarder.matches(labels):
                    yield from (member.name for member in forwarder.group.members)
                    return


def _records(rrset: RRset) -> Iterator[Record]:
    for rdata in rrset.rdata:
        yield Record(rrset.owner, rrset.ttl, type_name(rrset.rtype), rdata_text(rrset.rtype, rdata))
