"""The recorded cases' cluster over HTTP: the real REST server on loopback, and one connection to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from itertools import count
from typing import Any
from urllib.parse import quote

import aiohttp
from stored_objects import put

from kdns.controlplane.apimachinery.kinds import NAMESPACE, Json, Kind
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.server.io import server as rest
from kdns.controlplane.server.io.authentication import RestConfig
from kdns.controlplane.server.registry import Registry, Request
from kdns.controlplane.storage import listing
from kdns.controlplane.storage.store import Store


@dataclass
class Server:
    """A client of a control plane without controllers; `api` is what stands behind it.

    `warnings` are those of the last answer.
    """

    api: Registry
    session: aiohttp.ClientSession
    warnings: list[str] = field(default_factory=list)

    async def __call__(self, method: str, path: str, body: object = None, content_type: str = "") -> tuple[int, Any]:
        """(code, decoded body) of one request."""
        headers = {"Content-Type": content_type} if content_type else {}
        async with self.session.request(method, path, json=body, headers=headers) as response:
            self.warnings = [each.removeprefix("299 - ") for each in response.headers.getall("Warning", [])]
            return response.status, await response.json() if response.content_type.endswith("json") else None

    def plant(self, kind: Kind, obj: Json) -> None:
        """Store an object as it stands, valid or not, as an older server left it."""
        meta = {"uid": "planted", "creationTimestamp": "2023-11-14T22:13:20Z", **obj["metadata"]}
        put(self.api.store, kind, listing.key(kind, meta["namespace"], meta["name"]), {**obj, "metadata": meta})


def path_of(kind: Kind, namespace: str, name: str = "", subresource: str = "") -> str:
    """Where objects of a kind are, or one of them."""
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    parts = (f"{root}/namespaces", namespace, kind.plural, name, subresource)
    return "/".join(quote(part) for part in parts if part)


@asynccontextmanager
async def server(
    *cidrs: str, node_ports: range = range(30000, 32768), namespaces: tuple[str, ...] = ("default",)
) -> AsyncIterator[Server]:
    """A server whose Services have these ranges; dynamic numbers come from the middle of what is free."""
    uids = count(1)
    config = ClusterConfig(service_cidrs=tuple(ip_network(cidr) for cidr in cidrs), node_port_range=node_ports)
    api = Registry(
        Store(),
        config,
        lambda n: n // 2,
        lambda: 1_700_000_000.0,
        lambda: f"uid-{next(uids)}",
        lambda: f"{next(uids):05}",
    )
    for name in namespaces:
        api.create(Request(NAMESPACE), {"metadata": {"name": name}})
    running = await rest.start(api, RestConfig(port=0))
    try:
        async with aiohttp.ClientSession("http://{}:{}".format(*running.address)) as session:
            yield Server(api, session)
    finally:
        await running.close()
