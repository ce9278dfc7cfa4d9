"""A node's rules: from the start of `kdns proxy` until they are in the kernel, and what one change of endpoints takes.

Needs root, unshare and nft: everything happens in a network namespace of its own. The API is a program that lists
Services with ENDPOINTS endpoints each, and tells watchers of one changed EndpointSlice after the other. A change is
timed from when it is written to the watch until nftables tells of the transaction.

Figures of kube-proxy 1.36 in mode nftables are from one earlier run on such a machine, with nft 1.0.6.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from pathlib import Path
from statistics import quantiles
from typing import Any, Final, NamedTuple

from _process import TICKS_PER_S, Cores, read_until, running
from aiohttp import web

from kdns.aio.netlink import NETFILTER, attributes, messages, opened

Json = dict[str, Any]

ENDPOINTS: Final = 5
NODES: Final = 100
NODE: Final = "node-0"
CHANGES: Final = 60
PAUSE_S: Final = 0.1
PATIENCE_S: Final = 30.0
FIRST_IP, FIRST_POD = int(ip_address("10.96.0.10")), int(ip_address("10.128.0.1"))
KUBE_PROXY: Final = {
    1000: (0.84, 144.0, 161.0, 78),
    5000: (3.7, 1070.0, 1100.0, 144),
    10000: (13.4, 3800.0, 4000.0, 268),
}
"""By Services: start in s, one change p50 in ms, CPU per change in ms, RSS in MiB."""


class Figures(NamedTuple):
    """What one size took."""

    start_s: float
    change_p50_ms: float
    change_p99_ms: float
    cpu_ms: float
    rss_mib: float
    peak_mib: float


def service(number: int) -> Json:
    """One Service."""
    ip = str(ip_address(FIRST_IP + number))
    port = {"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}
    spec: Json = {"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv4"], "ports": [port]}
    spec |= {"internalTrafficPolicy": "Cluster", "sessionAffinity": "None", "selector": {"app": f"svc-{number}"}}
    return {"metadata": {"name": f"svc-{number}", "namespace": "bench", "resourceVersion": "1"}, "spec": spec}


def endpoint_slice(number: int, endpoints: int, version: int = 1) -> Json:
    """Its EndpointSlice, with so many endpoints."""
    rows = [
        {
            "addresses": [str(ip_address(FIRST_POD + number * ENDPOINTS + place))],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "nodeName": f"node-{(number + place) % NODES}",
            "targetRef": {"kind": "Pod", "name": f"svc-{number}-{place}", "namespace": "bench"},
        }
        for place in range(endpoints)
    ]
    labels = {"kubernetes.io/service-name": f"svc-{number}"}
    metadata = {"name": f"svc-{number}-x", "namespace": "bench", "labels": labels, "resourceVersion": str(version)}
    ports = [{"name": "http", "port": 8080, "protocol": "TCP"}]
    return {"metadata": metadata, "addressType": "IPv4", "endpoints": rows, "ports": ports}


async def serve_api(count: int) -> None:
    """Serve the objects; each line on standard input is the number of a Service that loses an endpoint."""
    node: Json = {"metadata": {"name": NODE}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}
    items: dict[str, list[Json]] = {
        "/api/v1/services": [service(number) for number in range(count)],
        "/apis/discovery.k8s.io/v1/endpointslices": [endpoint_slice(number, ENDPOINTS) for number in range(count)],
        "/apis/networking.k8s.io/v1/servicecidrs": [{"metadata": {"name": "all"}, "spec": {"cidrs": ["10.96.0.0/16"]}}],
        "/api/v1/nodes": [node],
    }
    pages: dict[tuple[str, int, int], bytes] = {}

    def page(request: web.Request) -> bytes:
        found = items[request.path]
        start, limit = int(request.query.get("continue") or 0), int(request.query.get("limit") or len(found))
        following = str(start + limit) if start + limit < len(found) else ""
        metadata = {"resourceVersion": "1", "continue": following}
        made = {"kind": "List", "metadata": metadata, "items": found[start : start + limit]}
        return pages.setdefault((request.path, start, limit), json.dumps(made).encode())

    watches: list[web.StreamResponse] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(body=page(request), content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if request.path.endswith("slices"):
            watches.append(response)
        await asyncio.Event().wait()
        return response

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    version = 1
    while line := await reader.readline():
        version += 1
        changed = endpoint_slice(int(line), ENDPOINTS - 1, version)
        event = json.dumps({"type": "MODIFIED", "object": changed}).encode() + b"\n"
        print(time.monotonic(), flush=True)
        for watch in watches:
            await watch.write(event)


def cpu_s(pid: int) -> float:
    """User and system time of a process and of its children that have ended, in seconds (proc(5), fields 14 to 17)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS_PER_S


def memory_mib(pid: int, what: str) -> float:
    """VmRSS or VmHWM of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:")) / 1024


def drain(monitor: socket.socket) -> None:
    """Forget what nftables has told so far."""
    monitor.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            monitor.recv(1 << 18)
    monitor.settimeout(PATIENCE_S)


def wait_for_transaction(monitor: socket.socket) -> float:
    """When nftables told of the next transaction on kdns's table."""
    is_ours = False
    while True:
        for message in messages(monitor.recv(1 << 18)):
            kind = message.kind & 0xFF
            if kind == 15 and is_ours:
                return time.monotonic()
            is_ours = kind != 15 and (is_ours or attributes(message.body, 4).get(1) == b"kdns\0")


def measured(count: int, folder: Path) -> Figures:
    """One size."""
    cores = Cores.of_this_machine()
    with ExitStack() as leaving:
        program = [sys.executable, __file__, "--api", str(count)]
        api = leaving.enter_context(subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        leaving.callback(api.terminate)
        assert api.stdin  # noqa: S101 - asked for
        assert api.stdout  # noqa: S101 - asked for
        port = api.stdout.readline().strip()
        kdns = [str(Path(sys.executable).parent / "kdns"), "--log-level", "warning", "proxy"]
        settings = ["--hostname-override", NODE, "--cluster-cidr", "10.128.0.0/9", "--iptables-min-sync-period", "10ms"]
        log = folder / "proxy.log"
        began_s = time.monotonic()
        process = leaving.enter_context(
            running([*kdns, "--master", f"http://127.0.0.1:{port}", *settings], cores.server | cores.others, log)
        )
        read_until(process, "ready", log)
        start_s = time.monotonic() - began_s
        elements = subprocess.run(["nft", "list", "map", "ip", "kdns", "service-ips"], capture_output=True, check=True)
        if (found := elements.stdout.count(b"goto")) != count:
            raise SystemExit(f"{found} fronts in the kernel, wanted {count}")
        monitor = opened(NETFILTER, 7)
        leaving.callback(monitor.close)
        time.sleep(2)
        took_ms, cpu_before_s = [], cpu_s(process.pid)
        for number in range(CHANGES):
            drain(monitor)
            api.stdin.write(f"{number * 13 % count}\n")
            api.stdin.flush()
            written_s = float(api.stdout.readline())
            took_ms.append((wait_for_transaction(monitor) - written_s) * 1e3)
            time.sleep(PAUSE_S)
        cpu_ms = (cpu_s(process.pid) - cpu_before_s) / CHANGES * 1e3
        percent = quantiles(took_ms, n=100)
        pid = process.pid
        return Figures(start_s, percent[49], percent[98], cpu_ms, memory_mib(pid, "VmRSS"), memory_mib(pid, "VmHWM"))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[1000, 5000, 10000])
    parser.add_argument("--api", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.api:
        asyncio.run(serve_api(arguments.api))
        return
    if not arguments.inside:
        if os.geteuid() != 0:
            print("left out: it needs root, since it makes a network namespace")
            return
        own = [sys.executable, __file__, "--inside", *map(str, arguments.sizes)]
        sys.exit(subprocess.run(["unshare", "--net", *own], check=False).returncode)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    print("| Services x 5 | | start | one change, p50 | p99 | CPU per change | RSS | peak |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for size in arguments.sizes:
            got = measured(size, Path(folder))
            change = f"{got.change_p50_ms:.1f} ms | {got.change_p99_ms:.1f} ms | {got.cpu_ms:.1f} ms"
            memory = f"{got.rss_mib:.0f} MiB | {got.peak_mib:.0f} MiB"
            print(f"| {size:,} | kdns | {got.start_s:.2f} s | {change} | {memory} |", flush=True)
            if peer := KUBE_PROXY.get(size):
                figures = f"{peer[0]:.2f} s | {peer[1]:.0f} ms | | {peer[2]:.0f} ms | {peer[3]} MiB"
                print(f"| | kube-proxy | {figures} | |", flush=True)


if __name__ == "__main__":
    main()
