"""A REST server over a real socket, and a client of it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import aiohttp
from object_api import Api

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.server.io import server as rest
from kdns.controlplane.server.io.authentication import RestConfig
from kdns.controlplane.server.registry import Registry
from kdns.controlplane.storage.store import Store

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
SERVICES = "/api/v1/namespaces/default/services"
PODS = "/api/v1/namespaces/default/pods"


def new_api() -> Registry:
    return Api(Store(history_commits=20)).registry


def service(name: str = "web", **metadata: Any) -> Json:
    return {"metadata": {"name": name, **metadata}, "spec": {"ports": [{"port": 80}]}}


class Client:
    """The server and a client of it."""

    def __init__(self, api: Registry, server: rest.RestServer, session: aiohttp.ClientSession) -> None:
        self.api, self.server, self.session = api, server, session

    async def __call__(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, Any, aiohttp.ClientResponse]:
        """(status, decoded body, response); `Content_Type=…` sets a header."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, (str, bytes, BytesIO)):
            body = json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        async with self.session.request(method, path, data=body, headers=sent) as response:
            text = await response.text()
            decoded = json.loads(text) if "json" in response.headers.get("Content-Type", "") and text else text
            return response.status, decoded, response

    async def lines(self, path: str, number: int, **headers: str) -> list[Any]:
        """The first lines of a watch."""
        async with asyncio.timeout(60), self.session.get(path, headers=headers) as response:
            assert response.status == 200
            return [json.loads(await response.content.readline()) for _ in range(number)]


async def kept() -> None:
    """Writes are in memory alone."""


@asynccontextmanager
async def serving(durable: Callable[[], Awaitable[None]] = kept, **config: Any) -> AsyncIterator[Client]:
    """A server of its own, whose writes are answered after `durable`."""
    api = new_api()
    server = await rest.start(api, RestConfig(port=0, watches_max=3, **config), durable)
    host, port = server.address
    async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
        yield Client(api, server, session)
    await server.close()
