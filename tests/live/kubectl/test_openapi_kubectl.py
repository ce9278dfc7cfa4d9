"""kubectl with the schema over HTTP: explain, strict validation and merge keys."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from kubectl_api import KUBECTL, Kubectl, served

from kdns.controlplane.apimachinery.kinds import (
    DEFINITION,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    POD,
    SERVICE,
    SERVICE_CIDR,
    Kind,
)

in_one_loop = pytest.mark.asyncio(loop_scope="module")
EXPLAINED = (SERVICE, ENDPOINT_SLICE, POD, DEPLOYMENT, SERVICE_CIDR, DEFINITION)
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")

WEB = """\
apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  type: NodePort
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


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    async with served(tmp_path) as kubectl:
        yield kubectl


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kubectl]:
    """kubectl at one server for all tests that only read."""
    async with served(tmp_path_factory.mktemp("explain")) as kubectl:
        yield kubectl


@in_one_loop
async def test_explain_shows_types_documentation_and_enums(reader: Kubectl) -> None:
    text = await reader("explain service.spec.ports")
    assert "FIELD: ports <[]ServicePort>" in text
    assert "port\t<integer> -required-\n    Port number the Service listens on." in text
    assert "targetPort\t<IntOrString>" in text
    assert "enum: SCTP, TCP, UDP" in text


@pytest.mark.parametrize("kind", EXPLAINED, ids=lambda kind: str(kind.kind))
@in_one_loop
async def test_kinds_can_be_explained_to_their_leaves(reader: Kubectl, kind: Kind) -> None:
    text = await reader(f"explain {kind.plural} --recursive")
    assert f"KIND:       {kind.kind}\n" in text
    assert "ownerReferences\t<[]OwnerReference>" in text


async def test_strict_validation_names_the_unknown_field(kubectl: Kubectl) -> None:
    run = await kubectl.run("apply -f -", WEB.replace("  type:", "  foo: 1\n  type:"))
    assert run.code == 1
    assert 'strict decoding error: unknown field "spec.foo"' in run.err
    assert "NotFound" in (await kubectl.run("get service web")).err


async def test_apply_merges_ports_by_their_key_and_dry_run_is_the_servers(kubectl: Kubectl) -> None:
    await kubectl("apply -f -", WEB)
    changed = WEB.replace("name: http\n    port: 80\n", "name: http\n    port: 8080\n")
    assert await kubectl("apply --dry-run=server -f -", changed) == "service/web configured (server dry run)\n"
    ports = "get service web -o jsonpath={.spec.ports[*].port}"
    assert await kubectl(ports) == "80 53"
    assert await kubectl("apply -f -", changed) == "service/web configured\n"
    assert await kubectl(ports) == "8080 53"
