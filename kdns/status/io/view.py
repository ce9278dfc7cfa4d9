"""What a DNS server's page shows, from the server itself."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Sequence
from math import isinf
from typing import Final

import kdns
from kdns.dnsserver.io.burst.event_loop import is_compiled
from kdns.dnsserver.io.server import DnsServer
from kdns.net import join_host_port, packed
from kdns.plugins.sources.kubernetes.plugin import Kubernetes
from kdns.plugins.sources.kubernetes.zone import Zones
from kdns.status.history import EVERY_S, History
from kdns.status.io.diagnoses import DOMAIN, Followed
from kdns.status.io.watched import Watched, utc, watch_problems, watch_table
from kdns.status.numbers import COUNTED, Numbers
from kdns.status.page import Advice, Fact, Form, Section, Table, View, age, percent, rate
from kdns.status.paths import STATUS
from kdns.status.plot import Plot, plot
from kdns.status.samples import Samples
from kdns.status.services import site_links

SHOWN: Final = 15
LEAST: Final = 0.005
DURATION: Final = "coredns_dns_request_duration_seconds"
UPSTREAM: Final = "coredns_proxy_request_duration_seconds"


def view_of(
    server: DnsServer,
    samples: Samples,
    history: History,
    numbers: Numbers,
    before: Numbers | None,
    forms: Sequence[Form],
    problems: Sequence[Advice],
) -> View:
    """`before` are the numbers of some seconds ago, `problems` are of the clusters' objects."""
    now_s = time.time()
    sections = (
        _served(server, numbers),
        Section("Queries", facts=(*_rates(history, numbers, before),), plots=(*_plots(history),)),
        _frequent(server, samples),
        _upstreams(numbers, before),
        _memory(server, numbers),
        _reloads(server, now_s),
    )
    own = map(Advice, _problems(server))
    return View("kdns", utc(now_s), [*own, *problems], forms, sections, site_links(STATUS))


def running_problems(server: DnsServer, samples: Samples) -> list[Advice]:
    """What objects do not show."""
    return [*map(Advice, _problems(server)), *_storms(server, samples)]


def _problems(server: DnsServer) -> Iterator[str]:
    if unready := server.unready():
        yield f"Not ready: {', '.join(unready)}."
    clusters = watched(server)
    for cluster, api in zip(server.clusters, clusters, strict=True):
        if not cluster.is_synced:
            yield f"The API {api.name} has not been listed: answers about its names are SERVFAIL."
    yield from watch_problems(clusters)
    if server.reloads and server.reloads[-1].error:
        yield f"The Corefile was not reloaded, and the one before is in use: {server.reloads[-1].error}"


def _served(server: DnsServer, numbers: Numbers) -> Section:
    started_s = numbers.sum("process_start_time_seconds")
    way = "compiled code" if is_compiled() else "Python"
    addresses = (f"{scheme}://{join_host_port(host, port)}" for scheme, host, port in server.listened)
    facts = (
        Fact("Version", kdns.__version__),
        Fact("Python", platform.python_version()),
        Fact("Up for", age(time.time() - started_s)),
        Fact("UDP answered by", way),
        Fact("Listens on", ", ".join(addresses)),
    )
    blocks = [
        (block.zone, block.server, block.view, " ".join(row.name for row in block.config.rows))
        for block in server.enabled
    ]
    tables = (
        Table("Server blocks", ("Zone", "Server", "View", "Directives"), blocks),
        watch_table(watched(server)),
    )
    return Section("Served", facts, tables=tables)


def watched(server: DnsServer) -> list[Watched]:
    return [Watched(cluster.spec.source, cluster.state, cluster.stats) for cluster in server.clusters]


def followed(server: DnsServer) -> list[Followed]:
    """The clusters, each with the domain of a server block that has it."""
    domains = {id(zones.state): zones.options.primary_zone.rstrip(".") for zones in cluster_zones(server)}
    return [
        Followed(
            cluster.state,
            domains.get(id(cluster.state), DOMAIN),
            number,
            is_partial=bool(cluster.spec.scope.labels or cluster.spec.scope.namespace_labels),
        )
        for number, cluster in enumerate(server.clusters)
    ]


def cluster_zones(server: DnsServer) -> list[Zones]:
    return [
        plugin.zones
        for address_server in server.servers
        for block in address_server.blocks
        for plugin in block.chain.plugins
        if isinstance(plugin, Kubernetes)
    ]


def _rates(history: History, numbers: Numbers, before: Numbers | None) -> Iterator[Fact]:
    lines = history.lines("protocol")
    yield Fact("Queries", rate(sum(line.last for line in lines)))
    yield Fact("Since the start", f"{numbers.sum('coredns_dns_requests_total'):,.0f}")
    for part in (0.5, 0.99):
        bound = numbers.quantile(DURATION, part, before)
        yield Fact(f"{part:.0%} answered within", _time(bound))
    yield Fact("Dropped", f"{numbers.sum('kdns_dns_shed_queries_total'):,.0f}")


def _time(seconds: float) -> str:
    return "more than the largest bucket" if isinf(seconds) else age(seconds) if seconds else "-"


def _plots(history: History) -> Iterator[Plot]:
    last = f"the last {age(max(history.covered_s, EVERY_S))}"
    titles = {"rcode": "Responses by code", "directive": "By directive", "type": "Queries by type"}
    for kind in COUNTED:
        if kind in titles:
            yield plot(f"{titles[kind]}, {last}", history.lines(kind))


def _frequent(server: DnsServer, samples: Samples) -> Section:
    total = samples.clients.total
    names = [
        (*entry.value[:2], entry.value[2] or "none", percent(entry.weight, total))
        for entry in samples.names.most(SHOWN)
        if entry.weight >= total * LEAST
    ]
    clients = [
        (entry.value, _pod_of(server, entry.value), percent(entry.weight, total))
        for entry in samples.clients.most(SHOWN)
        if entry.weight >= total * LEAST
    ]
    tables = (
        Table(
            "Names",
            ("Name", "Type", "Response", "Part"),
            names,
            "No query over UDP was seen yet, or none stands out.",
        ),
        Table("Clients", ("Address", "Pod", "Part"), clients),
    )
    return Section("Who asks for what", storms=_storms(server, samples), tables=tables)


def _storms(server: DnsServer, samples: Samples) -> list[Advice]:
    return [
        Advice(
            f"{storm.share:.0%} of the queries are names that do not exist, "
            f"which search lists make of {storm.name[:-1]}. "
            f"The busiest client is {_pod_of(server, storm.client) or storm.client}.",
            f"Write the name with a dot at its end, {storm.name}, or lower ndots in the dnsConfig of its clients. "
            "The directive autopath answers such names at the first query.",
        )
        for storm in samples.storms()
    ]


def _pod_of(server: DnsServer, client: str) -> str:
    keys = (key for cluster in server.clusters for key in cluster.state.pods_by_ip[packed(client)])
    return "/".join(next(keys, ()))


def _upstreams(numbers: Numbers, before: Numbers | None) -> Section:
    rows = []
    broken = numbers.by("coredns_proxy_healthcheck_failures_total", "to")
    for to in numbers.by(f"{UPSTREAM}_count", "to"):
        own = numbers.only(f"{UPSTREAM}_bucket", "to", to)
        old = before.only(f"{UPSTREAM}_bucket", "to", to) if before else None
        rows.append(
            (
                to,
                f"{numbers.by(f'{UPSTREAM}_count', 'to')[to]:,.0f}",
                _time(own.quantile(UPSTREAM, 0.5, old)),
                _time(own.quantile(UPSTREAM, 0.99, old)),
                f"{broken.get(to, 0):,.0f}",
            )
        )
    heads = ("Upstream", "Answers", "50% within", "99% within", "Failed health checks")
    return Section("Upstreams", tables=(Table("Other servers that are asked", heads, rows, "None was asked yet."),))


def _memory(server: DnsServer, numbers: Numbers) -> Section:
    generations = server.generations
    entries = numbers.by("coredns_cache_entries", "type")
    hits, misses = numbers.sum("coredns_cache_hits_total"), numbers.sum("coredns_cache_misses_total")
    facts = [
        Fact("Memory", f"{numbers.sum('process_resident_memory_bytes') / 2**20:,.0f} MiB"),
        Fact("Answers ready", f"{numbers.sum('kdns_answers'):,.0f}"),
        Fact("Answer table", f"{percent(generations.size_bytes, generations.max_bytes)} full"),
    ]
    if entries:
        facts += [Fact(f"Cache, {kind}", f"{count:,.0f}") for kind, count in sorted(entries.items())]
        facts.append(Fact("Found in the cache", percent(hits, hits + misses)))
    return Section("Memory", facts)


def _reloads(server: DnsServer, now_s: float) -> Section:
    rows = [
        (utc(reload.at_s), f"{age(now_s - reload.at_s)} ago", reload.error or "done")
        for reload in reversed(server.reloads)
    ]
    return Section(
        "Reloads", tables=(Table("Last reloads of the Corefile", ("At", "", "Result"), rows, "None since the start."),)
    )
