"""What `control_plane.py` measures: kdns and, where it is installed, etcd, spoken to in the same way.

etcd is the store behind a kube-apiserver, not a peer in what it does: it keeps bytes under keys, with neither defaults,
validation, allocation nor JSON of its own (its HTTP gateway carries values in base64). A kube-apiserver is slower than
its etcd, so these figures are a bound for both together.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from _process import START_S, Cores, free_port, read_until, running

Json: TypeAlias = dict[str, Any]

SERVICES: Final = "/api/v1/namespaces/default/services"
SLICES: Final = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request."""

    method: str
    path: str
    body: bytes = b""


class Server(Protocol):
    """A running server: how to write, change and watch objects."""

    @property
    def port(self) -> int:
        """Where it listens on loopback."""
        ...

    @property
    def pid(self) -> int:
        """Its process."""
        ...

    def create(self, number: int) -> Request:
        """Make a Service."""
        ...

    def change(self, number: int) -> Request:
        """Write the object that is watched once more."""
        ...

    def revision(self, answer: bytes) -> int:
        """The revision of a change, from its answer."""
        ...

    def watch(self) -> Request:
        """Hear of all changes."""
        ...

    @property
    def seen(self) -> re.Pattern[bytes]:
        """Finds the revision in each event of a watch."""
        ...


def encoded(value: Json) -> bytes:
    """JSON as a client sends it."""
    return json.dumps(value, separators=(",", ":")).encode()


def service(number: int, **spec: Any) -> Json:
    """A Service with one named port."""
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"svc-{number}", "labels": {"app": f"app-{number}"}},
        "spec": {"ports": ports, **spec},
    }


def endpoint_slice(number: int, endpoints: int) -> Json:
    """The only slice of svc-`number`."""
    labels = {"kubernetes.io/service-name": f"svc-{number}"}
    rows = [
        {
            "addresses": [f"10.{128 + each}.{number >> 8 & 255}.{number & 255}"],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "nodeName": f"node-{each}",
        }
        for each in range(endpoints)
    ]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"svc-{number}-bench", "labels": labels},
        "addressType": "IPv4",
        "endpoints": rows,
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    }


@dataclass(frozen=True, slots=True)
class Kdns:
    """`kdns up`: API, controllers and DNS in one process. `selects` gives the Services selectors."""

    port: int
    pid: int
    selects: bool = False
    seen: re.Pattern[bytes] = re.compile(rb'"resourceVersion":"(\d+)"')

    def create(self, number: int) -> Request:
        """POST; with a selector, Endpoints and a slice follow it."""
        spec = {"selector": {"app": f"app-{number}"}} if self.selects else {}
        return Request("POST", SERVICES, encoded(service(number, **spec)))

    def change(self, number: int) -> Request:
        """PUT without a resourceVersion."""
        changed = service(0)
        changed["metadata"]["annotations"] = {"n": str(number)}
        return Request("PUT", f"{SERVICES}/svc-0", encoded(changed))

    def revision(self, answer: bytes) -> int:
        """metadata.resourceVersion."""
        return int(json.loads(answer)["metadata"]["resourceVersion"])

    def watch(self) -> Request:
        """From now on."""
        return Request("GET", f"{SERVICES}?watch=1&resourceVersionMatch=NotOlderThan&sendInitialEvents=false")


@contextmanager
def kdns_up(cores: Cores, folder: Path, *, data: Path | None = None, selects: bool = False) -> Iterator[Kdns]:
    """A cluster of its own on one core, ready."""
    port = free_port()
    argv = [str(Path(sys.executable).with_name("kdns")), "up", "--kubeconfig", str(folder / "kubeconfig")]
    argv += ["--dns", f"127.0.0.1:{free_port()}", "--api", f"127.0.0.1:{port}"]
    argv += ["--data", str(data)] if data else []
    with running(argv, cores.server, folder / "log") as process:
        read_until(process, "ready", folder / "log")
        yield Kdns(port, process.pid, selects)


@dataclass(frozen=True, slots=True)
class Etcd:
    """One etcd, durable as always, through its JSON gateway."""

    port: int
    pid: int
    seen: re.Pattern[bytes] = re.compile(rb'"mod_revision":"(\d+)"')

    def create(self, number: int) -> Request:
        """Put the Service's JSON."""
        return self._put(f"/registry/services/specs/default/svc-{number}", encoded(service(number)))

    def change(self, number: int) -> Request:
        """Put another."""
        return self._put("/registry/services/specs/default/svc-0", encoded(service(number)))

    def _put(self, key: str, value: bytes) -> Request:
        pair = {"key": b64encode(key.encode()).decode(), "value": b64encode(value).decode()}
        return Request("POST", "/v3/kv/put", encoded(pair))

    def revision(self, answer: bytes) -> int:
        """The store's revision after the put."""
        return int(json.loads(answer)["header"]["revision"])

    def watch(self) -> Request:
        """All keys below /registry/."""
        start, end = b64encode(b"/registry/").decode(), b64encode(b"/registry0").decode()
        return Request("POST", "/v3/watch", encoded({"create_request": {"key": start, "range_end": end}}))


@contextmanager
def etcd(program: str, cores: Cores, folder: Path) -> Iterator[Etcd]:
    """An etcd with a data directory of its own on one core, answering."""
    client, peer = free_port(), free_port()
    urls = {"client": f"http://127.0.0.1:{client}", "peer": f"http://127.0.0.1:{peer}"}
    argv = [program, "--data-dir", str(folder / "etcd"), "--log-level", "error", "--logger", "zap"]
    argv += ["--listen-client-urls", urls["client"], "--advertise-client-urls", urls["client"]]
    argv += ["--listen-peer-urls", urls["peer"], "--initial-advertise-peer-urls", urls["peer"]]
    argv += ["--initial-cluster", f"default={urls['peer']}"]
    with running(argv, cores.server, folder / "etcd.log") as process:
        until_answering(process, client, "/health")
        yield Etcd(client, process.pid)


def until_answering(process: subprocess.Popen[str], port: int, path: str) -> None:
    """Return at the first 200; SystemExit when the process ends or takes too long."""
    deadline_s = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline_s:
        # From another address: else it may meet itself on the server's port before the server is there.
        connection = HTTPConnection("127.0.0.1", port, timeout=START_S, source_address=("127.0.0.2", 0))
        try:
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.002)
    raise SystemExit(f"{process.args!r} does not answer")
