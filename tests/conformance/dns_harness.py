"""Runs recorded DNS cases through whole packets, and compares as the records' README says."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import harness
import msgspec
from configured import configured
from dns_chain import FakeWorld
from dns_chain import server_of as one_block
from records_table import KINDS, Json
from zone_text import zone_rrsets

from kdns.answers.chain import Plugin, Reply, Request, Serve
from kdns.answers.response import Response
from kdns.cluster.objects import Namespace
from kdns.cluster.selectors import parse as parse_selector
from kdns.cluster.state import State
from kdns.dns.names import is_below, labels_of
from kdns.dns.query import AA, TC
from kdns.dns.types import CNAME, NOERROR, NS, NXDOMAIN
from kdns.dnsserver.blocks import Server
from kdns.plugins.changes.autopath import Autopath, AutopathConfig
from kdns.plugins.sources.k8s_external import External, ExternalConfig
from kdns.plugins.sources.kubernetes import plugin as kubernetes
from kdns.plugins.sources.kubernetes.config import KubernetesConfig
from kdns.plugins.sources.kubernetes.plugin import Kubernetes


def state_of(objects: Iterable[Json], *, labels: str = "", namespace_labels: str = "", synced: bool = True) -> State:
    """A state that holds these objects, selected as the API server would."""
    state = State()
    for obj in objects if synced else ():
        kind = KINDS.get(obj["kind"])
        selector = parse_selector(namespace_labels if kind is Namespace else labels)
        if kind and selector.matches(obj["metadata"].get("labels") or {}):
            state.upsert(msgspec.convert(obj, kind))
    if synced:
        state.synced |= set(KINDS.values())
    return state


def directive_of(stanza: str) -> KubernetesConfig:
    """The `kubernetes` directive as kdns reads it from a Corefile."""
    (server,) = configured(f".:53 {{\n{stanza}\n}}\n")
    (directive,) = server.configs(kubernetes.DIRECTIVE)
    return directive


class ZoneFile(Plugin):
    """The `file` directive, as far as the recorded cases need one behind `kubernetes`."""

    def __init__(self, origin: str, text: str, *, truncated: bool = False, authority: bool = True) -> None:
        self.origin = labels_of(origin)
        self.rrsets = zone_rrsets(text, origin)
        self.truncated = truncated
        self.authority = authority

    async def serve(self, request: Request, next: Serve) -> Reply:  # noqa: A002 - as in Plugin
        """Waits, as a forwarder does, and answers from the zone's records."""
        await asyncio.sleep(0)
        query = request.query
        if not is_below(query.labels, self.origin):
            reply = next(request)
            return reply if reply is None or isinstance(reply, Response) else await reply
        here = [rrset for rrset in self.rrsets if labels_of(rrset.owner) == query.labels]
        found = tuple(rrset for rrset in here if rrset.rtype in {query.qtype, CNAME})
        servers = tuple(r for r in self.rrsets if r.rtype == NS) if self.authority else ()
        flags = AA | (TC if self.truncated else 0)
        return Response(NOERROR if found else NXDOMAIN, flags, found, servers)


def server_of(
    state: State,
    directive: KubernetesConfig,
    *,
    own: Iterable[str] = (),
    behind: tuple[Plugin, ...] = (),
    external: ExternalConfig | None = None,
    autopath: bool = False,
) -> Server:
    """A server with one block for everything, with `autopath` and `k8s_external` in front if a case has them."""
    setup = FakeWorld(state=state)
    options = replace(directive.options, own_addresses=tuple(ip_address(ip).packed for ip in own))
    cluster = Kubernetes(state, options, setup, directive.fallthrough)
    front: list[Plugin] = [Autopath(AutopathConfig((".",)), setup)] if autopath else []
    front += [External(external, setup)] if external else []
    setup.built = (*front, cluster, *behind)
    server = one_block(*setup.built)
    setup.servers.append(server)
    return server


def difference(case: Mapping[str, Any], wire: bytes) -> str:
    """What is not as recorded, "" if all is; no rcode is recorded where no response is."""
    if case["rcode"] is None or not wire:
        return "" if case["rcode"] is None and not wire else f"{len(wire)} bytes"
    sections = dict(zip(harness.SECTIONS, (case["answer"], case["ns"], case["extra"]), strict=True))
    flags = case["flags"] if "flags" in case else case["observed"]["flags"]
    expected = {"rcode": case["rcode"], "flags": flags, **sections}
    return harness.difference(expected, harness.shown(wire), with_flags=True)
