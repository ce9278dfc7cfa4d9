"""The status page of a DNS server: the task that gathers what it shows, and its handlers.

Whoever reaches the page may read it, and nobody can change anything with it. Requests that a page of another site made,
or that came by a name that may lead anywhere, are refused.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from ipaddress import ip_address
from typing import Final

from aiohttp import web

from kdns.dnsserver.io.server import DnsServer
from kdns.errors import InputError
from kdns.net import split_host_port
from kdns.plugins.kubernetes.plugin import Kubernetes
from kdns.runtime.http.server import Handler
from kdns.status.history import EVERY_S, History
from kdns.status.io.view import utc, view_of
from kdns.status.numbers import Numbers, counted
from kdns.status.page import SCRIPT, STYLE, Form, View, asset, html
from kdns.status.paths import ANSWERED, EXPLAIN, STATUS
from kdns.status.samples import Samples, sample_of

LOOK_S: Final = 0.05, 0.15
"""The least and the most time between two bursts that are looked at: chance decides, as clients may have a rhythm."""
WHY: Final = "kdns.status.why"
LOOKED_AT: Final = 256
"""The most queries of one burst that are looked at."""
FADE_S: Final = 60.0
FADE: Final = 0.7
"""Each minute older queries count for so much."""
TEXT_MAX: Final = 300
"""Characters of a field of a form; a name has at most 255 bytes."""
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class DnsStatus:
    """The status of one server, which outlives reloads of its Corefile."""

    def __init__(self) -> None:
        self.samples = Samples()
        self.history = History()
        self._before: Numbers | None = None
        self._last: Numbers | None = None
        self._looked: list[tuple[bytes, str, bytes]] = []
        self._explaining = asyncio.Lock()

    def pages(self, server: DnsServer) -> Mapping[str, Handler]:
        """Returns the handlers by path."""
        return {
            STATUS: guarded(partial(self._status, server)),
            EXPLAIN: guarded(partial(self._explain, server)),
            f"{STATUS}/{STYLE}": guarded(partial(_asset, name=STYLE, content_type="text/css")),
            f"{STATUS}/{SCRIPT}": guarded(partial(_asset, name=SCRIPT, content_type="text/javascript")),
        }

    async def run(self, server: DnsServer) -> None:
        """Gathers until cancelled."""
        queries, read_s, fade_s = 0, -EVERY_S, time.monotonic() + FADE_S
        while True:
            now_s = time.monotonic()
            total = sum(sum(one.durations.counts) for listeners in server.requests.values() for one in listeners)
            if self._looked:
                self._take(server, max((total - queries) / len(self._looked), 1.0))
                queries = total
            server.sampling.look_at_next(self._look)
            if now_s >= fade_s:
                fade_s = now_s + FADE_S
                self.samples.fade(FADE)
            if now_s >= read_s + EVERY_S:
                read_s = now_s
                self._read(server, now_s)
            await asyncio.sleep(random.uniform(*LOOK_S))

    def _look(self, packet: bytes, client: str, wire: bytes) -> None:
        if len(self._looked) < LOOKED_AT:
            self._looked.append((packet, client, wire))

    def _take(self, server: DnsServer, weight: float) -> None:
        """Counts the queries that were looked at, each for as many as came in the meantime."""
        looked, self._looked = self._looked, []
        zones = {
            plugin.zones.options.primary_zone.rstrip(".")
            for each in server.servers
            for block in each.blocks
            for plugin in block.chain.plugins
            if isinstance(plugin, Kubernetes)
        }

        def is_namespace(name: str) -> bool:
            return any(("", name) in cluster.state.namespaces for cluster in server.clusters)

        samples = (sample for each in looked if (sample := sample_of(*each)))
        self.samples.add(samples, weight, zones, is_namespace)

    def _read(self, server: DnsServer, now_s: float) -> None:
        self._before, self._last = self._last, Numbers.of(server.metrics().collect())
        self.history.add(now_s, dict(counted(self._last)))

    async def _status(self, server: DnsServer, _request: web.BaseRequest) -> web.Response:
        numbers = Numbers.of(server.metrics().collect())
        view = view_of(server, self.samples, self.history, numbers, self._before, (form(),))
        return await _page(view)

    async def _explain(self, server: DnsServer, request: web.BaseRequest) -> web.Response:
        """Returns a page with the answer, or with `output` text or JSON alone."""
        asked = {name: request.query.get(name, "").strip()[:TEXT_MAX] for name in ("name", "type", "namespace")}
        output = request.query.get("output", "")
        if output not in {"", "text", "json"}:
            return web.Response(status=400, text=f"output: expected text or json, got {output!r}\n")
        await asyncio.to_thread(import_module, WHY)  # it takes a while, and few ask
        from kdns.status.why import why  # noqa: PLC0415 - imported above

        name, qtype, namespace = asked["name"], asked["type"] or "A", asked["namespace"] or "default"
        try:
            async with self._explaining:
                await asyncio.sleep(0)  # others have their turn between two
                found = why(server.servers, name, qtype, namespace, (time.monotonic(), time.time()))
        except InputError as error:
            if output:
                return web.Response(status=400, text=f"{error}\n")
            return await _page(_form_page(form(name, qtype, namespace, error=str(error))), status=400)
        headers = {ANSWERED: str(found.is_answered).lower()}
        if output == "json":
            return web.Response(text=f"{found.json}\n", content_type="application/json", headers=headers)
        if output:
            return web.Response(text=f"{found.text}\n", headers=headers)
        return await _page(_form_page(form(name, qtype, namespace, answer=found.text)))


def form(name: str = "", qtype: str = "A", namespace: str = "default", *, answer: str = "", error: str = "") -> Form:
    """Returns the form that explains a name, filled in."""
    fields = (
        ("name", "Name or address", "cart.shop", name),
        ("type", "Type", "A", qtype),
        ("namespace", "Namespace of the client", "default", namespace),
    )
    return Form(EXPLAIN, "Why does a name have its answer?", "Explain", fields, answer, error)


def _form_page(filled: Form) -> View:
    return View("kdns: why?", utc(time.time()), (), (filled,), ())


async def _page(view: View, status: int = 200) -> web.Response:
    """Returns a page, which is made in a thread: the first one imports and compiles the template."""
    return web.Response(status=status, text=await asyncio.to_thread(html, view), content_type="text/html")


async def _asset(_request: web.BaseRequest, *, name: str, content_type: str) -> web.Response:
    return web.Response(text=await asyncio.to_thread(asset, name), content_type=content_type)


def guarded(answer: Handler) -> Handler:
    """Returns a handler that refuses requests of other sites, and forbids its response to them."""

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if why := _refusal(request):
            return web.Response(status=403, text=f"{why}\n", headers=HEADERS)
        response = await answer(request)
        response.headers.update(HEADERS)
        return response

    return handler


def _refusal(request: web.BaseRequest) -> str:
    """Returns why a request is refused, "" if it is not."""
    if request.headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
        return "this page is not for other sites; open its address in a tab of its own"
    host = (split_host_port(request.host) or (request.host, ""))[0].strip("[]")
    try:
        ip_address(host)
    except ValueError:
        if host != "localhost":
            return f"this page is reached by an IP address or by localhost, not by {host[:TEXT_MAX]!r}"
    return ""
