"""kubectl with the schema over HTTP: explain, strict validation, merge keys and tables."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import ip_network
from pathlib import Path

import pytest
import pytest_asyncio
from kdns_process import WITHOUT_COLLECTION

from kdns.controlplane.apimachinery.kinds import (
    DEFINITION,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    NAMESPACE,
    POD,
    SERVICE_CIDR,
    Kind,
)
from kdns.controlplane.apimachinery.kinds import SERVICE as SERVICE_KIND
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.server.io import server as rest
from kdns.controlplane.server.io.authentication import RestConfig
from kdns.controlplane.server.registry import Registry, Request
from kdns.controlplane.storage.store import Store

in_one_loop = pytest.mark.asyncio(loop_scope="module")
NOW_S = 1_714_564_800.0
KUBECTL = shutil.which("kubectl") or ""
Run = Callable[..., Awaitable[tuple[int, str]]]

EXPLAINED = (SERVICE_KIND, ENDPOINT_SLICE, POD, DEPLOYMENT, SERVICE_CIDR, DEFINITION)
pytestmark = pytest.mark.skipif(not KUBECTL, reason="kubectl is not installed")

SERVICE = """\
apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  type: NodePort
  clusterIP: 10.96.0.9
  selector:
    app: web
  ports:
  - name: http
    port: 80
    nodePort: 30080
  - name: dns
    port: 53
    nodePort: 30053
    protocol: UDP
"""


@asynccontextmanager
async def served(home: Path) -> AsyncIterator[Run]:
    """Runs kubectl against a server of its own; returns the exit code and the output."""
    counter = itertools.count(1)
    api = Registry(
        Store(),
        ClusterConfig(service_cidrs=(ip_network("10.96.0.0/16"),)),
        lambda n: next(counter) % n,
        lambda: NOW_S,
        lambda: f"uid-{next(counter)}",
        lambda: f"{next(counter):05}",
    )
    api.create(Request(NAMESPACE), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    server = await rest.start(api, RestConfig(port=0))

    async def run(*arguments: str, stdin: str = "") -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            KUBECTL,
            f"--server=http://127.0.0.1:{server.address[1]}",
            f"--cache-dir={home / 'cache'}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **WITHOUT_COLLECTION, "KUBECONFIG": "/dev/null", "HOME": str(home)},
        )
        async with asyncio.timeout(90):
            out, _ = await process.communicate(stdin.encode())
        return process.returncode or 0, out.decode()

    yield run
    await server.close()


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Run]:
    async with served(tmp_path) as run:
        yield run


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def explain(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Run]:
    """`kubectl explain` against one server for all tests that only read."""
    async with served(tmp_path_factory.mktemp("explain")) as run:
        yield partial(run, "explain")


@in_one_loop
async def test_explain_shows_types_documentation_and_enums(explain: Run) -> None:
    code, text = await explain("service.spec.ports")
    assert code == 0, text
    assert "FIELD: ports <[]ServicePort>" in text
    assert "port\t<integer> -required-\n    Port number the Service listens on." in text
    assert "targetPort\t<IntOrString>" in text
    assert "enum: SCTP, TCP, UDP" in text


@pytest.mark.parametrize("kind", EXPLAINED, ids=lambda kind: str(kind.kind))
@in_one_loop
async def test_every_kind_can_be_explained_to_its_leaves(explain: Run, kind: Kind) -> None:
    code, text = await explain(kind.plural, "--recursive")
    assert code == 0, text
    assert f"KIND:       {kind.kind}\n" in text
    assert "ownerReferences\t<[]OwnerReference>" in text


async def test_strict_validation_names_the_unknown_field(kubectl: Run) -> None:
    code, text = await kubectl("apply", "-f", "-", stdin=SERVICE.replace("  type:", "  foo: 1\n  type:"))
    assert code == 1
    assert 'strict decoding error: unknown field "spec.foo"' in text
    assert "NotFound" in (await kubectl("get", "service", "web"))[1]


async def test_apply_merges_ports_by_their_key_and_dry_run_is_the_servers(kubectl: Run) -> None:
    assert (await kubectl("apply", "-f", "-", stdin=SERVICE))[0] == 0
    changed = SERVICE.replace("name: http\n    port: 80\n", "name: http\n    port: 8080\n")
    code, text = await kubectl("apply", "--dry-run=server", "-f", "-", stdin=changed)
    assert (code, text) == (0, "service/web configured (server dry run)\n")
    ports = ("get", "service", "web", "-o", "jsonpath={range .spec.ports[*]}{.name}={.port} {end}")
    assert await kubectl(*ports) == (0, "http=80 dns=53 ")
    assert await kubectl("apply", "-f", "-", stdin=changed) == (0, "service/web configured\n")
    assert await kubectl(*ports) == (0, "http=8080 dns=53 ")
