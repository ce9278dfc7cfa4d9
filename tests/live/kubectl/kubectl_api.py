"""Real kubectl against an API server in this process: no controllers, the API alone."""

import asyncio
import json
import os
import random
import shutil
import string
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kdns_process import WITHOUT_COLLECTION

from kdns.controlplane.apimachinery.kinds import NAMESPACE, SERVICE, Json
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.server.io import server as rest
from kdns.controlplane.server.io.authentication import RestConfig
from kdns.controlplane.server.registry import Registry, Request
from kdns.controlplane.storage.store import Store

KUBECTL = shutil.which("kubectl")


@dataclass(frozen=True)
class Run:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Json:
        shown: Json = json.loads(self.out)
        return shown


class Kubectl:
    """kubectl with a kubeconfig and a home of its own."""

    def __init__(self, api: Registry, url: str, home: Path) -> None:
        self.api, self.home = api, home
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kdns", "cluster": {"server": url}}],
            "users": [{"name": "kdns", "user": {}}],
            "contexts": [{"name": "kdns", "context": {"cluster": "kdns", "user": "kdns"}}],
            "current-context": "kdns",
        }
        (home / "config").write_text(json.dumps(config))
        self.env = {
            **os.environ,
            **WITHOUT_COLLECTION,
            "HOME": str(home),
            "TMPDIR": str(home),
            "KUBECONFIG": str(home / "config"),
            "KUBE_EDITOR": str(home / "editor"),
        }

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        assert KUBECTL
        return await asyncio.create_subprocess_exec(
            KUBECTL, *arguments, env=self.env, stdin=pipe, stdout=pipe, stderr=pipe
        )

    async def run(self, command: str, stdin: str = "") -> Run:
        """The command, split at spaces."""
        process = await self.start(*command.split())
        async with asyncio.timeout(90):
            out, err = await process.communicate(stdin.encode())
        return Run(process.returncode or 0, out.decode(), err.decode())

    async def __call__(self, command: str, stdin: str = "") -> str:
        """The output of a command that works."""
        done = await self.run(command, stdin)
        assert done.code == 0, f"kubectl {command}: {done.err}"
        return done.out

    def service(self) -> Json:
        return self.api.get(Request(SERVICE, "default", "my-service"))

    def edit_with(self, script: str) -> None:
        """Let `kubectl edit` change its file by a shell script that finds it as $1."""
        (self.home / "editor").write_text(f"#!/bin/sh\n{script}\n")
        (self.home / "editor").chmod(0o755)


@asynccontextmanager
async def served(home: Path) -> AsyncIterator[Kubectl]:
    """A fresh API with two namespaces, on loopback."""
    api = Registry(
        Store(),
        ClusterConfig(),
        random.randrange,
        time.time,
        lambda: str(uuid.uuid4()),
        lambda: "".join(random.choices(string.ascii_lowercase, k=5)),
    )
    for name in ("default", "kube-system"):
        api.create(Request(NAMESPACE), {"metadata": {"name": name}})
    server = await rest.start(api, RestConfig(port=0))
    host, port = server.address
    yield Kubectl(api, f"http://{host}:{port}", home)
    await server.close()
