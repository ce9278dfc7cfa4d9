"""kubectl builds, creates and understands the manifests of deploy/."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from kdns.runtime.files.yaml import documents

DEPLOY = Path(__file__).parents[3] / "deploy"
PROXY = DEPLOY / "proxy"


def objects(folder: Path) -> dict[str, Any]:
    names = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    found = [doc.value for name in names for doc in documents(name, (folder / name).read_text())]
    return {obj["kind"]: obj for obj in found}


OBJECTS, PROXY_OBJECTS = objects(DEPLOY), objects(PROXY)


RESOURCE_LISTS = {
    "v1": {"ConfigMap": "configmaps", "Service": "services", "ServiceAccount": "serviceaccounts"},
    "apps/v1": {"Deployment": "deployments"},
    "networking.k8s.io/v1": {"NetworkPolicy": "networkpolicies"},
    "policy/v1": {"PodDisruptionBudget": "poddisruptionbudgets"},
    "rbac.authorization.k8s.io/v1": {"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings"},
}


def resource_list(group_version: str) -> dict[str, Any]:
    return {
        "kind": "APIResourceList",
        "groupVersion": group_version,
        "resources": [
            {"name": plural, "singularName": kind.lower(), "kind": kind, "verbs": ["create"]}
            | {"namespaced": not kind.startswith("Cluster")}
            for kind, plural in RESOURCE_LISTS[group_version].items()
        ],
    }


async def discovery(request: web.Request) -> web.Response:
    """The kinds of a Kubernetes API, without any object."""
    groups = [name for name in RESOURCE_LISTS if "/" in name]
    answers: dict[str, Any] = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/api/v1": resource_list("v1"),
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [
                {"name": name.split("/")[0], "versions": [version], "preferredVersion": version}
                for name in groups
                for version in [{"groupVersion": name, "version": "v1"}]
            ],
        },
        **{f"/apis/{name}": resource_list(name) for name in groups},
    }
    if request.path not in answers:
        return web.json_response({"kind": "Status", "status": "Failure", "code": 404}, status=404)
    return web.json_response(answers[request.path])


async def kubectl(*arguments: str, home: Path) -> str:
    program = shutil.which("kubectl")
    if not program:
        pytest.skip("kubectl is not here: tests/install-debian-packages says how to get it")
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(90):
        stdout, stderr = await process.communicate()
    assert process.returncode == 0, stderr.decode()
    return stdout.decode()


async def test_kubectl_builds_the_kustomization(tmp_path: Path) -> None:
    built = await kubectl("kustomize", str(DEPLOY), home=tmp_path)
    assert {doc["kind"]: doc for doc in yaml.safe_load_all(built)} == OBJECTS


async def test_kubectl_creates_the_manifests(tmp_path: Path) -> None:
    app = web.Application()
    app.router.add_get("/{path:.*}", discovery)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server = f"--server=http://127.0.0.1:{runner.addresses[0][1]}"
        created = await kubectl(
            "create", server, "--dry-run=client", "--validate=false", "-k", str(DEPLOY), "-o", "name", home=tmp_path
        )
    finally:
        await runner.cleanup()
    assert set(created.split()) == {
        "serviceaccount/kdns",
        "clusterrole.rbac.authorization.k8s.io/kdns",
        "clusterrolebinding.rbac.authorization.k8s.io/kdns",
        "configmap/kdns",
        "deployment.apps/kdns",
        "service/kube-dns",
        "poddisruptionbudget.policy/kdns",
        "networkpolicy.networking.k8s.io/kdns",
    }


async def test_kubectl_understands_every_field_of_the_deployment(tmp_path: Path) -> None:
    """Going through kubectl's own types loses no field, so none is misspelt."""
    path = str(DEPLOY / "deployment.yaml")
    printed = await kubectl("set", "env", "--local", "-f", path, "ADDED=x", "-o", "yaml", home=tmp_path)
    typed = yaml.safe_load(printed)
    assert typed["spec"]["template"]["spec"]["containers"][0].pop("env") == [{"name": "ADDED", "value": "x"}]
    assert without_empty(typed) == without_empty(OBJECTS["Deployment"])


async def test_kubectl_understands_every_field_of_the_daemonset(tmp_path: Path) -> None:
    built = await kubectl("kustomize", str(PROXY), home=tmp_path)
    assert {doc["kind"]: doc for doc in yaml.safe_load_all(built)} == PROXY_OBJECTS
    path = str(PROXY / "daemonset.yaml")
    printed = await kubectl("set", "env", "--local", "-f", path, "ADDED=x", "-o", "yaml", home=tmp_path)
    typed = yaml.safe_load(printed)
    del typed["status"]
    assert typed["spec"]["template"]["spec"]["containers"][0]["env"].pop() == {"name": "ADDED", "value": "x"}
    assert without_empty(typed) == without_empty(PROXY_OBJECTS["DaemonSet"])


def without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: without_empty(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each not in (None, {}, [])}
    return [without_empty(each) for each in value] if isinstance(value, list) else value
