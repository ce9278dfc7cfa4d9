"""The time from a write to the API to the changed DNS answer, in `kdns up`: API, controllers and DNS in one process.

One query is always under way: as soon as its answer arrives the next one is sent, so a change is seen within one round
trip. Counted from the moment before the write is sent, and from the moment its reply arrives; the answer may have
changed before that, which shows as a time below zero.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, TypeAlias

import dnslib
from _process import Cores, free_port, read_until, running

Json: TypeAlias = dict[str, Any]
Seen: TypeAlias = tuple[int, bytes]
"""What of an answer matters here: the rcode, and the address of its last record, b"" without one."""

PATIENCE_S: Final = 10.0
SERVICES: Final = "/api/v1/namespaces/default/services"
SLICES: Final = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
MERGE: Final = "application/merge-patch+json"
NXDOMAIN: Final[Seen] = (3, b"")


@dataclass(frozen=True, slots=True)
class Write:
    """A request to the API, and the answer that must follow from it."""

    method: str
    path: str
    body: Json | None
    wanted: Seen
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class Took:
    """Milliseconds until the answer was another one."""

    from_write_ms: float
    from_reply_ms: float


def question(name: str) -> bytes:
    """A query for the address of a Service of the default namespace."""
    return bytes(dnslib.DNSRecord.question(f"{name}.default.svc.cluster.local", "A").pack())


def seen(response: bytes) -> Seen:
    """What the response says: a single A record without EDNS ends in its address."""
    return response[3] & 15, response[-4:] if response[7] else b""


def service(name: str, address: str) -> Json:
    """A Service without a selector."""
    spec = {"clusterIP": address, "ports": [{"name": "http", "port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def endpoint_slice(name: str, address: str) -> Json:
    """The only slice of a Service, with one endpoint."""
    labels = {"kubernetes.io/service-name": name}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "http", "port": 80}],
    }


def services_coming_and_going(count: int) -> Iterator[Write]:
    """A Service that is created and deleted again."""
    address = "10.96.200.1"
    for number in range(count):
        if number % 2:
            yield Write("DELETE", f"{SERVICES}/coming", None, NXDOMAIN)
        else:
            yield Write("POST", SERVICES, service("coming", address), (0, socket.inet_aton(address)))


def endpoints_moving(count: int) -> Iterator[Write]:
    """A headless Service whose only endpoint moves to another address."""
    for number in range(count):
        address = f"10.200.{number // 250 % 250}.{number % 250 + 1}"
        patch = {"endpoints": [{"addresses": [address], "conditions": {"ready": True}}]}
        yield Write("PATCH", f"{SLICES}/moving", patch, (0, socket.inet_aton(address)), MERGE)


@contextmanager
def kdns_up(cores: Cores) -> Iterator[tuple[HTTPConnection, socket.socket]]:
    """A cluster of its own on one core; connections to its API and its DNS."""
    with tempfile.TemporaryDirectory(prefix="kdns-bench-") as name:
        folder, dns, api = Path(name), free_port(), free_port()
        command = [str(Path(sys.executable).with_name("kdns")), "up", "--kubeconfig", str(folder / "kubeconfig")]
        argv = [*command, "--dns", f"127.0.0.1:{dns}", "--api", f"127.0.0.1:{api}"]
        with (
            running(argv, cores.server, folder / "log") as process,
            socket.socket(type=socket.SOCK_DGRAM) as resolver,
        ):
            read_until(process, "ready", folder / "log")
            resolver.connect(("127.0.0.1", dns))
            connection = HTTPConnection("127.0.0.1", api, timeout=PATIENCE_S)
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield connection, resolver
            connection.close()


def send(connection: HTTPConnection, write: Write) -> None:
    """Send a write without waiting for its reply."""
    body = json.dumps(write.body) if write.body else None
    connection.request(write.method, write.path, body, {"Content-Type": write.content_type})


def finish(connection: HTTPConnection) -> None:
    """Read the reply; SystemExit unless it is a success."""
    response = connection.getresponse()
    body = response.read()
    if response.status >= 300:
        raise SystemExit(f"the API refused: {response.status} {body[:500].decode('utf-8', 'replace')}")


def took(connection: HTTPConnection, resolver: socket.socket, packet: bytes, write: Write) -> Took:
    """Make one change and wait until it shows."""
    replied_s = changed_s = 0.0
    resolver.send(packet)
    began_s = time.perf_counter()
    send(connection, write)
    while not (replied_s and changed_s):
        readable, _, _ = select.select([resolver] * (not changed_s) + [connection.sock] * (not replied_s), [], [], 0.5)
        now_s = time.perf_counter()
        if connection.sock in readable:
            replied_s = now_s
            finish(connection)
        if resolver in readable and seen(resolver.recv(4096)) == write.wanted:
            changed_s = now_s
        elif not changed_s and (resolver in readable or not readable):
            resolver.send(packet)
        if now_s - began_s > PATIENCE_S:
            raise SystemExit(f"{write.method} {write.path}: the answer is not {write.wanted} after {PATIENCE_S:g} s")
    return Took((changed_s - began_s) * 1e3, (changed_s - replied_s) * 1e3)


def row(label: str, values: list[Took]) -> str:
    """One line of the table."""
    figures = []
    for name in ("from_write_ms", "from_reply_ms"):
        sample = [getattr(value, name) for value in values]
        figures += [f"{statistics.median(sample):.2f}", f"{statistics.quantiles(sample, n=100)[98]:.2f}"]
    return f"| {label} | {len(values):,} | {' | '.join(figures)} |"


def main() -> None:
    """Make the changes and print how long each sort took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=1000, help="of each sort, at least 2")
    parser.add_argument("--services", type=int, default=1000, help="that are there already")
    options = parser.parse_args()
    if options.changes < 2:
        parser.error("--changes: a distribution needs at least 2")
    with kdns_up(Cores.of_this_machine()) as (connection, resolver):
        prepared = [("POST", SERVICES, service(f"other-{number}", "")) for number in range(options.services)]
        prepared.append(("POST", SERVICES, service("moving", "None")))
        prepared.append(("POST", SLICES, endpoint_slice("moving", "10.199.0.1")))
        for method, path, body in prepared:
            send(connection, Write(method, path, body, NXDOMAIN))
            finish(connection)
        print("| change | times | from write, p50 ms | p99 ms | from reply, p50 ms | p99 ms |")
        print("|---|---|---|---|---|---|")
        sorts = (
            ("Service created or deleted", "coming", services_coming_and_going),
            ("endpoint of a headless Service moved", "moving", endpoints_moving),
        )
        for label, name, writes in sorts:
            packet = question(name)
            values = [took(connection, resolver, packet, write) for write in writes(options.changes)]
            print(row(label, values), flush=True)


if __name__ == "__main__":
    main()
