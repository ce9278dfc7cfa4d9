"""User-mode Linux does what its command says, changes nothing of this machine, and leaves nothing running."""

import time
from pathlib import Path

import pytest
import user_mode


@pytest.fixture(autouse=True)
def _kernel() -> None:
    if reason := user_mode.missing():
        pytest.skip(reason)


def test_a_command_has_its_status_and_writes_nothing_here(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    other.mkdir()
    mine.mkdir()
    script = f"mount -o remount,rw /; touch {other}/file 2>&1; mount -t hostfs -o {other} none /mnt; touch /mnt/file"
    ended = user_mode.run(["sh", "-c", f"{script}; modprobe ip_vs; cat /proc/net/ip_vs; exit 3"], mine, timeout_s=60)
    assert ended.status == 3, ended
    assert ended.output.count("Read-only file system") == 2, ended.output
    assert "IP Virtual Server" in ended.output
    assert not list(other.iterdir())


def test_it_ends_in_time(tmp_path: Path) -> None:
    ended = user_mode.run(["sh", "-c", "echo here; sleep 100"], tmp_path, timeout_s=4)
    assert ended.status is None
    assert "not done after 4 s" in ended.output
    deadline_s = time.monotonic() + 30
    while running := [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path) in _read(path)]:
        assert time.monotonic() < deadline_s, running


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has ended
        return ""
