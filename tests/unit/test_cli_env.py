"""`kdns env` from manifests, a server and a kubeconfig."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from kdns.aio.sources import default_kubeconfig, services_from_server
from kdns.cli_env import env
from kdns.errors import ApiServerError, InputError

REDIS = """\
apiVersion: v1
kind: Service
metadata: {name: redis-master}
spec:
  clusterIP: 10.96.0.11
  ports: [{port: 6379}]
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec:
  clusterIP: 10.96.0.12
  ports: [{port: 80, name: http}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: other}
"""


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(env, arguments, env=environment)


@pytest.fixture
def manifests(tmp_path: Path) -> str:
    (tmp_path / "services.yaml").write_text(REDIS)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "first", "count"),
    [
        ((), "export REDIS_MASTER_SERVICE_HOST=10.96.0.11", 7),
        (("--format", "docker"), "REDIS_MASTER_SERVICE_HOST=10.96.0.11", 7),
        (("--namespace", "shop"), "export CART_SERVICE_HOST=10.96.0.12", 8),
        (("-n", "shop", "--no-service-links"), None, 0),
        (("-n", "nowhere"), None, 0),
    ],
)
def test_from_manifests(manifests: str, arguments: tuple[str, ...], first: str | None, count: int) -> None:
    result = run("--manifests", manifests, *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert len(lines) == count
    assert lines[:1] == ([first] if first else [])


def test_json(manifests: str) -> None:
    assert len(json.loads(run("--manifests", manifests, "--format", "json").stdout)) == 7


@pytest.mark.parametrize(
    ("spec", "code", "says"),
    [
        ("{ports: [{port: 80}]}", 0, "Warning: {path}:1: Service a has no clusterIP here"),
        ("{type: ExternalName, externalName: a.b}", 0, ""),
        ("{clusterIP: None}", 0, ""),
        ("\n  ports:\n  - name: x\n    port: '80'", 2, "{path}:7: spec.ports[0].port: Expected `int`, got `str`"),
        ("[", 2, "{path}:4: not YAML: "),
    ],
)
def test_what_manifests_lack(tmp_path: Path, spec: str, code: int, says: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"apiVersion: v1\nkind: Service\nmetadata: {{name: a}}\nspec: {spec}\n")
    result = run("--manifests", str(path))
    assert (result.exit_code, result.stdout) == (code, "")
    assert says.format(path=path) in result.stderr
    assert bool(says) == bool(result.stderr)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--manifests", "/nowhere"), 2, "/nowhere: no such file or folder"),
        (("--manifests", "/nowhere", "--server", "http://127.0.0.1:1"), 2, "only one of"),
        (("--format", "xml"), 2, "'xml' is not one of"),
        (("--server", "nonsense"), 2, "no address of an API server"),
        (("--server", "http://127.0.0.1:1"), 1, "http://127.0.0.1:1"),
        (("--kubeconfig", "/nowhere"), 2, "/nowhere"),
        ((), 2, "no kubeconfig at /nowhere:/else: give --kubeconfig FILE"),
    ],
)
def test_wrong_use(arguments: tuple[str, ...], code: int, says: str) -> None:
    result = run(*arguments, KUBECONFIG="/nowhere:/else")
    assert (result.exit_code, result.stdout) == (code, "")
    assert says in result.stderr


def test_the_kubeconfig_is_what_kubectl_would_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "second").write_text("")
    monkeypatch.setenv("KUBECONFIG", f":{tmp_path}/first:{tmp_path}/second")
    assert default_kubeconfig() == f"{tmp_path}/first:{tmp_path}/second"
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"no kubeconfig at ~/\.kube/config"):
        default_kubeconfig()


def service(name: str, cluster_ip: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": {"clusterIP": cluster_ip, "ports": [{"port": 80, "protocol": "TCP"}]}}


async def in_pages(request: web.Request) -> web.Response:
    """Two pages of shop's Services; default has one Service, named kubernetes."""
    if request.path == "/api/v1/namespaces/default/services/kubernetes":
        return web.json_response(service("kubernetes", "10.96.0.1") | {"kind": "Service"})
    if request.path != "/api/v1/namespaces/shop/services":
        return web.json_response({"kind": "Status", "code": 404, "message": "no"}, status=404)
    assert request.query["limit"] == "500"
    if "continue" not in request.query:
        return web.json_response({"items": [service("a", "10.96.0.2")], "metadata": {"continue": "more"}})
    assert request.query["continue"] == "more"
    return web.json_response({"items": [service("b", "10.96.0.3")], "metadata": {"continue": ""}})


async def without_master(request: web.Request) -> web.Response:
    if request.path.endswith("/kubernetes"):
        return web.json_response({"kind": "Status", "code": 404, "message": "no"}, status=404)
    return web.json_response({"items": [], "metadata": {}})


async def no_kubernetes(_: web.Request) -> web.Response:
    return web.Response(text="<html>")


async def forbidden(_: web.Request) -> web.Response:
    return web.json_response({"kind": "Status", "code": 403, "message": "you may not"}, status=403)


@pytest.mark.parametrize(
    ("handler", "found", "error"),
    [
        (in_pages, ["a", "b", "kubernetes"], ""),
        (without_master, [], ""),
        (no_kubernetes, [], "not the answer of a Kubernetes API"),
        (forbidden, [], "403 you may not"),
    ],
)
async def test_from_a_server(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]], found: list[str], error: str
) -> None:
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with asyncio.timeout(60):
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            if error:
                with pytest.raises(ApiServerError, match=error):
                    await services_from_server(url, "", "shop")
            else:
                services = await services_from_server(url, "", "shop")
                assert [service.metadata.name for service in services] == found
    finally:
        await runner.cleanup()
