"""The Services of a State as rows of a table, page by page, and one of them in detail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final
from urllib.parse import urlencode

from kdns.cluster.objects import Endpoint, Key, Service
from kdns.cluster.packed import conditions_of
from kdns.cluster.state import State
from kdns.spelling import listed
from kdns.status.page import Cell, Fact, Form, Link, Table
from kdns.status.paths import SERVICE, SERVICES, STATUS

PAGE_ROWS: Final = 100
"""Services of a page, and endpoints that are shown of one."""
CELL_MAX: Final = 6
"""Addresses or ports in a cell."""
MAX_DIGITS: Final = 6
HEADS: Final = ("Service", "Type", "Addresses", "Ports", "Ready", "What is wrong")
ENDPOINT_HEADS: Final = ("Address", "State", "Pod", "Node", "Zone", "For zones")


@dataclass(frozen=True, slots=True)
class Search:
    """Which Services are shown: those with all words of `text`, and if `is_wrong` only those with problems.

    `cluster` is the number of the followed API, of which there is nearly always one.
    """

    text: str = ""
    page: int = 1
    is_wrong: bool = False
    cluster: int = 0

    @classmethod
    def of(cls, text: str, page: str, wrong: str, cluster: str) -> Search:
        """From a query string; text that is no number is page 1 of the first cluster."""
        return cls(text, number_of(page, 1), bool(wrong), number_of(cluster, 0))

    def path(self, page: int = 1, *, is_wrong: bool | None = None) -> str:
        """The path of another page of the same Services, or of those with problems or without."""
        is_wrong = self.is_wrong if is_wrong is None else is_wrong
        parameters = {"filter": self.text, "page": page if page > 1 else "", **self._fixed(is_wrong=is_wrong)}
        query = urlencode({name: value for name, value in parameters.items() if value})
        return f"{SERVICES}?{query}" if query else SERVICES

    def form(self) -> Form:
        fields = (("filter", "Name, type, address or port", "shop/ headless", self.text),)
        links = (
            Link("All", self.path(is_wrong=False), not self.is_wrong),
            Link("With problems", self.path(is_wrong=True), self.is_wrong),
        )
        hidden = tuple((name, value) for name, value in self._fixed(is_wrong=self.is_wrong).items() if value)
        return Form(SERVICES, "Which Services?", "Filter", fields, links=links, hidden=hidden)

    def _fixed(self, *, is_wrong: bool) -> dict[str, str]:
        return {"problems": "only" if is_wrong else "", "cluster": str(self.cluster or "")}


def number_of(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else default


def matches(service: Service, words: Sequence[str]) -> bool:
    """Whether each word, in lower case, is in the name, type, an address or a port."""
    if not words:
        return True
    text = " ".join(("/".join(service.key), type_text(service), *addresses(service), *ports(service))).lower()
    return all(word in text for word in words)


def service_path(key: Key, cluster: int = 0) -> str:
    number = {"cluster": cluster} if cluster else {}
    return f"{SERVICE}?{urlencode({'namespace': key[0], 'name': key[1], **number})}"


def service_link(key: Key, cluster: int = 0) -> Link:
    return Link("/".join(key), service_path(key, cluster))


def row(state: State, service: Service, wrong: str, cluster: int = 0) -> tuple[Cell, ...]:
    return (
        service_link(service.key, cluster),
        type_text(service),
        listed(addresses(service), CELL_MAX),
        listed(ports(service), CELL_MAX),
        ready_text(state, service),
        wrong,
    )


def table(search: Search, rows: Sequence[tuple[Cell, ...]], page: int, count: int) -> Table:
    """A page of `count` Services; `page` is at most the last one."""
    first = (page - 1) * PAGE_ROWS + 1
    caption = f"Services {first:,} to {first + len(rows) - 1:,} of {count:,}" if len(rows) < count else "Services"
    empty = "No Service is like that." if search.text or search.is_wrong else "There are no Services."
    return Table(caption, HEADS, rows, empty, (*_pager(search, page, last_page(count)),))


def last_page(count: int) -> int:
    return max(-(-count // PAGE_ROWS), 1)


def _pager(search: Search, page: int, last: int) -> Iterator[Link]:
    """The first and the last page, those around this one, and words for the next and the one before."""
    if last == 1:
        return
    if page > 1:
        yield Link("Previous", search.path(page - 1))
    for number in sorted({1, page - 1, page, page + 1, last} & {*range(1, last + 1)}):
        yield Link(f"{number:,}", search.path(number), number == page)
    if page < last:
        yield Link("Next", search.path(page + 1))


def type_text(service: Service) -> str:
    return "headless" if service.is_headless else service.spec.type


def addresses(service: Service) -> tuple[str, ...]:
    """What leads to a Service, or the name that an ExternalName leads to."""
    if service.is_external_name:
        return (service.spec.external_name,)
    names = (entry.hostname for entry in service.ingress if entry.hostname)
    return (*service.virtual_ips, *service.external_ips, *names)


def ports(service: Service) -> tuple[str, ...]:
    """As kubectl writes them: 80/TCP, with a node port 80:30080/TCP."""
    return tuple(
        f"{port.port}{f':{port.node_port}' if port.node_port else ''}/{port.protocol}" for port in service.ports
    )


def ready_text(state: State, service: Service) -> str:
    """Ready endpoints of all, by family where the families differ."""
    if service.is_external_name:
        return ""
    counts: dict[str, tuple[int, int]] = {}
    for endpoint_slice in state.slices_of(service.key):
        conditions = conditions_of(endpoint_slice)
        ready, every = counts.get(endpoint_slice.address_type, (0, 0))
        ready += sum(condition is None or condition.ready is not False for condition in conditions)
        counts[endpoint_slice.address_type] = ready, every + len(conditions)
    if len({*counts.values()}) > 1:
        return ", ".join(f"{family} {ready} of {every}" for family, (ready, every) in sorted(counts.items()))
    ready, every = next(iter(counts.values()), (0, 0))
    return f"{ready} of {every}"


def facts(state: State, service: Service) -> Iterator[Fact]:
    spec = service.spec
    names = [
        f"{port.name} {text}" if port.name else text for port, text in zip(service.ports, ports(service), strict=True)
    ]
    shown = {
        "Type": type_text(service),
        "Leads to" if service.is_external_name else "Addresses": listed(addresses(service)),
        "Ports": listed(names),
        "Ready endpoints": ready_text(state, service),
        "External traffic policy": spec.external_traffic_policy,
        "Internal traffic policy": spec.internal_traffic_policy or "",
        "Session affinity": spec.session_affinity,
        "Source ranges": listed(spec.load_balancer_source_ranges or ()),
        "Created": service.metadata.creation_timestamp or "",
    }
    defaults = {"Cluster", "None", ""}
    return (Fact(label, value) for label, value in shown.items() if value not in defaults)


def endpoints_table(state: State, key: Key) -> Table:
    """Without columns that no endpoint has."""
    slices = state.slices_of(key)
    count = sum(len(endpoint_slice.endpoints or ()) for endpoint_slice in slices)
    endpoints = (endpoint for endpoint_slice in slices for endpoint in endpoint_slice.endpoints or ())
    rows = [_endpoint_row(endpoint) for endpoint in islice(endpoints, PAGE_ROWS)]
    columns = [column for column in zip(ENDPOINT_HEADS, *rows, strict=True) if any(column[1:])]
    heads, *shown = zip(*columns, strict=True) if rows else [ENDPOINT_HEADS]
    caption = f"{len(rows)} of {count:,} endpoints" if len(rows) < count else "Endpoints"
    return Table(caption, heads, shown, "It has no endpoints.")


def _endpoint_row(endpoint: Endpoint) -> tuple[str, ...]:
    zones = endpoint.hints.for_zones or () if endpoint.hints else ()
    return (
        ", ".join(endpoint.addresses),
        _condition(endpoint),
        endpoint.target_ref.name if endpoint.target_ref else "",
        endpoint.node_name or "",
        endpoint.zone or "",
        ", ".join(zone.name for zone in zones),
    )


def _condition(endpoint: Endpoint) -> str:
    conditions = endpoint.conditions
    if endpoint.is_ready:
        return "ready"
    if conditions and conditions.terminating:
        return "terminating, still serves" if conditions.serving else "terminating"
    return "not ready"


def site_links(current: str) -> tuple[Link, ...]:
    pages = (("Status", STATUS), ("Services", SERVICES))
    return tuple(Link(text, path, path == current) for text, path in pages)
