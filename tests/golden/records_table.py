"""Reads tests/golden/records/*.yaml: Kubernetes objects, a `kubernetes` stanza, and what is answered to which question.

A row: `ask` (name and type; relative names end in the case's `origin`), `is` (NOERROR if absent) and the sections as
master-file text. `NODATA zone`, `NXDOMAIN zone` and `SERVFAIL zone` stand for an authority section of that zone's SOA.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec
from decoded_message import Decoded
from yaml_file import yaml_file
from zone_text import zone_rrsets

from kdns.cluster.objects import EndpointSlice, Namespace, Object, Pod, Service, ServiceImport
from kdns.cluster.selectors import parse as parse_selector
from kdns.cluster.state import State
from kdns.corefile.parse import parse
from kdns.dns.rrset import RRset, Soa, Srv
from kdns.dns.types import type_number
from kdns.plugins.directives import configure
from kdns.plugins.sources.kubernetes import plugin as kubernetes
from kdns.plugins.sources.kubernetes.config import KubernetesConfig
from kdns.plugins.sources.kubernetes.options import Options
from kdns.serverblocks.config import ServerConfig

Json = dict[str, Any]
FOLDER = Path(__file__).parent / "records"
SERIAL = 20260101
OWN = "127.0.0.1"
KINDS: dict[str, type[Object]] = {
    "Service": Service,
    "EndpointSlice": EndpointSlice,
    "Pod": Pod,
    "Namespace": Namespace,
    "ServiceImport": ServiceImport,
}
RCODES = {"NODATA": "NOERROR"}


@dataclass(frozen=True, slots=True)
class Row:
    """One question and what must come back; `status` is NOERROR, NODATA or an rcode."""

    name: str
    qtype: int
    status: str
    is_authoritative: bool
    answer: tuple[RRset, ...]
    authority: tuple[RRset, ...]
    additional: tuple[RRset, ...]

    def __str__(self) -> str:
        return f"{self.name} type {self.qtype}"

    @property
    def sections(self) -> tuple[Counter[RRset], ...]:
        return tuple(folded(part) for part in (self.answer, self.authority, self.additional))

    def difference(self, got: Decoded) -> str:
        """What is not as expected, "" if all is; order within a section and the spelling of letters do not count."""
        rcode = RCODES.get(self.status, self.status)
        flags = {"qr", "rd"} | ({"aa"} if self.is_authoritative else set())
        if got.rcode != rcode:
            return f"{self}: rcode {got.rcode}, wanted {rcode}"
        if got.flags != flags:
            return f"{self}: flags {sorted(got.flags)}, wanted {sorted(flags)}"
        have = tuple(folded(part) for part in (got.answer, got.authority, got.additional))
        return "" if have == self.sections else f"{self}: {have}, wanted {self.sections}"


@dataclass(frozen=True, slots=True)
class Case:
    """Objects and a stanza, with the questions asked of them."""

    title: str
    stanza: str
    objects: tuple[Json, ...]
    is_synced: bool
    rows: tuple[Row, ...]

    @property
    def config(self) -> ServerConfig:
        """The server block, on 127.0.0.1 and a free port."""
        (server,) = configure(parse(f".:0 {{\nbind {OWN}\n{self.stanza}\n}}\n"))
        return server

    @property
    def directive(self) -> KubernetesConfig:
        (directive,) = self.config.configs(kubernetes.DIRECTIVE)
        return directive

    @property
    def options(self) -> Options:
        return replace(self.directive.options, own_addresses=(ip_address(OWN).packed,))

    def state(self) -> State:
        state = State()
        for obj in self.selected():
            state.upsert(msgspec.convert(obj, KINDS[obj["kind"]]))
        if self.is_synced:
            state.synced |= set(KINDS.values())
        return state

    def selected(self) -> list[Json]:
        """The objects that an API server lists for this directive's selectors."""
        directive = self.directive
        everything, spaces = parse_selector(directive.labels), parse_selector(directive.namespace_labels)
        return [
            obj
            for obj in self.objects
            if (spaces if obj["kind"] == "Namespace" else everything).matches(obj["metadata"].get("labels"))
        ]


@cache
def cases() -> list[Case]:
    """Every case of every file."""
    found = []
    for path in sorted(FOLDER.glob("*.yaml")):
        table = yaml_file(path)
        unused = table["objects"].keys() - {name for case in table["cases"] for name in case["objects"]}
        assert not unused, f"{path}: nobody asks about {unused}"
        found += [_case(path.stem, case, table["objects"]) for case in table["cases"]]
    return found


def folded(rrsets: Iterable[RRset]) -> Counter[RRset]:
    """Records to compare: one each, names in lower case, and any SOA serial that is a time."""
    return Counter(
        RRset(rrset.owner.lower(), rrset.rtype, rrset.ttl, (_folded(rdata),))
        for rrset in rrsets
        for rdata in rrset.rdata
    )


def _folded(rdata: object) -> Any:
    match rdata:
        case str():
            return rdata.lower()
        case Srv():
            return rdata._replace(target=rdata.target.lower())
        case Soa():
            return replace(rdata, serial=0, mname=rdata.mname.lower(), rname=rdata.rname.lower())
    return rdata


def _case(topic: str, case: Json, objects: dict[str, list[Json]]) -> Case:
    unknown = case.keys() - {"title", "corefile", "objects", "origin", "ttl", "synced", "rows"}
    assert not unknown, f"{topic}: {case['title']}: {unknown}"
    rows = tuple(_row(row, case.get("origin", "."), case.get("ttl", 5)) for row in case["rows"])
    chosen = tuple(obj for name in case["objects"] for obj in objects[name])
    return Case(f"{topic}: {case['title']}", case["corefile"], chosen, case.get("synced", True), rows)


def _row(row: Json, origin: str, ttl_s: int) -> Row:
    unknown = row.keys() - {"ask", "is", "answer", "authority", "additional"}
    assert not unknown, f"{row['ask']}: {unknown}"
    name, qtype = row["ask"].split()
    status, _, zone = row.get("is", "NOERROR").partition(" ")
    assert (status == "NOERROR") == ("is" not in row), row
    soa = f"{zone} {min(ttl_s, 300)} IN SOA ns.dns.{zone} hostmaster.{zone} {SERIAL} 7200 1800 86400 {ttl_s}"
    parts = [row.get("answer", ""), soa if zone else row.get("authority", ""), row.get("additional", "")]
    assert any(parts) or status in {"SERVFAIL", "REFUSED"}, row
    return Row(
        name if name.endswith(".") else f"{name}.{origin}",
        type_number(qtype) if not qtype.startswith("TYPE") else int(qtype[4:]),
        status,
        any(parts),
        *(zone_rrsets(text, origin) if text else () for text in parts),
    )
