"""A node under measurement: `kdns proxy` beside an API with many Services that says what is asked of it.

As a program, with a number of Services, it is that API: it lists them with ENDPOINTS endpoints each, and tells watchers
of one changed EndpointSlice after the other.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, NamedTuple

from _cluster import TYPES, list_type, listen
from _process import Cores, descendants, own_cpu_s, read_until, running
from aiohttp import web

Json = dict[str, Any]

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
SLICES: Final = "/apis/discovery.k8s.io/v1/endpointslices"
ENDPOINTS: Final = 5
PORT: Final = 80
NODES: Final = 100
NODE: Final = "node-0"
METRICS: Final = "127.0.0.1:10249"
"""Where the node's metrics are, by default."""
LOOK_EVERY_S: Final = 0.02
FIRST_IP, FIRST_POD = int(ip_address("10.96.0.10")), int(ip_address("10.128.0.1"))


class NodeUnderTest(NamedTuple):
    """The API's ends, `kdns proxy`, how long it took until its rules were in the kernel, and its memory."""

    api: subprocess.Popen[str]
    pid: int
    start_s: float
    start_cpu_s: float
    peak: Peak

    def change(self, number: int, endpoints: int) -> None:
        """Have the API tell that a Service has so many endpoints."""
        assert self.api.stdin  # noqa: S101 - asked for
        self.api.stdin.write(f"{number} {endpoints}\n")
        self.api.stdin.flush()

    def written_s(self) -> float:
        """When the next change was written to the watch."""
        assert self.api.stdout  # noqa: S101 - asked for
        return float(self.api.stdout.readline())


@contextmanager
def node(count: int, folder: Path, min_sync: str, mode: str = "nftables") -> Iterator[NodeUnderTest]:
    """`kdns proxy` at work in this mode for so many Services."""
    cores, log = Cores.of_this_machine(), folder / "proxy.log"
    program = [sys.executable, __file__, str(count)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as api:
        try:
            assert api.stdout  # noqa: S101 - asked for
            port = api.stdout.readline().strip()
            kdns = [str(Path(sys.executable).parent / "kdns"), "--log-level", "warning", "proxy"]
            settings = ["--hostname-override", NODE, "--cluster-cidr", "10.128.0.0/9"]
            settings += [
                "--proxy-mode",
                mode,
                *(f"--{each}-min-sync-period={min_sync}" for each in ("iptables", "ipvs")),
            ]
            source = ["--master", f"http://127.0.0.1:{port}"]
            began_s = time.monotonic()
            with running([*kdns, *settings, *source], cores.server | cores.others, log) as process:
                peak = Peak(process.pid)
                peak.start()
                read_until(process, "ready", log)
                took_s = time.monotonic() - began_s
                yield NodeUnderTest(api, process.pid, took_s, cpu_s(process.pid), peak)
        finally:
            api.terminate()


def cpu_s(pid: int) -> float:
    """CPU time of a process and its ended children, in seconds; theirs counts in ticks (proc(5), fields 16 and 17)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return own_cpu_s(pid) + sum(map(int, fields[13:15])) / TICKS_PER_S


class Peak(threading.Thread):
    """The most memory that a process and its children, such as nft, had at the same time, looked at now and then."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.mib = 0.0
        self._pid = pid

    def run(self) -> None:
        """Look until the process has ended."""
        with suppress(OSError, StopIteration):
            while True:
                self.mib = max(self.mib, memory_mib(self._pid, "VmRSS") + self._children_mib())
                time.sleep(LOOK_EVERY_S)

    def _children_mib(self) -> float:
        total = 0.0
        for child in descendants(self._pid):
            with suppress(OSError, StopIteration):  # it has ended meanwhile
                total += memory_mib(child, "VmRSS")
        return total


def metric(name: str) -> float:
    """The largest value of a metric of the node; 0 without one."""
    asked = HTTPConnection(METRICS)
    asked.request("GET", "/metrics")
    values = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", asked.getresponse().read().decode(), re.MULTILINE)
    asked.close()
    return max(map(float, values), default=0.0)


def memory_mib(pid: int, what: str) -> float:
    """VmRSS or VmHWM of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:")) / 1024


def front(number: int) -> tuple[str, int, str]:
    """Address, port and protocol of one Service."""
    return str(ip_address(FIRST_IP + number)), PORT, "TCP"


def service(number: int) -> Json:
    """One Service."""
    ip, exposed, protocol = front(number)
    port = {"name": "http", "port": exposed, "protocol": protocol, "targetPort": 8080}
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
    """Serve the objects. Each line on standard input is a Service's number and how many endpoints it has from now on.

    When that has been written to the watch is told on standard output.
    """
    node: Json = {"metadata": {"name": NODE}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}
    items: dict[str, list[Json]] = {
        "/api/v1/services": [service(number) for number in range(count)],
        SLICES: [endpoint_slice(number, ENDPOINTS) for number in range(count)],
        "/apis/networking.k8s.io/v1/servicecidrs": [{"metadata": {"name": "all"}, "spec": {"cidrs": ["10.96.0.0/16"]}}],
        "/api/v1/nodes": [node],
    }
    pages: dict[tuple[str, int, int], bytes] = {}

    def page(request: web.Request) -> bytes:
        found = items[request.path]
        start, limit = int(request.query.get("continue") or 0), int(request.query.get("limit") or len(found))
        following = str(start + limit) if start + limit < len(found) else ""
        metadata = {"resourceVersion": "1", "continue": following}
        made = list_type(request.path) | {"metadata": metadata, "items": found[start : start + limit]}
        return pages.setdefault((request.path, start, limit), json.dumps(made).encode())

    watches: list[web.StreamResponse] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path not in items:
            raise web.HTTPNotFound
        if "watch" not in request.query:
            return web.Response(body=page(request), content_type="application/json")
        if "sendInitialEvents" in request.query:  # lists are made in pages, as with Kubernetes before 1.34
            raise web.HTTPUnprocessableEntity
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if request.path == SLICES:
            watches.append(response)
        await asyncio.Event().wait()
        return response

    await listen(answer)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    version = 1
    while line := await reader.readline():
        version += 1
        number, endpoints = map(int, line.split())
        changed = endpoint_slice(number, endpoints, version)
        event = json.dumps({"type": "MODIFIED", "object": TYPES[SLICES] | changed}).encode() + b"\n"
        print(time.monotonic(), flush=True)
        for watch in list(watches):
            try:
                await watch.write(event)
            except ConnectionError:  # the proxy has ended it, and watches again
                watches.remove(watch)


if __name__ == "__main__":
    asyncio.run(serve_api(int(sys.argv[1])))
