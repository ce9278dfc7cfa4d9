"""`kdns env` from manifests and a kubeconfig."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kdns.apps.sources.source import default_kubeconfig
from kdns.cli.commands.env import env
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
apiVersion: v1
kind: Service
metadata: {name: lag, namespace: shop}
spec: {clusterIP: None, ports: [{port: 81}]}
---
apiVersion: v1
kind: Service
metadata: {name: alias, namespace: shop}
spec: {type: ExternalName, externalName: example.com}
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
        ((), "export REDIS_MASTER_SERVICE_HOST=10.96.0.11", 15),
        (("--output", "docker"), "REDIS_MASTER_SERVICE_HOST=10.96.0.11", 15),
        (("--namespace", "shop"), "export CART_SERVICE_HOST=10.96.0.12", 16),
        (("-n", "shop", "--no-service-links"), "export KUBERNETES_SERVICE_HOST=10.96.0.1", 8),
        (("-n", "kube-system"), "export KUBERNETES_SERVICE_HOST=10.96.0.1", 8),
    ],
)
def test_from_manifests(manifests: str, arguments: tuple[str, ...], first: str, count: int) -> None:
    result = run("--manifests", manifests, *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert len(lines) == count
    assert lines[0] == first


def test_json(manifests: str) -> None:
    assert len(json.loads(run("--manifests", manifests, "-o", "json").stdout)) == 15


@pytest.mark.parametrize(
    ("spec", "ranges", "host"),
    [
        ("{ports: [{port: 80}]}", "10.97.0.0/29", r"10\.97\.0\.[2-6]"),
        ("{ports: [{port: 80}]}", "fd00:97::/112,10.97.0.0/29", r"fd00:97::[0-9a-f]+"),
        ("{ports: [{port: 80}], ipFamilyPolicy: PreferDualStack}", "10.97.0.0/29,fd00::/112", r"10\.97\.0\.[2-6]"),
        ("{ports: [{port: 80}], ipFamilies: [IPv6]}", "10.97.0.0/29,fd00::/112", r"fd00::[0-9a-f]+"),
    ],
)
def test_a_service_without_cluster_ip_gets_one(tmp_path: Path, spec: str, ranges: str, host: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"apiVersion: v1\nkind: Service\nmetadata: {{name: a}}\nspec: {spec}\n")
    results = [run("--manifests", str(path), "--service-cidr", ranges, "-o", "json") for _ in range(2)]
    assert {(result.exit_code, result.stderr) for result in results} == {(0, "")}
    assert results[0].stdout == results[1].stdout
    assert re.fullmatch(host, json.loads(results[0].stdout)["A_SERVICE_HOST"])


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("{ports: [{port: '80'}]}", '{path}:4: spec.ports[0].port: expected an integer of 32 bits, got "80"'),
        (
            "\n  typ: x\n  ports: [{port: '80'}]",
            "{path}:5: spec.typ: unknown field\n{path}:6: spec.ports[0].port: expected an integer",
        ),
        ("[", "{path}:4: not YAML: "),
        ("\n  clusterIP: 10.97.0.1\n  ports: [{port: 80}]", "(10.97.0.1) is not in the valid range. The range"),
    ],
)
def test_manifests_that_the_api_refuses(tmp_path: Path, spec: str, says: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"apiVersion: v1\nkind: Service\nmetadata: {{name: a}}\nspec: {spec}\n")
    result = run("--manifests", str(path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert says.format(path=path) in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--manifests", "/nowhere"), 2, "/nowhere: no such file or folder"),
        (("--manifests", "/nowhere", "--server", "http://127.0.0.1:1"), 2, "only one of"),
        (("-o", "xml"), 2, "'xml' is not one of"),
        (("--manifests", "/dev/null", "-n", "nowhere"), 2, "--namespace nowhere: no such namespace; there is default,"),
        (("--server", "nonsense"), 2, "--server: 'nonsense' is not an address of an API server"),
        (("--server", "http://exa mple"), 2, "--server: 'http://exa mple' is not an address of an API server"),
        (("--server", "http://\udcff"), 2, r"--server: 'http://\udcff' is not an address of an API server"),
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
