"""Warnings of files and folders that are open to all users."""

from pathlib import Path

import pytest

from kdns.runtime.files.permissions import open_folders, open_secrets


@pytest.mark.parametrize(
    ("mode", "may"),
    [(0o600, ""), (0o640, ""), (0o660, ""), (0o644, "read it"), (0o606, "read it"), (0o602, "write it")],
)
def test_files_with_secrets(tmp_path: Path, mode: int, may: str) -> None:
    tokens = tmp_path / "tokens"
    tokens.touch()
    tokens.chmod(mode)
    wanted = f"--token-file {tokens}: all users of this machine may {may} (mode {mode:04o}); run chmod 600"
    assert list(open_secrets({"--token-file": tokens, "--tls-key": None})) == ([wanted] if may else [])


@pytest.mark.parametrize(
    ("mode", "is_open"), [(0o700, False), (0o755, False), (0o770, False), (0o777, True), (0o1777, True)]
)
def test_folders(tmp_path: Path, mode: int, is_open: bool) -> None:
    tmp_path.chmod(mode)
    wanted = f"--data {tmp_path}: all users of this machine may write there (mode {mode:04o}); run chmod 700"
    assert list(open_folders({"--data": tmp_path})) == ([wanted] if is_open else [])
    assert list(open_folders({"--data": tmp_path / "not there yet"})) == []
