"""The cluster that the benchmarks ask about, as Kubernetes objects and as a zone file; and an API that serves it.

`svc-N` has a cluster IP and one named port, `set-N` is headless with ENDPOINTS ready endpoints, and for a hundred of
these there is one `big-N` with 100 endpoints. Run as a program it is the API: lists in pages, and watches that stay
open; it prints its port. With a second argument N, `moving-0` to `moving-9` are headless Services with one endpoint,
and N times each second one of these endpoints gets another address. A third argument takes the place of ENDPOINTS.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from ipaddress import ip_address
from typing import Any, Final

from aiohttp import web

from kdns.cluster.watch import RESOURCES

Json = dict[str, Any]

ZONE: Final = "cluster.local"
NAMESPACE: Final = "bench"
BASE: Final = f"{NAMESPACE}.svc.{ZONE}"
REVERSE_ZONE: Final = "10.in-addr.arpa"
SLICES: Final = "/apis/discovery.k8s.io/v1/endpointslices"
ENDPOINTS: Final = 5
BIG_EVERY: Final = 100
BIG_ENDPOINTS: Final = 100
MOVING: Final = 10
TTL_S: Final = 30
BOOKMARK_S: Final = 30.0
VERSION: Final = "1000"
FIRST_CLUSTER_IP: Final = int(ip_address("10.96.0.10"))
FIRST_ENDPOINT_IP: Final = int(ip_address("10.128.0.1"))
FIRST_BIG_IP: Final = int(ip_address("10.144.0.1"))


TYPES: Final[dict[str, Json]] = {
    resource.path: {"kind": resource.kind.__name__, "apiVersion": resource.api_version}
    for resource in RESOURCES.values()
}
"""kind and apiVersion of the objects at each path."""


def list_type(path: str) -> Json:
    """kind and apiVersion of the list at this path."""
    return TYPES[path] | {"kind": f"{TYPES[path]['kind']}List"}


def cluster_ip(number: int) -> str:
    """The address of svc-`number`."""
    return str(ip_address(FIRST_CLUSTER_IP + number))


def endpoint_ips(number: int, endpoints: int = ENDPOINTS) -> list[str]:
    """The addresses behind set-`number`."""
    first = FIRST_ENDPOINT_IP + number * endpoints
    return [str(ip_address(first + offset)) for offset in range(endpoints)]


def big_services(count: int) -> range:
    """The numbers of the Services with BIG_ENDPOINTS endpoints, where there are `count` of each other sort."""
    return range(max(1, count // BIG_EVERY))


def big_ips(number: int) -> list[str]:
    """The addresses behind big-`number`."""
    first = FIRST_BIG_IP + number * BIG_ENDPOINTS
    return [str(ip_address(first + offset)) for offset in range(BIG_ENDPOINTS)]


def moving_ip(number: int, move: int) -> str:
    """The only address behind moving-`number` after so many moves."""
    return f"10.250.{number}.{move % 250 + 1}"


def service(name: str, address: str) -> Json:
    """A Service with one named port; address "None" makes it headless."""
    port = {"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}
    spec = {"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address], "ports": [port]}
    return {"metadata": {"name": name, "namespace": NAMESPACE, "resourceVersion": VERSION}, "spec": spec}


def endpoint_slice(name: str, addresses: list[str]) -> Json:
    """The only slice of a Service."""
    return {
        "metadata": {"name": f"{name}-x", "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [ip], "conditions": {"ready": True}} for ip in addresses],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    }


def objects(count: int, *, moving: int = 0, endpoints: int = ENDPOINTS) -> dict[str, list[Json]]:
    """All objects by the path they are listed at; `count` Services of each sort."""
    behind = {f"set-{number}": endpoint_ips(number, endpoints) for number in range(count)}
    behind |= {f"big-{number}": big_ips(number) for number in big_services(count)}
    behind |= {f"moving-{number}": [moving_ip(number, 0)] for number in range(moving)}
    return {
        "/api/v1/namespaces": [{"metadata": {"name": name}} for name in ("default", NAMESPACE)],
        "/api/v1/services": [
            *(service(f"svc-{number}", cluster_ip(number)) for number in range(count)),
            *(service(name, "None") for name in behind),
        ],
        SLICES: [endpoint_slice(name, addresses) for name, addresses in behind.items()],
    }


def zone_file(count: int) -> Iterator[str]:
    """The lines of a master file (RFC 1035 §5) with the records of ZONE that the objects mean.

    It has the names of the first Pod of each headless Service, as `pods insecure` makes them.
    """
    yield from _apex(ZONE)
    yield f"default.svc TXT {NAMESPACE}"  # the namespace exists, so search-path names stop below it
    for number in range(count):
        name = f"svc-{number}.{NAMESPACE}.svc"
        yield f"{name} A {cluster_ip(number)}"
        yield f"_http._tcp.{name} SRV 0 100 80 {name}"
        yield from _headless(f"set-{number}.{NAMESPACE}.svc", endpoint_ips(number))
        yield f"{pod_name(number)} A {endpoint_ips(number)[0]}"
    for number in big_services(count):
        yield from _headless(f"big-{number}.{NAMESPACE}.svc", big_ips(number))


def reverse_zone_file(count: int) -> Iterator[str]:
    """The lines of the file of REVERSE_ZONE: the names of cluster IPs and of endpoints."""
    yield from _apex(REVERSE_ZONE)
    for number in range(count):
        yield f"{reverse_name(cluster_ip(number))}. PTR svc-{number}.{BASE}."
        for ip in endpoint_ips(number):
            yield f"{reverse_name(ip)}. PTR {ip.replace('.', '-')}.set-{number}.{BASE}."


def _apex(zone: str) -> Iterator[str]:
    yield f"$ORIGIN {zone}."
    yield f"$TTL {TTL_S}"
    yield f"@ SOA ns.dns hostmaster 1 7200 1800 86400 {TTL_S}"
    yield "@ NS ns.dns"
    yield "ns.dns A 127.0.0.1"


def _headless(name: str, addresses: list[str]) -> Iterator[str]:
    for ip in addresses:
        host = f"{ip.replace('.', '-')}.{name}"
        yield f"{name} A {ip}"
        yield f"{host} A {ip}"
        yield f"_http._tcp.{name} SRV 0 {100 // len(addresses)} 8080 {host}"


def pod_name(number: int) -> str:
    """The name of the first Pod behind set-`number`, below ZONE."""
    return f"{endpoint_ips(number)[0].replace('.', '-')}.{NAMESPACE}.pod"


def reverse_name(address: str) -> str:
    """Where the name of an address is."""
    return ip_address(address).reverse_pointer


async def listen(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> None:
    """Answer every GET on a free port of loopback, which is printed."""
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)


async def serve_api(count: int, changes_per_s: int = 0, endpoints: int = ENDPOINTS) -> None:
    """Serve the objects until the process is ended, and change some of them."""
    listed = objects(count, moving=MOVING if changes_per_s else 0, endpoints=endpoints)

    async def answer(request: web.Request) -> web.StreamResponse:
        items = listed.get(request.path)
        if items is None:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        if "sendInitialEvents" in request.query:  # as servers without the feature gate WatchList
            return web.json_response({"kind": "Status", "code": 422, "reason": "Invalid"}, status=422)
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
        async for event in (
            moves(changes_per_s) if changes_per_s and request.path == SLICES else bookmarks(request.path)
        ):
            await response.write(json.dumps(event).encode() + b"\n")
        return response

    await listen(answer)
    await asyncio.Event().wait()


async def bookmarks(path: str) -> AsyncIterator[Json]:
    """Events that say only that the watch lives."""
    while True:
        yield {"type": "BOOKMARK", "object": TYPES[path] | {"metadata": {"resourceVersion": VERSION}}}
        await asyncio.sleep(BOOKMARK_S)


async def moves(per_second: int) -> AsyncIterator[Json]:
    """One `moving-N` after the other gets another address, evenly over the time."""
    began_s = asyncio.get_running_loop().time()
    for move in itertools.count():
        name, round_ = f"moving-{move % MOVING}", move // MOVING + 1
        item = TYPES[SLICES] | endpoint_slice(name, [moving_ip(move % MOVING, round_)])
        item["metadata"]["resourceVersion"] = str(int(VERSION) + move + 1)
        yield {"type": "MODIFIED", "object": item}
        await asyncio.sleep(began_s + (move + 1) / per_second - asyncio.get_running_loop().time())


if __name__ == "__main__":
    asyncio.run(serve_api(*map(int, sys.argv[1:])))
