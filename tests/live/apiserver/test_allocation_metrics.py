"""/metrics of the REST API: what the allocators did, as a scraper reads it; for those who may read the API."""

from collections.abc import AsyncIterator
from functools import partial
from ipaddress import ip_network

import aiohttp
import pytest
from object_api import Api
from prometheus_client.parser import text_string_to_metric_families

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import SERVICE
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.server.access import ADMIN
from kdns.controlplane.server.io import server as rest
from kdns.controlplane.server.io.authentication import RestConfig
from kdns.controlplane.server.io.metrics import allocation_metrics
from kdns.controlplane.server.registry import Registry, Request
from kdns.runtime.http.sites import scraped

CONFIG = ClusterConfig(service_cidrs=(ip_network("10.0.0.0/30"), ip_network("fd00::/120")))
TOKEN = {"Authorization": "Bearer secret"}
IPS, PORTS = "kube_apiserver_clusterip_allocator", "kube_apiserver_nodeport_allocator"


@pytest.fixture
async def served() -> AsyncIterator[tuple[Registry, str]]:
    api = Api(config=CONFIG).registry
    scrape = partial(scraped, allocation_metrics(api.services))
    server = await rest.start(api, RestConfig(port=0, tokens={"secret": ADMIN}), metrics=scrape)
    yield api, f"http://127.0.0.1:{server.address[1]}/metrics"
    await server.close()


async def samples(url: str) -> dict[tuple[str, ...], float]:
    """Values by name and label values."""
    async with aiohttp.ClientSession() as session, session.get(url, headers=TOKEN) as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain")
        text = await response.text()
    families = text_string_to_metric_families(text)
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


async def test_what_is_counted(served: tuple[Registry, str]) -> None:
    api, url = served
    ports = [{"port": 80}]
    api.create(Request(SERVICE, "default"), {"metadata": {"name": "a"}, "spec": {"ports": ports, "type": "NodePort"}})
    api.create(
        Request(SERVICE, "default"), {"metadata": {"name": "b"}, "spec": {"ports": ports, "clusterIP": "10.0.0.2"}}
    )
    for spec in ({"clusterIP": "10.0.0.2"}, {}):
        with pytest.raises(StatusError):
            api.create(Request(SERVICE, "default"), {"metadata": {"name": "c"}, "spec": {"ports": ports, **spec}})
    refused = {"ports": [{"port": 80, "nodePort": 1}], "type": "NodePort", "ipFamilies": ["IPv6"]}
    with pytest.raises(StatusError):
        api.create(Request(SERVICE, "default"), {"metadata": {"name": "d"}, "spec": refused})
    found = await samples(url)
    v4, v6 = "10.0.0.0/30", "fd00::/120"
    wanted: dict[tuple[str, ...], float] = {
        (f"{IPS}_allocated_ips", v4): 2,
        (f"{IPS}_available_ips", v4): 0,
        (f"{IPS}_allocated_ips", v6): 0,
        (f"{IPS}_available_ips", v6): 255,
        (f"{IPS}_allocation_total", v4, "dynamic"): 1,
        (f"{IPS}_allocation_total", v4, "static"): 1,
        (f"{IPS}_allocation_total", v6, "dynamic"): 1,
        (f"{IPS}_allocation_errors_total", v4, "dynamic"): 1,
        (f"{IPS}_allocation_errors_total", v4, "static"): 1,
        (f"{PORTS}_allocated_ports",): 1,
        (f"{PORTS}_available_ports",): 2767,
        (f"{PORTS}_allocation_total", "dynamic"): 1,
        (f"{PORTS}_allocation_errors_total", "static"): 1,
    }
    assert {key: found.get(key) for key in wanted} == wanted


async def test_only_for_those_with_a_token(served: tuple[Registry, str]) -> None:
    _, url = served
    async with aiohttp.ClientSession() as session:
        async with session.get(url) as response:
            assert response.status == 401
        async with session.post(url, headers=TOKEN) as response:
            assert response.status == 405
        async with session.get(url.removesuffix("metrics"), headers=TOKEN) as response:
            assert "/metrics" in (await response.json())["paths"]
