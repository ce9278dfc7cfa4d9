"""The status page of a DNS server: the task that gathers what it shows, and its handlers."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from functools import partial
from importlib import import_module
from typing import Final

from aiohttp import web

from kdns.cluster.objects import Service
from kdns.cluster.state import State
from kdns.dns.types import type_number
from kdns.dnsserver.io.burst.sampling import MOST
from kdns.dnsserver.io.server import DnsServer
from kdns.errors import InputError
from kdns.runtime.http.server import Handler
from kdns.runtime.tasks import in_slices, in_thread
from kdns.status.history import EVERY_S, History
from kdns.status.io.pages import page, parameters, running, site
from kdns.status.io.services import Details, ServicePages
from kdns.status.io.view import cluster_zones, followed, running_problems, view_of
from kdns.status.io.watched import utc
from kdns.status.numbers import Numbers, counted
from kdns.status.page import Form, Section, Table, View
from kdns.status.paths import ANSWERED, EXPLAIN, RUNNING, STATUS
from kdns.status.samples import Samples, sample_of
from kdns.status.services import site_links

ID_BYTES: Final = 2
SAMPLE_S: Final = 1.0
FADE_S: Final = 60.0
FADE: Final = 0.7
"""Each minute older queries count for so much."""


class DnsStatus:
    """The status of one server, which outlives reloads of its Corefile."""

    def __init__(self) -> None:
        self.samples = Samples()
        self.history = History()
        self.details: list[Details] = []
        """What other parts of the program know of a Service."""
        self._before: Numbers | None = None
        self._last: Numbers | None = None
        self._explaining = asyncio.Lock()

    def pages(self, server: DnsServer) -> Mapping[str, Handler]:
        services = ServicePages("kdns", partial(followed, server), partial(self._details, server))
        own: dict[str, Handler] = {
            STATUS: partial(self._status, server, services),
            EXPLAIN: partial(self._explain, server),
            RUNNING: partial(self._running, server),
        }
        return site({**own, **services.pages()})

    async def run(self, server: DnsServer) -> None:
        read_s, fade_s = -EVERY_S, time.monotonic() + FADE_S
        server.sampling.most = MOST
        try:
            while True:
                now_s = time.monotonic()
                await self._take(server)
                if now_s >= fade_s:
                    fade_s = now_s + FADE_S
                    self.samples.fade(FADE)
                if now_s >= read_s + EVERY_S:
                    read_s = now_s
                    self._read(server, now_s)
                await asyncio.sleep(SAMPLE_S)
        finally:
            server.sampling.most = 0

    async def _take(self, server: DnsServer) -> None:
        """Counts the queries of the sample, each for as many as were seen."""
        seen, sampled = server.sampling.take()
        zones = {zones.options.primary_zone.rstrip(".") for zones in cluster_zones(server)}

        def is_namespace(name: str) -> bool:
            return any(("", name) in cluster.state.namespaces for cluster in server.clusters)

        equal = Counter((packet[ID_BYTES:], client, wire[ID_BYTES:]) for packet, client, wire in sampled)
        async for (rest, client, flags), count in in_slices(equal.items()):
            if sample := sample_of(bytes(ID_BYTES) + rest, client, flags and bytes(ID_BYTES) + flags):
                self.samples.add([sample], count * seen / len(sampled), zones, is_namespace)

    def _read(self, server: DnsServer, now_s: float) -> None:
        self._before, self._last = self._last, Numbers.of(server.metrics().collect())
        self.history.add(now_s, dict(counted(self._last)))

    async def _status(self, server: DnsServer, services: ServicePages, _request: web.BaseRequest) -> web.Response:
        await self._take(server)
        problems = await services.problems()
        numbers = Numbers.of(server.metrics().collect())
        view = view_of(server, self.samples, self.history, numbers, self._before, (form(),), problems)
        return await page(view)

    async def _running(self, server: DnsServer, _request: web.BaseRequest) -> web.Response:
        await self._take(server)
        return running(running_problems(server, self.samples))

    async def _explain(self, server: DnsServer, request: web.BaseRequest) -> web.Response:
        """A page with the answer, or with `output` text or JSON alone."""
        name, qtype, namespace, output = parameters(request, "name", "type", "namespace", "output")
        qtype, namespace = qtype or "A", namespace or "default"
        if output not in {"", "text", "json"}:
            return web.Response(status=400, text=f"output: expected text or json, got {output!r}\n")
        try:
            text, is_answered = await self._explanation(server, (name, qtype, namespace), is_json=output == "json")
        except InputError as error:
            if output:
                return web.Response(status=400, text=f"{error}\n")
            return await page(_form_page(form(name, qtype, namespace, error=str(error))), status=400)
        if output:
            headers = {ANSWERED: str(is_answered).lower()}
            kind = "application/json" if output == "json" else "text/plain"
            return web.Response(text=f"{text}\n", content_type=kind, headers=headers)
        return await page(_form_page(form(name, qtype, namespace, answer=text)))

    async def _explanation(self, server: DnsServer, inquiry: tuple[str, ...], *, is_json: bool) -> tuple[str, bool]:
        """The text, and whether the name has an answer; `inquiry` is name, type and namespace. Raises InputError."""
        if not inquiry[0]:
            raise InputError("the name is missing")
        await _imported("kdns.explain.text")
        from kdns.explain.explain import Now, cluster_plugins  # noqa: PLC0415 - imported above
        from kdns.explain.findings import Inquiry, findings  # noqa: PLC0415 - the same
        from kdns.explain.text import as_json, as_text  # noqa: PLC0415 - the same

        explaining = next(filter(cluster_plugins, server.servers), server.servers[0])
        async with self._explaining:
            await asyncio.sleep(0)  # others have their turn between two
            now = Now(time.monotonic(), time.time())
            answer = await findings(explaining, Inquiry(*inquiry), now, is_brief=True)
        return as_json(answer) if is_json else as_text(answer), answer.chosen.is_answered

    async def _details(self, server: DnsServer, state: State, service: Service) -> AsyncIterator[Section]:
        every: tuple[Details, ...] = (partial(self._names, server), *self.details)
        for details in every:
            async for section in details(state, service):
                yield section

    async def _names(self, server: DnsServer, state: State, service: Service) -> AsyncIterator[Section]:
        """The names of a Service with the answers of the first server block that follows its cluster."""
        await _imported("kdns.status.names")
        from kdns.explain.explain import Now, cluster_plugins, explained  # noqa: PLC0415 - imported above
        from kdns.status.names import HEADS, questions, row  # noqa: PLC0415 - the same

        plugins = (
            (address_server, plugin) for address_server in server.servers for plugin in cluster_plugins(address_server)
        )
        explaining = next(((each, plugin) for each, plugin in plugins if plugin.zones.state is state), None)
        if explaining is None:
            return
        by, plugin = explaining
        rows = []
        for name, qtype in questions(state, service, plugin.zones.options):
            async with self._explaining:
                await asyncio.sleep(0)  # others have their turn between two
                now = Now(time.monotonic(), time.time())
                rows.append(row(await explained(by, name, type_number(qtype), now=now, is_brief=True)))
        yield Section("Names", tables=(Table("Names and their answers", HEADS, rows),))


async def _imported(module: str) -> None:
    """In a thread: it takes a while, and few ask."""
    await in_thread(partial(import_module, module))


def form(name: str = "", qtype: str = "A", namespace: str = "default", *, answer: str = "", error: str = "") -> Form:
    fields = (
        ("name", "Name or address", "cart.shop", name),
        ("type", "Type", "A", qtype),
        ("namespace", "Namespace of the client", "default", namespace),
    )
    return Form(EXPLAIN, "Why does a name have its answer?", "Explain", fields, answer, error)


def _form_page(filled: Form) -> View:
    return View("kdns: why?", utc(time.time()), (), (filled,), (), site_links(EXPLAIN))
