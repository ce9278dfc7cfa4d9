"""`kdns up` and `kdns proxy` as processes in the node's namespace, and clients for what they serve."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

KDNS = str(Path(sys.executable).parent / "kdns")
DEADLINE_S = 60.0
Json = dict[str, Any]


@dataclass
class Started:
    """A process and what it has said so far, on both outputs."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    reader: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line)

    def wait_for(self, beginning: str) -> str:
        """The first line with this in it."""
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s:
            has_ended = not self.reader.is_alive()
            if found := next((line for line in list(self.lines) if beginning in line), ""):
                return found
            assert not has_ended, self.lines
            time.sleep(0.02)
        raise AssertionError(f"no line with {beginning!r} in {self.lines}")

    def stop(self) -> int:
        """End it as an orchestrator does; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """Wait for its end; its exit code."""
        code = self.process.wait(DEADLINE_S)
        self.reader.join(DEADLINE_S)
        if self.process.stdout:
            self.process.stdout.close()
        return code


def start(*arguments: str, folder: Path, capabilities: str = "") -> Started:
    """One of kdns's commands, with these capabilities as setpriv names them, or all of root's."""
    limited = ["setpriv", f"--bounding-set={capabilities}", "--inh-caps=-all"] if capabilities else []
    process = subprocess.Popen(
        [*limited, KDNS, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder
    )
    return Started(process)


@dataclass
class Api:
    """A client of the control plane."""

    url: str

    def ask(self, method: str, path: str, body: Json | None = None, kind: str = "application/json") -> Json:
        request = Request(self.url + path, method=method, data=json.dumps(body).encode() if body else None)  # noqa: S310
        request.add_header("Content-Type", kind)
        with urlopen(request, timeout=DEADLINE_S) as response:  # noqa: S310 - of the test's own server
            found: Json = json.load(response)
            return found

    def put(self, path: str, obj: Json) -> Json:
        return self.ask("PATCH", f"{path}?fieldManager=test&force=true", obj, "application/apply-patch+yaml")

    def service(self, name: str, **spec: Any) -> Json:
        """A Service of port 80 without a selector."""
        protocol = spec.pop("protocol", "TCP")
        spec = {"ports": [{"name": "p", "port": 80, "protocol": protocol}], **spec}
        meta = {"name": name, "namespace": "default"}
        path = f"/api/v1/namespaces/default/services/{name}"
        return self.put(path, {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})

    def endpoints(self, service: str, *addresses: str, protocol: str = "TCP", node: str = "kdns") -> None:
        """Its endpoints, all of this node unless told otherwise."""
        labels = {"kubernetes.io/service-name": service}
        endpoints = [{"addresses": [address], "conditions": {"ready": True}, "nodeName": node} for address in addresses]
        made = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"{service}-1", "namespace": "default", "labels": labels},
            "addressType": "IPv4",
            "endpoints": endpoints,
            "ports": [{"name": "p", "port": 8080, "protocol": protocol}],
        }
        self.put(f"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/{service}-1", made)


def fetched(url: str) -> tuple[int, str, dict[str, str]]:
    try:
        with urlopen(url, timeout=DEADLINE_S) as response:  # noqa: S310
            return response.status, response.read().decode(), dict(response.headers)
    except HTTPError as error:
        with error:
            return error.code, error.read().decode(), dict(error.headers)
    except OSError as error:
        return 0, str(error), {}


async def until(wanted: Any, ask: Callable[[], Awaitable[Any]]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while (found := await ask()) != wanted:
        assert time.monotonic() < deadline_s, f"wanted {wanted}, got {found}"
        await asyncio.sleep(0.05)
