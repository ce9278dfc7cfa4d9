"""Responses with the page.

Whoever reaches the page may read it, and nobody can change anything with it. Refused are requests that a page of
another site makes, and those to a host name, which may lead anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from ipaddress import ip_address
from typing import Final

from aiohttp import web

from kdns.net import split_host_port
from kdns.runtime.http.server import Handler
from kdns.runtime.tasks import in_thread
from kdns.status.page import Advice, View
from kdns.status.paths import SCRIPT, STYLE

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


def site(pages: Mapping[str, Handler]) -> dict[str, Handler]:
    assets: Mapping[str, Handler] = {
        STYLE: partial(_asset, content_type="text/css"),
        SCRIPT: partial(_asset, content_type="text/javascript"),
    }
    return {path: _guarded(answer) for path, answer in {**pages, **assets}.items()}


def parameters(request: web.BaseRequest, *names: str) -> list[str]:
    return [request.query.get(name, "").strip()[:TEXT_MAX] for name in names]


async def page(view: View, status: int = 200) -> web.Response:
    """In a thread: the first page imports and compiles the template."""

    def rendered() -> str:
        from kdns.status.render import html  # noqa: PLC0415 - the template library takes memory, and few servers need it

        return html(view)

    return web.Response(status=status, text=await in_thread(rendered), content_type="text/html")


def running(advice: Iterable[Advice]) -> web.Response:
    rows = [{"text": entry.text, "cure": entry.cure} for entry in advice]
    return web.Response(text=json.dumps(rows), content_type="application/json")


async def _asset(request: web.BaseRequest, *, content_type: str) -> web.Response:
    def loaded() -> str:
        from kdns.status.render import asset  # noqa: PLC0415 - the same

        return asset(request.path.rpartition("/")[2])

    return web.Response(text=await in_thread(loaded), content_type=content_type)


def _guarded(answer: Handler) -> Handler:
    """Refuses requests of other sites, and forbids the response to them."""

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if reason := _refusal(request):
            return web.Response(status=403, text=f"{reason}\n", headers=HEADERS)
        response = await answer(request)
        response.headers.update(HEADERS)
        return response

    return handler


def _refusal(request: web.BaseRequest) -> str:
    if request.headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
        return "this page is not for other sites; open its address in a tab of its own"
    host = (split_host_port(request.host) or (request.host, ""))[0].strip("[]")
    try:
        ip_address(host)
    except ValueError:
        if host != "localhost":
            return f"this page is reached by an IP address or by localhost, not by {host[:TEXT_MAX]!r}"
    return ""
