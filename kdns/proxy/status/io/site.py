"""The status page of a node's dataplane, beside its metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Final

from aiohttp import web

import kdns
from kdns.cluster.objects import Service
from kdns.cluster.state import State
from kdns.errors import InputError
from kdns.proxy.node.io.metrics import MetricSources, rows
from kdns.proxy.plan.plan import Plan
from kdns.proxy.status.view import plan_section, refused_section, running_advice
from kdns.runtime.http.server import Handler
from kdns.runtime.tasks import in_slices
from kdns.status.history import EVERY_S, History
from kdns.status.io.diagnoses import Followed
from kdns.status.io.pages import page, parameters, running, site
from kdns.status.io.services import ServicePages
from kdns.status.io.watched import Watched, utc, watch_problems, watch_table
from kdns.status.numbers import Numbers
from kdns.status.page import Advice, Fact, Form, Section, Table, View, age
from kdns.status.paths import RUNNING, STATUS
from kdns.status.plot import plot
from kdns.status.services import site_links

TRACE: Final = "/status/trace"
SHOWN: Final = 20
"""The Service ports in the table of connections."""


class ProxyStatus:
    """The status of a node; its plan is that of `sources`, of the objects in `watched`."""

    def __init__(self, node: str, watched: Watched, sources: MetricSources) -> None:
        self._node, self._watched, self._sources = node, watched, sources
        self._metrics = rows(sources)
        self._history = History()
        followed = Followed(watched.state, is_partial=True)
        self._services = ServicePages("kdns proxy", lambda: (followed,), self.packets)

    def pages(self) -> dict[str, Handler]:
        return site({STATUS: self._status, TRACE: self._trace, RUNNING: self._running, **self._services.pages()})

    async def run(self) -> None:
        while True:
            stats = self._sources.sync_runner.stats
            counts = {
                ("changes", "Services"): float(stats.services.total),
                ("changes", "EndpointSlices"): float(stats.endpoints.total),
                ("syncs", "full"): float(sum(stats.full.counts)),
                ("syncs", "partial"): float(sum(stats.partial.counts)),
            }
            self._history.add(time.monotonic(), counts)
            await asyncio.sleep(EVERY_S)

    async def _status(self, _request: web.BaseRequest) -> web.Response:
        runner = self._sources.sync_runner
        if plan := runner.plan:
            await self._sources.counters.read(plan)
        numbers = Numbers.of(self._metrics.collect())
        sections = [self._served(), self._syncs(numbers)]
        if plan:
            sections += [plan_section(plan), refused_section(plan, runner.rejected), _connections(numbers)]
        problems = [*map(Advice, self._problems(plan)), *await self._services.problems()]
        title = f"kdns proxy on {self._node}"
        return await page(View(title, utc(time.time()), problems, (form(),), sections, site_links(STATUS)))

    async def _running(self, _request: web.BaseRequest) -> web.Response:
        runner = self._sources.sync_runner
        advice = [*map(Advice, self._problems(runner.plan))]
        if runner.plan:
            advice += running_advice(runner.plan, runner.rejected, runner.stats.foreign_changes)
        return running(advice)

    def _problems(self, plan: Plan | None) -> Iterator[str]:
        sources = self._sources
        if plan is None:
            yield "No rules yet: objects, or what the plan needs of the Node, are not there."
        elif not sources.health.is_current:
            yield "The rules are old: a change has waited for too long."
        if sources.mode.name != sources.configured_mode:
            yield f"Mode {sources.configured_mode} cannot work here; mode {sources.mode.name} stands in."
        if rejected := sources.sync_runner.rejected:
            yield f"The kernel rejects rules of {len(rejected)} Services; the page names them below."
        yield from watch_problems((self._watched,))

    def _served(self) -> Section:
        facts = (Fact("Version", kdns.__version__), Fact("Node", self._node), Fact("Mode", self._sources.mode.name))
        return Section("Served", facts, tables=(watch_table((self._watched,)),))

    def _syncs(self, numbers: Numbers) -> Section:
        stats = self._sources.sync_runner.stats
        facts = [
            Fact("Last sync", f"{age(time.time() - stats.last_sync_s)} ago" if stats.last_sync_s else "never"),
            Fact("Pending changes", f"{stats.services.pending + stats.endpoints.pending:,}"),
            Fact("Failed syncs", f"{stats.failures:,}"),
            Fact("Foreign changes of the rules", f"{stats.foreign_changes:,}"),
        ]
        for what in ("full", "partial"):
            took_s = numbers.quantile(f"kubeproxy_sync_{what}_proxy_rules_duration_seconds", 0.99)
            facts.append(Fact(f"99% of {what} syncs within", age(took_s) if took_s else "-"))
        last = f"the last {age(max(self._history.covered_s, EVERY_S))}"
        plots = [
            plot(f"Changes of objects, {last}", self._history.lines("changes")),
            plot(f"Syncs, {last}", self._history.lines("syncs")),
        ]
        return Section("Rules", facts, plots)

    async def packets(self, _state: State, service: Service, *, trace_path: str = TRACE) -> AsyncIterator[Section]:
        """The ways of packets to a Service; `trace_path` is "" on a page without this one's form."""
        from kdns.proxy.status.ways import HEADS, ways  # noqa: PLC0415 - a start needs none of it

        if plan := self._sources.sync_runner.plan:
            rows = [row async for row in in_slices(ways(plan, service, trace_path))]
            caption = f"Packets to this Service, on node {self._node} in mode {self._sources.mode.name}"
            yield Section("Packets", tables=(Table(caption, HEADS, rows, "The plan has no destination of it."),))

    async def _trace(self, request: web.BaseRequest) -> web.Response:
        source, to = parameters(request, "from", "to")
        try:
            text = self._traced(source, to)
        except InputError as error:
            return await page(_form_page(form(source, to, error=str(error).replace("--", ""))), status=400)
        return await page(_form_page(form(source, to, answer=text)))

    def _traced(self, source: str, to: str) -> str:
        from kdns.proxy.trace.destination import packet  # noqa: PLC0415 - a start needs none of it
        from kdns.proxy.trace.explain import explained  # noqa: PLC0415 - the same
        from kdns.proxy.trace.text import as_text  # noqa: PLC0415 - the same

        runner = self._sources.sync_runner
        if runner.plan is None:
            raise InputError("there is no plan yet")
        explanation = explained(runner.state, runner.plan, packet(runner.state, source, to))
        return as_text(explanation, self._node, self._sources.mode.name)


def form(source: str = "", to: str = "", *, answer: str = "", error: str = "") -> Form:
    fields = (("from", "From", "10.244.3.7", source), ("to", "To", "web.shop:http, or 10.96.0.1:443/tcp", to))
    return Form(TRACE, "What happens to a packet?", "Trace", fields, answer, error)


def _form_page(filled: Form) -> View:
    return View("kdns proxy: what happens?", utc(time.time()), (), (filled,), (), site_links(TRACE))


def _connections(numbers: Numbers) -> Section:
    heads = ("Service port", "Port", "Protocol", "Family", "Connections", "Refused packets")
    labels = ("service", "port", "protocol", "ip_family")
    counts: dict[tuple[str, ...], list[float]] = {}
    for at, name in enumerate(("kdns_service_connections_total", "kdns_service_refused_packets_total")):
        for found, value in numbers.by_name.get(name, ()):
            service, *rest = (found.get(label, "") for label in labels)
            key = (f"{found.get('namespace', '')}/{service}", *rest)
            counts.setdefault(key, [0.0, 0.0])[at] += value
    most = sorted(counts.items(), key=lambda row: -sum(row[1]))[:SHOWN]
    shown = [(*key, *(f"{value:,.0f}" for value in values)) for key, values in most]
    table = Table("Busiest Service ports since the start", heads, shown, "None was counted, or this mode counts none.")
    return Section("Connections", tables=(table,))
