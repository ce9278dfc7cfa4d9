"""The cluster that the benchmarks ask about, as Kubernetes objects and as a zone file; and an API that serves it.

`svc-N` has a cluster IP and one named port, `set-N` is headless with ENDPOINTS ready endpoints. Run as a program it is
the API: lists in pages, watches that stay open and say only that they live. It prints its port.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from ipaddress import ip_address
from typing import Any, Final

from aiohttp import web

from kdns.cluster.watch import RESOURCES

Json = dict[str, Any]

ZONE: Final = "cluster.local"
NAMESPACE: Final = "bench"
BASE: Final = f"{NAMESPACE}.svc.{ZONE}"
ENDPOINTS: Final = 5
TTL_S: Final = 30
BOOKMARK_S: Final = 30.0
VERSION: Final = "1000"
FIRST_CLUSTER_IP: Final = int(ip_address("10.96.0.10"))
FIRST_ENDPOINT_IP: Final = int(ip_address("10.128.0.1"))


TYPES: Final[dict[str, Json]] = {
    each.path: {"kind": each.kind.__name__, "apiVersion": each.api_version} for each in RESOURCES.values()
}
"""kind and apiVersion of the objects at each path."""


def list_type(path: str) -> Json:
    """kind and apiVersion of the list at this path."""
    return TYPES[path] | {"kind": f"{TYPES[path]['kind']}List"}


def cluster_ip(number: int) -> str:
    """The address of svc-`number`."""
    return str(ip_address(FIRST_CLUSTER_IP + number))


def endpoint_ips(number: int) -> list[str]:
    """The addresses behind set-`number`."""
    first = FIRST_ENDPOINT_IP + number * ENDPOINTS
    return [str(ip_address(first + offset)) for offset in range(ENDPOINTS)]


def objects(count: int) -> dict[str, list[Json]]:
    """All objects by the path they are listed at; `count` Services of each sort."""

    def service(name: str, address: str) -> Json:
        port = {"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}
        spec = {"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address], "ports": [port]}
        return {"metadata": {"name": name, "namespace": NAMESPACE, "resourceVersion": VERSION}, "spec": spec}

    def endpoint_slice(number: int) -> Json:
        labels = {"kubernetes.io/service-name": f"set-{number}"}
        endpoints = [{"addresses": [ip], "conditions": {"ready": True}} for ip in endpoint_ips(number)]
        return {
            "metadata": {"name": f"set-{number}-x", "namespace": NAMESPACE, "labels": labels},
            "addressType": "IPv4",
            "endpoints": endpoints,
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        }

    return {
        "/api/v1/namespaces": [{"metadata": {"name": name}} for name in ("default", NAMESPACE)],
        "/api/v1/services": [
            *(service(f"svc-{number}", cluster_ip(number)) for number in range(count)),
            *(service(f"set-{number}", "None") for number in range(count)),
        ],
        "/apis/discovery.k8s.io/v1/endpointslices": [endpoint_slice(number) for number in range(count)],
    }


def zone_file(count: int) -> Iterator[str]:
    """The lines of a master file (RFC 1035 §5) with the records that the objects mean."""
    yield f"$ORIGIN {ZONE}."
    yield f"$TTL {TTL_S}"
    yield f"@ SOA ns.dns hostmaster 1 7200 1800 86400 {TTL_S}"
    yield "@ NS ns.dns"
    yield "ns.dns A 127.0.0.1"
    yield f"default.svc TXT {NAMESPACE}"  # the namespace exists, so search-path names stop below it
    for number in range(count):
        name = f"svc-{number}.{NAMESPACE}.svc"
        yield f"{name} A {cluster_ip(number)}"
        yield f"_http._tcp.{name} SRV 0 100 80 {name}"
        name = f"set-{number}.{NAMESPACE}.svc"
        for ip in endpoint_ips(number):
            host = f"{ip.replace('.', '-')}.{name}"
            yield f"{name} A {ip}"
            yield f"{host} A {ip}"
            yield f"_http._tcp.{name} SRV 0 {100 // ENDPOINTS} 8080 {host}"


async def listen(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> None:
    """Answer every GET on a free port of loopback, which is printed."""
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)


async def serve_api(count: int) -> None:
    """Serve the objects until the process is ended."""
    listed = objects(count)

    async def answer(request: web.Request) -> web.StreamResponse:
        items = listed.get(request.path)
        if items is None:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        if "watch" in request.query:
            return await watch(request)
        start, limit = int(request.query.get("continue") or 0), int(request.query.get("limit") or len(items))
        following = str(start + limit) if start + limit < len(items) else ""
        metadata = {"resourceVersion": VERSION, "continue": following}
        return web.json_response(
            list_type(request.path) | {"metadata": metadata, "items": items[start : start + limit]}
        )

    async def watch(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while True:
            bookmark = TYPES[request.path] | {"metadata": {"resourceVersion": VERSION}}
            await response.write(json.dumps({"type": "BOOKMARK", "object": bookmark}).encode() + b"\n")
            await asyncio.sleep(BOOKMARK_S)

    await listen(answer)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve_api(int(sys.argv[1])))
