"""The kubeconfig that `kdns up` writes, for its owner's eyes only, and several that are read as one."""

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kdns.cluster.io.credentials import credentials
from kdns.cluster.io.kubeconfig import PATHS, kubeconfig, paths_of, write_kubeconfig
from kdns.cluster.source import ClientTLS, Source
from kdns.errors import InputError, KubeconfigError


@pytest.mark.parametrize("was", [None, 0o644, 0o600])
def test_only_the_owner_reads_the_token(tmp_path: Path, was: int | None) -> None:
    path = tmp_path / "folder" / "kubeconfig"
    if was is not None:
        path.parent.mkdir()
        path.touch()
        path.chmod(was)
    write_kubeconfig(path, "https://127.0.0.1:6443", token="secret")  # noqa: S106 - no secret of anybody
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert yaml.safe_load(path.read_text())["users"] == [{"name": "kdns", "user": {"token": "secret"}}]


@pytest.mark.parametrize(
    ("server", "ca_file", "cluster"),
    [
        ("http://127.0.0.1:8001", "", {"insecure-skip-tls-verify": True}),
        ("https://127.0.0.1:8001", "/tls.pem", {"certificate-authority": "/tls.pem"}),
        ("https://127.0.0.1:8001", "", {}),
    ],
)
def test_only_http_is_insecure(tmp_path: Path, server: str, ca_file: str, cluster: dict[str, object]) -> None:
    """@kubernetes/client-node refuses http without the field; kubectl refuses it beside an authority."""
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, server, ca_file=ca_file)
    assert yaml.safe_load(path.read_text())["clusters"] == [{"name": "kdns", "cluster": {"server": server, **cluster}}]


def test_a_folder_is_no_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_kubeconfig(tmp_path, "http://127.0.0.1:8001")


async def test_a_client_certificate_has_a_key(tmp_path: Path) -> None:
    (tmp_path / "cert").touch()
    source = Source(endpoint="https://127.0.0.1:6443", tls=ClientTLS(cert=str(tmp_path / "cert")))
    with pytest.raises(KubeconfigError, match="half of a client certificate"):
        await credentials(source)


OTHERS = """\
# of somebody else
apiVersion: v1
kind: Config
preferences: {colors: true}
clusters:
- name: work
  cluster: {server: "https://work:6443", insecure-skip-tls-verify: true}
- name: kdns
  cluster: {server: "https://127.0.0.1:1", certificate-authority: /old.crt}
users:
- {name: work, user: {auth-provider: {name: oidc, config: {expiry: 2026-11-21T18:00:00Z}}}}
- {name: kdns, user: {token: old}}
contexts:
- {name: work, context: {cluster: work, user: work, namespace: team}}
- {name: kdns, context: {cluster: elsewhere, user: work, namespace: shop}}
current-context: work
"""


def test_what_others_wrote_into_a_kubeconfig_stays(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(OTHERS)
    wanted = yaml.safe_load(OTHERS)
    wanted["clusters"][1]["cluster"] = {"server": "http://127.0.0.1:8001", "insecure-skip-tls-verify": True}
    wanted["users"][0]["user"]["auth-provider"]["config"]["expiry"] = "2026-11-21T18:00:00Z"
    wanted["users"][1]["user"] = {}
    wanted["contexts"][1]["context"] = {"cluster": "kdns", "user": "kdns", "namespace": "shop"}
    wanted["current-context"] = "kdns"
    for _ in range(2):
        write_kubeconfig(path, "http://127.0.0.1:8001")
        assert yaml.safe_load(path.read_text()) == wanted
    assert list(tmp_path.iterdir()) == [path]


def test_a_namespace_that_kubectl_set_stays(tmp_path: Path) -> None:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not here: tests/install-debian-packages says how to get it")
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, "http://127.0.0.1:8001")
    for command in ("set-context --current --namespace=shop", "set-cluster other --server=http://other:1"):
        subprocess.run(["kubectl", "--kubeconfig", path, "config", *command.split()], check=True, capture_output=True)
    write_kubeconfig(path, "http://127.0.0.1:8002")
    content = yaml.safe_load(path.read_text())
    assert {entry["name"]: entry["cluster"]["server"] for entry in content["clusters"]} == {
        "kdns": "http://127.0.0.1:8002",
        "other": "http://other:1",
    }
    assert content["contexts"][0]["context"] == {"cluster": "kdns", "user": "kdns", "namespace": "shop"}


def test_a_link_to_a_kubeconfig_stays_one(tmp_path: Path) -> None:
    link, path = tmp_path / "link", tmp_path / "kubeconfig"
    link.symlink_to(path)
    for _ in range(2):
        write_kubeconfig(link, "http://127.0.0.1:8001")
        assert link.is_symlink()
        assert yaml.safe_load(path.read_text())["current-context"] == "kdns"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("apiVersion: v1\nkind: Service\nmetadata: {name: a}\n", "kind Service, left as it is; expected a kubeconfig"),
        ("apiVersion: v2\nkind: Config\n", "kind Config, left as it is; expected a kubeconfig"),
        ("services: {web: {image: nginx}}\n", "not a kubeconfig, left as it is; expected a kubeconfig"),
        ("[1]\n", "list at the top; expected a mapping"),
        ("a: [\n", "expected YAML or JSON"),
        ("clusters: {a: b}\n", "clusters is not a list of named entries"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_left_alone(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(KubeconfigError, match=problem):
        write_kubeconfig(path, "http://127.0.0.1:8001")
    assert path.read_text() == text


def test_a_kubeconfig_that_cannot_be_written_stays_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(OTHERS)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        write_kubeconfig(path, "http://127.0.0.1:8001")
    assert path.read_text() == OTHERS
    assert list(tmp_path.iterdir()) == [path]


FIRST: dict[str, Any] = {
    "clusters": [{"name": "here", "cluster": {"server": "https://here:6443", "certificate-authority": "ca.crt"}}],
    "users": [
        {"name": "me", "user": {"tokenFile": "token"}},
        {"name": "robot", "user": {"exec": {"apiVersion": "v1", "command": "./plugin"}}},
    ],
}
SECOND: dict[str, Any] = {
    "current-context": "mine",
    "contexts": [
        {"name": "mine", "context": {"cluster": "here", "user": "me"}},
        {"name": "there", "context": {"cluster": "there", "user": "robot"}},
    ],
    "clusters": [
        {"name": "here", "cluster": {"server": "https://not-this-one:6443"}},
        {"name": "there", "cluster": {"server": "https://there:6443", "certificate-authority": "/etc/ca.crt"}},
    ],
    "users": [{"name": "me", "user": {"client-certificate": "me.crt", "client-key": "me.key"}}],
}
THIRD: dict[str, Any] = {"current-context": "there"}


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Three files that say something, each in a folder of its own, an empty one and one that is not there."""
    found = []
    for name, content in (("1", FIRST), ("2", SECOND), ("none", None), ("3", THIRD)):
        (tmp_path / name).mkdir()
        found.append(tmp_path / name / "config")
        if name != "none":
            found[-1].write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **(content or {})}))
    (tmp_path / "empty").touch()
    plugin = tmp_path / "1" / "plugin"
    plugin.touch(mode=0o755)
    return [*found, tmp_path / "empty"]


def test_the_first_file_that_says_something_counts(files: list[Path]) -> None:
    folder, several = files[0].parent, os.pathsep.join(map(str, ["", *files]))
    content, _, user = kubeconfig(several, "")
    assert content["current-context"] == "mine"
    assert user == {"tokenFile": f"{folder}/token"}
    here, there = content["clusters"]
    assert here["cluster"] == {"server": "https://here:6443", "certificate-authority": f"{folder}/ca.crt"}
    assert there["cluster"]["certificate-authority"] == "/etc/ca.crt"
    *_, user = kubeconfig(several, "there")
    assert user["exec"]["command"] == f"{folder}/plugin"
    with pytest.raises(KubeconfigError, match="no context 'none'; expected one of mine, there"):
        kubeconfig(several, "none")
    files[4].write_text("- a")
    with pytest.raises(KubeconfigError, match=rf"^{files[4]}: list at the top"):
        kubeconfig(several, "")


def test_kubectl_merges_the_same(files: list[Path], tmp_path: Path) -> None:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not here: tests/install-debian-packages says how to get it")
    several = os.pathsep.join(map(str, files))
    shown = subprocess.run(
        ["kubectl", "config", "view", "--raw", "-o", "json"],
        env={**os.environ, "KUBECONFIG": several, "HOME": str(tmp_path)},
        capture_output=True,
        check=True,
        timeout=90,
    ).stdout
    told, (content, *_) = json.loads(shown), kubeconfig(several, "")
    assert told["current-context"] == content["current-context"]
    for kind in ("clusters", "contexts", "users"):
        wanted = {entry["name"]: entry[kind[:-1]] for entry in told[kind]}
        found = {entry["name"]: entry[kind[:-1]] for entry in content[kind]}
        for each in wanted.values():  # kubectl shows paths as they stand in the file, here in the first one
            each |= {field: str(files[0].parent / each[field]) for field in PATHS.get(kind, ()) if field in each}
            if "exec" in each:
                each["exec"] = {"apiVersion": "v1", "command": str(files[0].parent / "plugin")}
        assert found == wanted


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    odd = tmp_path / "a:b"
    odd.touch()
    assert paths_of(str(odd)) == (odd,)
    assert paths_of("/nowhere:/else") == (Path("/nowhere:/else"),)


ENTRY = "clusters: [{name: c, cluster: {server: %s}}]\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("contexts: [{name: [a]}]", "contexts is not a list of named entries; expected contexts: [{name: …, context:"),
        ("contexts: [{name: 1}]", "contexts is not a list of named entries"),
        ("contexts: [{name: a, context: b}]", "contexts is not a list of named entries"),
        ("current-context: [a]", "no context \"['a']\""),
        ("contexts: [{name: a}]\ncurrent-context: ''", "no current-context; expected one of a"),
        ("current-context: ''", "no current-context; expected one of (no context in the file)"),
        (ENTRY % "http://a" + "users: [{name: x}]", "context 'a' names 'u', which is not in users"),
        (ENTRY % "''", "'' is not an address of an API server"),
        (ENTRY % "10.0.0.1:6443", "'10.0.0.1:6443' is not an address of an API server; expected http://HOST:PORT or h"),
        (
            "contexts: [{name: a, context: {cluster: [c]}}]\ncurrent-context: a",
            "names \"['c']\", which is not in clusters",
        ),
        (ENTRY % "'http://[::1'", "'http://[::1' is not an address of an API server"),
        (ENTRY % "http://a:99999", "'http://a:99999' is not an address of an API server"),
        (ENTRY % "5", "'5' is not an address of an API server"),
        (ENTRY % "http://a" + "users: [{name: u, user: {exec: b}}]", "exec of user 'u' is not a mapping"),
        (
            ENTRY % "http://a" + "users: [{name: u, user: {auth-provider: b}}]",
            "auth-provider of user 'u' is not a mapping",
        ),
    ],
)
def test_what_is_written_into_the_wrong_place_of_a_kubeconfig_is_told(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "kubeconfig"
    users = "" if "users" in text else "\nusers: [{name: u}]"
    path.write_text(f"{text}{users}")
    with pytest.raises(KubeconfigError) as caught:
        kubeconfig(str(path), "a" if "current-context" not in text else "")
    assert problem in str(caught.value)


@pytest.mark.parametrize("text", ["~nobody-of-this-name/config", "a" * 5000, "a\0b"])
def test_a_kubeconfig_that_cannot_be_there_is_told_like_one_that_is_not(text: str) -> None:
    assert paths_of(text) == (Path(text),)
