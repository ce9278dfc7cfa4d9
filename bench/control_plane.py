"""The control plane under load: creates, watch fan-out, lists, memory and restarts, of `kdns up` on one core.

Beside it etcd, where it is installed: what a kube-apiserver would have to store into and watch (see _servers.py).
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

from _fanout import fan_out
from _http import Connection, connected, sent_all
from _process import Cores, cpu_s, free_port, memory_mib, running
from _servers import SERVICES, SLICES, Kdns, Server, encoded, endpoint_slice, etcd, kdns_up, until_answering

TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
ENDPOINTS: Final = 15
FILLERS: Final = 8


def table(*columns: str) -> None:
    """The head of a Markdown table."""
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)


def row(*cells: object) -> None:
    """A line of it."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def creates(server: Server, connections: int, count: int, first: int) -> tuple[float, float, float]:
    """Creates a second, server CPU µs for each, and the 99th percentile of their times in ms."""
    took_ms: list[float] = []

    async def send(connection: Connection, number: int) -> None:
        request, began_s = server.create(first + number), time.perf_counter()
        await connection(request.method, request.path, request.body)
        took_ms.append((time.perf_counter() - began_s) * 1e3)

    before_s = cpu_s(server.pid)
    seconds = asyncio.run(sent_all(server.port, connections, count, send))
    cpu_us = (cpu_s(server.pid) - before_s) / count * 1e6
    return count / seconds, cpu_us, statistics.quantiles(took_ms, n=100)[98]


def measure_creates(options: argparse.Namespace, cores: Cores) -> None:
    """Fresh servers, each with a few creates that do not count."""
    table("creates of Services", "connections", "each second", "server CPU µs each", "p99 ms")
    kinds: list[tuple[str, Callable[[Path], AbstractContextManager[Server]]]] = [
        ("kdns, in memory", lambda folder: kdns_up(cores, folder)),
        ("kdns, `--data`", lambda folder: kdns_up(cores, folder, data=folder / "data")),
        ("kdns, in memory, with selectors", lambda folder: kdns_up(cores, folder, selects=True)),
    ]
    if options.etcd:
        kinds.append(("etcd, puts of the same", partial(etcd, options.etcd, cores)))
    for label, start in kinds:
        with tempfile.TemporaryDirectory(prefix="kdns-bench-") as name, start(Path(name)) as server:
            creates(server, 4, 200, 0)
            first = 200
            for connections in (1, 16):
                each_s, cpu_us, p99_ms = creates(server, connections, options.creates, first)
                first += options.creates
                row(label, connections, f"{each_s:,.0f}", f"{cpu_us:.0f}", f"{p99_ms:.1f}")


def measure_fan_out(options: argparse.Namespace, cores: Cores) -> None:
    """The same changes to the same number of clients."""
    table("watch fan-out", "events a second", "p50 ms", "p99 ms", "most ms", "server CPU %", "writes' p99 ms")
    kinds: list[tuple[str, Callable[[Path], AbstractContextManager[Server]], int]] = [
        ("kdns, in memory", lambda folder: kdns_up(cores, folder), options.watchers),
        ("kdns, `--data`", lambda folder: kdns_up(cores, folder, data=folder / "data"), options.watchers),
        ("kdns, in memory", lambda folder: kdns_up(cores, folder), 1),
    ]
    if options.etcd:
        kinds.append(("etcd", partial(etcd, options.etcd, cores), options.watchers))
    for label, start, watchers in kinds:
        with tempfile.TemporaryDirectory(prefix="kdns-bench-") as name, start(Path(name)) as server:
            creates(server, 1, 10, 0)
            found = asyncio.run(fan_out(server, watchers, options.rate, options.seconds))
            figures = [f"{value:.1f}" for value in (found.p50_ms, found.p99_ms, found.most_ms)]
            share, write = f"{found.cpu_percent:.0f}", f"{found.write_p99_ms:.1f}"
            row(f"{label}, {watchers} clients", f"{found.events / found.seconds:,.0f}", *figures, share, write)


async def fill(server: Kdns, services: int) -> None:
    """All Services, and for each a slice of endpoints."""

    async def send(connection: Connection, number: int) -> None:
        request = server.create(number)
        await connection(request.method, request.path, request.body)
        await connection("POST", SLICES, encoded(endpoint_slice(number, ENDPOINTS)))

    await sent_all(server.port, FILLERS, services, send)


async def listed(server: Kdns, limit: int, **headers: str) -> tuple[float, float, int]:
    """Milliseconds, server CPU ms and bytes of all pages of a list, the best of three."""
    best = (float("inf"), 0.0, 0)
    async with connected(server.port) as connection:
        for _ in range(3):
            began_s, before_s, size, token = time.perf_counter(), cpu_s(server.pid), 0, ""
            while True:
                page = f"&limit={limit}&continue={token}" if limit else ""
                answer = await connection("GET", f"{SERVICES}?{page}", b"", **headers)
                size += len(answer.body)
                token = continued(answer.body, headers) if limit else ""
                if not token:
                    break
            took_ms = (time.perf_counter() - began_s) * 1e3
            best = min(best, (took_ms, (cpu_s(server.pid) - before_s) * 1e3, size))
    return best


def continued(body: bytes, headers: dict[str, str]) -> str:
    """The continue token of a page."""
    text = gzip.decompress(body) if "Accept_Encoding" in headers and body[:2] == b"\x1f\x8b" else body
    found = re.search(rb'"continue":"([^"]*)"', text[:1000] + text[-1000:])
    return found[1].decode() if found else ""


def measure_lists(server: Kdns, services: int) -> None:
    """What clients ask for."""
    table(f"list of {services:,} Services", "ms", "server CPU ms", "MiB sent")
    zipped = {"Accept_Encoding": "gzip"}
    for label, limit, headers in (
        ("JSON", 0, {}),
        ("JSON, gzip", 0, zipped),
        ("JSON in pages of 500", 500, {}),
        ("JSON, gzip, pages of 500 (client-go)", 500, zipped),
        ("Table, gzip, pages of 500 (kubectl get)", 500, {**zipped, "Accept": TABLE}),
        ("Table", 0, {"Accept": TABLE}),
    ):
        took_ms, cpu_ms, size = asyncio.run(listed(server, limit, **headers))
        row(label, f"{took_ms:.0f}", f"{cpu_ms:.0f}", f"{size / 2**20:.1f}")


def measure_restart(options: argparse.Namespace, cores: Cores, folder: Path) -> None:
    """From exec to the first answer of the API, and to `ready`: DNS has the whole cluster."""
    table("restart", "API answers, s", "CPU until then, s", "ready, s", "CPU, s", "memory then, MiB")
    for _ in range(3):
        port = free_port()
        argv = [str(Path(sys.executable).with_name("kdns")), "up", "--kubeconfig", str(folder / "kubeconfig")]
        argv += ["--dns", f"127.0.0.1:{free_port()}", "--api", f"127.0.0.1:{port}", "--data", str(folder / "data")]
        began_s = time.perf_counter()
        with running(argv, cores.server, folder / "log") as process:
            until_answering(process, port, f"{SERVICES}/svc-{options.services - 1}")
            answers = time.perf_counter() - began_s, cpu_s(process.pid)
            until_ready(process)
            ready = time.perf_counter() - began_s, cpu_s(process.pid)
            held = memory_mib(process.pid)
        row("`kdns up --data`", *(f"{figure:.2f}" for figure in (*answers, *ready)), f"{held:.0f}")


def until_ready(process: subprocess.Popen[str]) -> None:
    """Read up to the line that says so."""
    for line in process.stdout or ():
        if line.startswith(("ready", "waiting")):
            return
    raise SystemExit("kdns up ended")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--creates", type=int, default=4000, help="for each row")
    parser.add_argument("--services", type=int, default=10_000, help="for lists, memory and restarts")
    parser.add_argument("--watchers", type=int, default=50)
    parser.add_argument("--rate", type=float, default=200.0, help="changes a second")
    parser.add_argument("--seconds", type=float, default=10.0, help="of changes")
    parser.add_argument("--etcd", default=shutil.which("etcd") or "", help="the program; empty for none")
    parser.add_argument("--only", choices=("creates", "fan-out", "size"), help="one part of it")
    options = parser.parse_args()
    cores = Cores.of_this_machine()
    if not options.etcd:
        print("etcd is not here (Debian package etcd-server) and left out", file=sys.stderr)
    if options.only in {None, "creates"}:
        measure_creates(options, cores)
    if options.only in {None, "fan-out"}:
        measure_fan_out(options, cores)
    if options.only in {None, "size"}:
        with tempfile.TemporaryDirectory(prefix="kdns-bench-") as name:
            folder = Path(name)
            with kdns_up(cores, folder, data=folder / "data") as server:
                empty = memory_mib(server.pid)
                asyncio.run(fill(server, options.services))
                measure_lists(server, options.services)
                table("memory", "MiB")
                row("without Services", f"{empty:.0f}")
                row(
                    f"{options.services:,} Services, {options.services * ENDPOINTS:,} endpoints",
                    f"{memory_mib(server.pid):.0f}",
                )
            measure_restart(options, cores, folder)


if __name__ == "__main__":
    main()
