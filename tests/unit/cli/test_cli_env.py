"""`kdns env` from manifests and a kubeconfig."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kdns.aio.sources.services import default_kubeconfig
from kdns.cli.env import env
from kdns.errors import InputError

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
