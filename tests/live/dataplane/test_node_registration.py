"""This machine's Node: reported to a `kdns up`, never to another API."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Any

import msgspec
import pytest
from aiohttp import web

from kdns.cluster.objects import Node
from kdns.cluster.source import Source
from kdns.net import Address
from kdns.netlink.io.addresses import primary_addresses
from kdns.proxy.node.io.registration import NodeRegistration

OWN = tuple(ip_address(each) for each in ("192.0.2.2", "192.0.2.3", "2001:db8:2::2"))
PRIMARY = OWN[0], OWN[2]
KDNS = "v1.36.2+kdns-0.1.0"
POST, PATCH = ("POST", "/api/v1/nodes"), ("PATCH", "/api/v1/nodes/laptop/status")
REPORTED = [
    {"type": "InternalIP", "address": "192.0.2.2"},
    {"type": "InternalIP", "address": "2001:db8:2::2"},
    {"type": "Hostname", "address": "laptop"},
]


def a_node(*addresses: str) -> Node:
    rows = [{"type": "InternalIP", "address": each} for each in addresses]
    return msgspec.convert({"metadata": {"name": "laptop"}, "status": {"addresses": rows}}, Node)


@pytest.mark.parametrize(
    ("version", "node", "primary", "asked"),
    [
        (KDNS, None, PRIMARY, [POST]),
        (KDNS, None, (), [POST]),
        (KDNS, a_node("10.244.0.1"), PRIMARY, [PATCH]),
        (KDNS, a_node("192.0.2.2"), PRIMARY, [PATCH]),
        (KDNS, a_node("192.0.2.9", "2001:db8:2::2"), PRIMARY, [PATCH]),
        (KDNS, a_node("192.0.2.3", "2001:db8:2::2"), PRIMARY, []),
        (KDNS, a_node("10.244.0.1"), (), []),
        ("v1.36.2", None, PRIMARY, []),
        ("v1.36.2+k3s1", a_node("10.244.0.1"), PRIMARY, []),
        ("", None, PRIMARY, []),
    ],
)
async def test_a_node_is_reported_to_kdns_only(
    version: str, node: Node | None, primary: tuple[Address, ...], asked: list[tuple[str, str]]
) -> None:
    written: list[tuple[str, str, Any]] = []
    current, decided, cluster = [node], asyncio.Event(), "first"

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/version":
            return web.json_response({"gitVersion": version}, status=200 if version else 403)
        if request.method == "GET":
            return web.json_response({"metadata": {"uid": cluster}})
        body = await request.json()
        written.append((request.method, request.path, body["status"]["addresses"]))
        current[0] = a_node(*(str(each) for each in primary))
        asyncio.get_running_loop().call_soon(registration.node_seen)
        return web.json_response({})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    registration = NodeRegistration(
        Source(endpoint=f"http://{host}:{port}"), "laptop", lambda: current[0], lambda: (primary, OWN), decided.set
    )
    work = asyncio.create_task(registration.run())
    try:
        registration.addresses_changed()  # nothing is known of the Node yet
        await asyncio.sleep(0)
        assert not registration.is_decided
        registration.node_seen()
        async with asyncio.timeout(60):
            await decided.wait()
        wanted = REPORTED if primary else REPORTED[-1:]
        assert written == [(*request, wanted) for request in asked]
        gone, reported = node and a_node("10.244.0.2"), current[0]
        changes = (("first", gone), ("first", reported), ("second", gone))  # the last is a new kdns up
        for uid, current[0] in changes if asked else ():
            again, cluster = asked if uid == "second" else [], uid
            written.clear()
            decided.clear()
            registration.node_seen()
            async with asyncio.timeout(60):
                await decided.wait()
            assert written == [(*request, wanted) for request in again]
    finally:
        work.cancel()
        await runner.cleanup()


@pytest.mark.parametrize("missing", [(), ("169.254.1.1", "fe80::1")])
def test_a_machine_without_other_addresses_names_none(missing: tuple[str, ...]) -> None:
    assert primary_addresses([ip_address(each) for each in missing]) == ()


def test_without_a_default_route_it_is_the_first_that_is_not_link_local() -> None:
    own = [ip_address(each) for each in ("169.254.1.1", "203.0.113.77", "203.0.113.78", "2001:db8:77::1")]
    assert list(map(str, primary_addresses(own))) == ["203.0.113.77", "2001:db8:77::1"]
