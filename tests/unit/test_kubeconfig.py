"""The kubeconfig that `kdns up` writes: its token is for its owner's eyes only."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from kdns.aio.localcluster import write_kubeconfig
from kdns.errors import InputError


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
