"""The kubeconfig that `kdns up` writes, for its owner's eyes only, and several that are read as one."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kdns.aio.kubeconfigs import PATHS, kubeconfig, paths_of
from kdns.aio.localcluster import write_kubeconfig
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


def test_a_folder_is_no_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_kubeconfig(tmp_path, "http://127.0.0.1:8001")


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
    content, user = kubeconfig(several, "")
    assert content["current-context"] == "mine"
    assert user == {"tokenFile": f"{folder}/token"}
    here, there = content["clusters"]
    assert here["cluster"] == {"server": "https://here:6443", "certificate-authority": f"{folder}/ca.crt"}
    assert there["cluster"]["certificate-authority"] == "/etc/ca.crt"
    _, user = kubeconfig(several, "there")
    assert user["exec"]["command"] == f"{folder}/plugin"
    with pytest.raises(KubeconfigError, match="no context 'none'; wanted: one of mine, there"):
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
    told, (content, _) = json.loads(shown), kubeconfig(several, "")
    assert told["current-context"] == content["current-context"]
    for kind in ("clusters", "contexts", "users"):
        wanted = {each["name"]: each[kind[:-1]] for each in told[kind]}
        found = {each["name"]: each[kind[:-1]] for each in content[kind]}
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
