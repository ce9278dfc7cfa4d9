"""A DNS server at work on ports of its own, over a fake API: the fixtures of the live DNS tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import ip_address
from typing import Any

import aiohttp
import pytest
from configured import configured
from fake_api import Cluster, FakeApi, endpoint_slice, meta, service, until

from kdns.cluster.io import clusters
from kdns.cluster.io.informer import follow
from kdns.cluster.watch import Timing
from kdns.dnsserver.io.server import DnsServer
from kdns.status.io.site import DnsStatus

TIMING = Timing(page_objects=10, backoff_s=0.02, backoff_cap_s=0.1, healthy_s=0.05, report_s=0.05, idle_s=0.3)
"""A real cluster's patience, shortened."""
SITES = "health 127.0.0.1:0\nready 127.0.0.1:0\nprometheus 127.0.0.1:0\n"
SERVICES = 30
MANY = 60
"""Endpoints of the Service `many`: too many for 512 bytes, few enough for 1232."""


def cluster() -> Cluster:
    """`s0` … with cluster IPs, each with an endpoint; `many` is headless."""
    made = Cluster()
    made.put("namespaces", meta("default"))
    for number in range(SERVICES):
        made.put("services", service(f"s{number}", f"10.96.0.{number + 1}"))
        made.put("endpointslices", endpoint_slice(f"s{number}", f"10.244.0.{number + 1}"))
    made.put("services", service("many", "None"))
    addresses = [str(ip_address("10.245.0.1") + number) for number in range(MANY)]
    many = endpoint_slice("many")
    many["endpoints"] = [{"addresses": [address]} for address in addresses]
    made.put("endpointslices", many)
    return made


@asynccontextmanager
async def api_of(cluster: Cluster) -> AsyncIterator[FakeApi]:
    api = FakeApi(cluster)
    await api.start()
    try:
        yield api
    finally:
        await api.stop()


@asynccontextmanager
async def dns_server(corefile: str, **options: Any) -> AsyncIterator[DnsServer]:
    """A server of this Corefile that works; `options` are those of DnsServer."""
    server = DnsServer(configured(corefile), **options)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def serving(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, *, more: str = "", options: str = "", timing: Timing = TIMING
) -> AsyncIterator[DnsServer]:
    """A server of cluster.local and the reverse zones that follows the API at `endpoint`."""
    monkeypatch.setattr(clusters, "follow", partial(follow, timing=timing))
    stanza = f"kubernetes cluster.local in-addr.arpa ip6.arpa {{\nendpoint {endpoint}\n{options}\n}}"
    corefile = f".:0 {{\nbind 127.0.0.1\nerrors\n{SITES}{stanza}\n{more}\n}}\n"
    async with dns_server(corefile, status=DnsStatus) as server:
        await until(lambda: server.is_synced or "startup_timeout" in options)
        yield server


def port_of(server: DnsServer) -> int:
    return server.addresses[0][1]


async def page(server: DnsServer, path: str) -> tuple[int, str]:
    """Status and body of one of the server's HTTP pages."""
    host, port = server.site_addresses[path]
    async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}{path}") as response:
        return response.status, await response.text()
