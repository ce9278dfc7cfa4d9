"""`kdns env` from an API server, which the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from kdns.apps.sources.services import services_of
from kdns.apps.sources.source import ObjectSource
from kdns.errors import KdnsError


def service(name: str, cluster_ip: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": {"clusterIP": cluster_ip, "ports": [{"port": 80, "protocol": "TCP"}]}}


LIST_TYPE = {"kind": "ServiceList", "apiVersion": "v1"}


async def in_pages(request: web.Request) -> web.Response:
    """Two pages of shop's Services; default has one Service, named kubernetes."""
    if request.path == "/api/v1/namespaces/default/services/kubernetes":
        return web.json_response(service("kubernetes", "10.96.0.1") | {"kind": "Service", "apiVersion": "v1"})
    if request.path != "/api/v1/namespaces/shop/services":
        return web.json_response({"kind": "Status", "code": 404, "message": "no"}, status=404)
    assert request.query["limit"] == "500"
    if "continue" not in request.query:
        return web.json_response(LIST_TYPE | {"items": [service("a", "10.96.0.2")], "metadata": {"continue": "more"}})
    assert request.query["continue"] == "more"
    return web.json_response(LIST_TYPE | {"items": [service("b", "10.96.0.3")], "metadata": {"continue": ""}})


async def without_master(request: web.Request) -> web.Response:
    if request.path.endswith("/kubernetes"):
        return web.json_response({"kind": "Status", "code": 404, "message": "no"}, status=404)
    if request.path == "/api/v1/namespaces/shop":  # as RBAC has it where only Services may be read
        return web.json_response({"kind": "Status", "code": 403, "message": "you may not"}, status=403)
    return web.json_response(LIST_TYPE | {"items": [], "metadata": {}})


async def without_namespace(request: web.Request) -> web.Response:
    if request.path == "/api/v1/namespaces/shop":
        return web.json_response({"kind": "Status", "code": 404, "message": "no"}, status=404)
    return await without_master(request)


async def of_another_kind(request: web.Request) -> web.Response:
    if request.path.endswith("/kubernetes"):
        return web.json_response(service("kubernetes", "10.96.0.1") | {"kind": "Pod", "apiVersion": "v1"})
    return web.json_response(LIST_TYPE | {"items": [], "metadata": {}})


async def no_kubernetes(_: web.Request) -> web.Response:
    return web.Response(text="<html>")


async def forbidden(_: web.Request) -> web.Response:
    return web.json_response({"kind": "Status", "code": 403, "message": "you may not"}, status=403)


@pytest.mark.parametrize(
    ("handler", "found", "error"),
    [
        (in_pages, ["a", "b", "kubernetes"], ""),
        (without_master, [], ""),
        (without_namespace, [], "^--namespace shop: http://.* has no such namespace$"),
        (of_another_kind, [], "expected Service of v1, got kind Pod of v1"),
        (no_kubernetes, [], "not the answer of a Kubernetes API"),
        (forbidden, [], "403 you may not"),
    ],
)
async def test_from_a_server(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]], found: list[str], error: str
) -> None:
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with asyncio.timeout(60):
            source = ObjectSource(server=f"http://127.0.0.1:{runner.addresses[0][1]}")
            if error:
                with pytest.raises(KdnsError, match=error):
                    await services_of(source, "shop", pytest.fail)
            else:
                services = await services_of(source, "shop", pytest.fail)
                assert [service.metadata.name for service in services] == found
    finally:
        await runner.cleanup()
