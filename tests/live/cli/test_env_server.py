"""`kdns env` from an API server, which the test plays."""

import asyncio

import pytest
from fake_api import Json, answering

from kdns.apps.sources.services import services_of
from kdns.apps.sources.source import ObjectSource
from kdns.errors import KdnsError

SHOP, SERVICES = "/api/v1/namespaces/shop", "/api/v1/namespaces/shop/services"
MASTER = "/api/v1/namespaces/default/services/kubernetes"


def service(name: str, kind: str = "Service") -> Json:
    spec = {"clusterIP": "10.96.0.2", "ports": [{"port": 80, "protocol": "TCP"}]}
    return {"kind": kind, "apiVersion": "v1", "metadata": {"name": name}, "spec": spec}


def listed(*names: str, more: str = "") -> Json:
    items = [service(name) for name in names]
    return {"kind": "ServiceList", "apiVersion": "v1", "metadata": {"continue": more}, "items": items}


PAGES = {SERVICES: listed("a", more="more"), f"{SERVICES} more": listed("b")}


@pytest.mark.parametrize(
    ("responses", "found", "error"),
    [
        ({**PAGES, MASTER: service("kubernetes")}, ["a", "b", "kubernetes"], ""),
        (PAGES, ["a", "b"], ""),
        ({SERVICES: listed(), SHOP: 403}, [], ""),  # as RBAC has it where only Services may be read
        ({SERVICES: listed()}, [], "^--namespace shop: http://.* has no such namespace$"),
        ({**PAGES, MASTER: service("kubernetes", "Pod")}, [], "expected Service of v1, got kind Pod of v1"),
        ({SERVICES: "<html>"}, [], "not the answer of a Kubernetes API"),
        ({SERVICES: 403}, [], "403 no"),
    ],
)
async def test_from_a_server(responses: dict[str, Json | int | str], found: list[str], error: str) -> None:
    async with asyncio.timeout(60), answering(responses) as url:
        listing = services_of(ObjectSource(server=url), "shop", pytest.fail)
        if error:
            with pytest.raises(KdnsError, match=error):
                await listing
        else:
            assert [service.metadata.name for service in await listing] == found
