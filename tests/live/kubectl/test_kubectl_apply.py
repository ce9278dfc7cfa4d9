"""Real kubectl: the ways to apply, who manages what afterwards, and what it says when two want different things."""

import pytest
from kubectl_api import Kubectl

from kdns.controlplane.apimachinery.kinds import SERVICE
from kdns.controlplane.server.registry import Request

WEB = """
apiVersion: v1
kind: Service
metadata:
  name: my-service
  labels: {app: web}
spec:
  selector: {app: web}
  ports:
  - {name: http, port: 80, targetPort: 9376}
"""
CHANGED = WEB.replace("9376", "8080")
WIDE = WEB.replace("app: web}\nspec", "app: web, tier: front}\nspec") + "  - {name: tls, port: 443}\n"
SERVERSIDE = "service/my-service serverside-applied\n"
PORT = '.spec.ports[port=80,protocol="TCP"].targetPort'


def managers(kubectl: Kubectl) -> list[str]:
    entries = kubectl.service()["metadata"].get("managedFields") or []
    return [f"{entry['manager']} {entry['operation']}" for entry in entries]


def target_port(kubectl: Kubectl) -> int:
    port: int = kubectl.service()["spec"]["ports"][0]["targetPort"]
    return port


async def test_server_side_apply(kubectl: Kubectl) -> None:
    assert await kubectl("apply --server-side -f -", WIDE) == SERVERSIDE
    before = kubectl.service()
    assert await kubectl("apply --server-side -f -", WIDE) == SERVERSIDE
    assert kubectl.service() == before, "nothing was written"
    assert await kubectl("apply --server-side -f -", WEB) == SERVERSIDE
    assert [port["port"] for port in kubectl.service()["spec"]["ports"]] == [80]
    assert kubectl.service()["metadata"]["labels"] == {"app": "web"}
    assert managers(kubectl) == ["kubectl Apply"]
    assert await kubectl("apply --server-side --dry-run=server -f -", CHANGED) == (
        "service/my-service serverside-applied (server dry run)\n"
    )
    assert target_port(kubectl) == 9376


async def test_conflicts(kubectl: Kubectl) -> None:
    await kubectl("apply --server-side --field-manager=team -f -", WEB)
    refused = await kubectl.run("apply --server-side -f -", CHANGED)
    assert refused.code == 1
    assert f'error: Apply failed with 1 conflict: conflict with "team": {PORT}\n' in refused.err
    assert "re-run the apply\n  command with the `--force-conflicts` flag" in refused.err
    assert target_port(kubectl) == 9376
    assert await kubectl("apply --server-side --force-conflicts -f -", CHANGED) == SERVERSIDE
    assert target_port(kubectl) == 8080
    assert sorted(managers(kubectl)) == ["kubectl Apply", "team Apply"]
    await kubectl("label svc my-service app=mine --overwrite")
    refused = await kubectl.run("apply --server-side -f -", CHANGED)
    assert 'conflict with "kubectl-label" using v1: .metadata.labels.app' in refused.err


async def test_from_client_side_apply_to_server_side_apply(kubectl: Kubectl) -> None:
    await kubectl("apply -f -", WIDE)
    assert await kubectl("apply --server-side -f -", CHANGED) == SERVERSIDE, "kubectl hands over to itself"
    service = kubectl.service()
    assert [port["targetPort"] for port in service["spec"]["ports"]] == [8080], "what the old way set is pruned too"
    assert service["metadata"]["labels"] == {"app": "web"}


async def test_from_server_side_apply_to_client_side_apply(kubectl: Kubectl) -> None:
    await kubectl("apply --server-side -f -", WEB)
    done = await kubectl.run("apply -f -", CHANGED)
    assert (done.code, done.out) == (0, "service/my-service configured\n")
    assert "missing the kubectl.kubernetes.io/last-applied-configuration annotation" in done.err
    assert target_port(kubectl) == 8080
    assert await kubectl("apply -f -", CHANGED) == "service/my-service unchanged\n"
    assert await kubectl("apply --server-side -f -", WEB) == SERVERSIDE, "its own client-side apply is no conflict"
    assert target_port(kubectl) == 9376
    assert '"targetPort": 9376' in await kubectl("apply view-last-applied svc my-service -o json")


@pytest.mark.parametrize("way", ["--server-side", "--server-side=false"])
async def test_diff(kubectl: Kubectl, way: str) -> None:
    assert (await kubectl.run(f"diff {way} -f -", WEB)).code == 1, "all of it is new"
    await kubectl(f"apply {way} -f -", WEB)
    same = await kubectl.run(f"diff {way} -f -", WEB)
    assert (same.code, same.out) == (0, "")
    found = await kubectl.run(f"diff {way} -f -", CHANGED)
    assert found.code == 1
    lines = [line for line in found.out.splitlines() if line[:1] in "+-" and line[:3] not in {"+++", "---"}]
    assert lines == ["-    targetPort: 9376", "+    targetPort: 8080"]
    assert target_port(kubectl) == 9376


async def test_prune(kubectl: Kubectl) -> None:
    other = WEB.replace("name: my-service", "name: other")
    await kubectl("apply -f -", f"{WEB}\n---\n{other}")
    pruned = await kubectl("apply --prune -l app=web --prune-allowlist=core/v1/Service -f -", WEB)
    assert pruned == "service/my-service unchanged\nservice/other pruned\n"
    assert [obj["metadata"]["name"] for obj in kubectl.api.list(Request(SERVICE, "default")).items] == ["my-service"]


async def test_apply_sets(kubectl: Kubectl) -> None:
    kubectl.env["KUBECTL_APPLYSET"] = "true"
    other = WEB.replace("name: my-service", "name: other")
    flags = "-n default --prune --applyset=configmaps/mine --server-side -f -"
    assert await kubectl(f"apply {flags}", f"{WEB}\n---\n{other}") == f"{SERVERSIDE}service/other serverside-applied\n"
    assert await kubectl(f"apply {flags}", WEB) == f"{SERVERSIDE}service/other pruned\n"
    assert [obj["metadata"]["name"] for obj in kubectl.api.list(Request(SERVICE, "default")).items] == ["my-service"]


async def test_dry_runs_and_edits_that_change_nothing(kubectl: Kubectl) -> None:
    assert await kubectl("create --dry-run=server -f -", WEB) == "service/my-service created (server dry run)\n"
    assert await kubectl("apply --dry-run=server -f -", WEB) == "service/my-service created (server dry run)\n"
    assert not kubectl.api.list(Request(SERVICE, "default")).items
    await kubectl("apply -f -", WEB)
    kubectl.edit_with("true")
    assert (await kubectl.run("edit svc my-service")).err == "Edit cancelled, no changes made.\n"
    kubectl.edit_with('sed -i "s/port: 80$/port: 0/" "$1"')
    refused = await kubectl.run("edit svc my-service")
    assert 'services "my-service" is invalid' in refused.err
    assert kubectl.service()["spec"]["ports"][0]["port"] == 80


@pytest.mark.parametrize(
    ("kind", "version", "apply"),
    [
        ("LeaseCandidate", "coordination.k8s.io/v1beta1", "apply -f -"),
        ("ComponentStatus", "v1", "create -f -"),
        ("Widget", "example.com/v1", "apply --server-side -f -"),
    ],
)
async def test_a_kind_that_is_not_served_keeps_nothing_else_back(
    kubectl: Kubectl, kind: str, version: str, apply: str
) -> None:
    unknown = f"\napiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\nspec: {{}}\n---"
    run = await kubectl.run(apply, unknown + WEB)
    assert f'no matches for kind "{kind}" in version "{version}"' in run.err
    assert "service/my-service" in run.out
