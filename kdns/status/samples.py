"""What sampled queries tell: frequent names and clients, and names that a search list multiplies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kdns.dns.names import text_of
from kdns.dns.query import Query, read_query
from kdns.dns.types import NXDOMAIN, rcode_name, type_name
from kdns.status.toplist import TopList

RCODE: Final = 0x0F
STORM_SHARE: Final = 0.1
"""The part of all queries from which on a search list's failures are a storm."""


class Sample(NamedTuple):
    """One query; its name has a dot at the end, and `rcode` is "" if it had no response."""

    client: str
    name: str
    qtype: str
    rcode: str


class Storm(NamedTuple):
    """A name whose search list fails: the name as it is written, its part of all queries, and the busiest client."""

    name: str
    share: float
    client: str


def sample_of(packet: bytes, client: str, wire: bytes) -> Sample | None:
    query = read_query(packet)
    if not isinstance(query, Query):
        return None
    rcode = rcode_name(wire[3] & RCODE) if wire else ""
    return Sample(client, text_of(query.labels), type_name(query.qtype), rcode)


def searched(name: str, zones: Iterable[str], is_namespace: Callable[[str], bool]) -> str:
    """The name of which a search list made this one, if it has a dot inside, or "". `zones` end without a dot."""
    for zone in zones:
        if not name.endswith(f".{zone}."):
            continue
        front = name.removesuffix(f".{zone}.")
        if front.endswith(".svc"):
            front = front.removesuffix(".svc")
            written, _, namespace = front.rpartition(".")
            front = written if is_namespace(namespace) else front
        return f"{front}." if "." in front else ""
    return ""


@dataclass(slots=True)
class Samples:
    """The frequent values among the samples, each with the weight of the queries that it stands for."""

    names: TopList[tuple[str, str, str]] = field(default_factory=TopList)
    clients: TopList[str] = field(default_factory=TopList)
    searches: TopList[tuple[str, str]] = field(default_factory=TopList)

    def add(
        self, samples: Iterable[Sample], weight: float, zones: Collection[str], is_namespace: Callable[[str], bool]
    ) -> None:
        for sample in samples:
            self.names.add((sample.name, sample.qtype, sample.rcode), weight)
            self.clients.add(sample.client, weight)
            if sample.rcode == _NXDOMAIN and (written := searched(sample.name, zones, is_namespace)):
                self.searches.add((written, sample.client), weight)

    def fade(self, factor: float) -> None:
        for counted in (self.names, self.clients, self.searches):
            counted.fade(factor)

    def storms(self) -> Iterator[Storm]:
        """The names whose search lists make a notable part of all queries, the largest part first."""
        parts: dict[str, float] = {}
        busiest: dict[str, str] = {}
        for entry in self.searches.most(len(self.searches)):
            name, client = entry.value
            parts[name] = parts.get(name, 0.0) + entry.weight
            busiest.setdefault(name, client)
        total = self.clients.total
        for name, weight in sorted(parts.items(), key=lambda pair: -pair[1]):
            if total and weight / total >= STORM_SHARE:
                yield Storm(name, weight / total, busiest[name])


_NXDOMAIN: Final = rcode_name(NXDOMAIN)
