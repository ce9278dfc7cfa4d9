"""Runs recorded DNS cases through whole packets, and compares as the records' README says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kdns.aio.clusters import options_of
from kdns.cluster.objects import EndpointSlice, Namespace, Object, Pod, Service
from kdns.cluster.selectors import parse as parse_selector
from kdns.cluster.state import State
from kdns.corefile.parse import parse
from kdns.plugins.cluster_zones import ClusterZones, fallthrough_labels
from kdns.plugins.kubernetes import KubernetesConfig
from kdns.plugins.registry import configure
from kdns.plugins.server import Block, Handler, Reply, Server
from kdns.records.names import labels_of
from kdns.records.rrset import CNAME, NS, RRset, Soa, Srv
from kdns.records.zone import Status
from kdns.wire.message import Decoded, decode, query, type_number, zone_rrsets

FOLDER = Path(__file__).parents[2].parent / "shared" / "conformance"
KINDS: dict[str, type[Object]] = {
    "Service": Service,
    "EndpointSlice": EndpointSlice,
    "Pod": Pod,
    "Namespace": Namespace,
}
ANY_TTL = 303
Json = dict[str, Any]


def recorded(name: str) -> Json:
    """A file of recorded cases; skips the test where the folder is absent."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"the recorded cases are not here: {path}")
    content: Json = json.loads(path.read_text())
    return content


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
    (server,) = configure(parse(f".:53 {{\n{stanza}\n}}\n"))
    assert server.kubernetes
    return server.kubernetes


class ZoneFile:
    """The `file` directive, as far as the recorded cases need one behind `kubernetes`."""

    def __init__(self, origin: str, text: str, *, truncated: bool = False, authority: bool = True) -> None:
        self.origin = labels_of(origin)
        self.rrsets = zone_rrsets(text, origin)
        self.truncated = truncated
        self.authority = authority

    async def respond(self, name: str, qtype: int) -> Reply | None:
        labels = labels_of(name)
        if labels[-len(self.origin) :] != self.origin:
            return None
        here = [rrset for rrset in self.rrsets if rrset.owner == name]
        found = tuple(rrset for rrset in here if rrset.rtype in {qtype, CNAME})
        servers = tuple(r for r in self.rrsets if r.rtype == NS) if self.authority else ()
        return Reply(Status.SUCCESS if found else Status.NXDOMAIN, found, servers, (), self.truncated)


async def ask(server: Server, name: str, qtype: str) -> Decoded | None:
    """The server's response to one query of this name and type, over UDP with a large buffer."""
    response = server.respond(query(name, type_number(qtype), payload_bytes=4096), "udp", 4)
    if response is not None and not isinstance(response, bytes):
        response = await response
    return decode(response) if response else None


def server_of(
    state: State, directive: KubernetesConfig, *, own: Iterable[str] = (), behind: tuple[Handler, ...] = ()
) -> Server:
    """A server with one block for everything."""
    options = options_of(directive, tuple(ip_address(ip).packed for ip in own))
    cluster = ClusterZones(state, options, fallthrough=fallthrough_labels(directive.fallthrough))
    return Server("dns://:53", (Block(".", cluster, behind),))


def text_of(rrset: RRset) -> str:
    """One record as the recorded cases write it, its rdata in lower case and an SOA without its numbers."""
    (rdata,) = rrset.rdata
    match rdata:
        case Srv():
            text = f"SRV {rdata.priority} {rdata.weight} {rdata.port} {rdata.target.lower()}"
        case Soa():
            text = f"SOA {rdata.mname.lower()}"
        case bytes() if rrset.rtype in {1, 28}:
            text = f"{'A' if rrset.rtype == 1 else 'AAAA'} {ip_address(rdata)}"
        case bytes():
            text = f'TXT "{rdata.decode()}"'
        case _:
            text = f"{ {2: 'NS', 5: 'CNAME', 12: 'PTR'}[rrset.rtype] } {str(rdata).lower()}"
    return f"{rrset.owner} {text}"


def expected_text(line: str) -> tuple[str, int]:
    """A recorded line in the same form, and its TTL."""
    owner, ttl, _class, rtype, *rest = line.split(None, 4)
    rdata = rest[0]
    if rtype == "SOA":
        rdata = rdata.split()[0]
    if rtype != "TXT":
        rdata = rdata.lower()
    return f"{owner} {rtype} {rdata}", int(ttl)


def difference(case: Mapping[str, Any], got: Decoded | None) -> str:
    """What is not as recorded, "" if all is."""
    if got is None:
        return "no response" if case["rcode"] is not None else ""
    if got.rcode != case["rcode"]:
        return f"rcode {got.rcode}, recorded {case['rcode']}"
    for section, records in (("answer", got.answer), ("ns", got.authority), ("extra", got.additional)):
        wanted = [expected_text(line) for line in case[section]]
        have = Counter(text_of(record) for record in records)
        if have != Counter(text for text, _ in wanted):
            return f"{section} {sorted(have.elements())}, recorded {sorted(text for text, _ in wanted)}"
        ttls = {text: ttl for text, ttl in wanted if ttl != ANY_TTL}
        for record in records:
            if record.ttl != ttls.get(text_of(record), record.ttl):
                return f"{section} TTL {record.ttl}, recorded {ttls[text_of(record)]}"
    flags = set(case["flags"] if "flags" in case else case["observed"]["flags"])
    return "" if flags == got.flags else f"flags {sorted(got.flags)}, recorded {sorted(flags)}"
