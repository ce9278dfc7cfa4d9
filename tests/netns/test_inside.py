"""Starts the tests of inside/ with real packets: each file in a network namespace and mounts of its own.

A file that imports `dataplanes` is started over each of them, or all but one. Several files share a test, which has
the tests inside as its subtests.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import apart
import pytest
from dataplanes import DATAPLANES, ONE_BACK_END
from hypothesis import settings

INSIDE: Final = Path(__file__).parent / "inside"
FILES: Final = {path: path.read_text(encoding="utf-8") for path in sorted(INSIDE.glob("test_*.py"))}
LONG: Final = {"test_documented_commands.py", "test_mode_changes.py", "test_node_process.py"}
"""Files that are a test of their own, so that processors share the work."""
SHARED: Final = 5
"""How many of the other files share a test."""


def groups(dataplane: str) -> list[list[Path]]:
    files = [
        path
        for path, text in FILES.items()
        if dataplane == "nftables" or "from dataplanes import" in text
        if dataplane != "iptables-legacy" or path.name not in ONE_BACK_END
    ]
    short = [file for file in files if file.name not in LONG]
    return [
        *([file] for file in files if file.name in LONG),
        *(short[at : at + SHARED] for at in range(0, len(short), SHARED)),
    ]


RUNS: Final = [[(path, dataplane) for path in group] for dataplane in DATAPLANES for group in groups(dataplane)]


def name_of(runs: list[apart.Run]) -> str:
    return "+".join(path.stem.removeprefix("test_") for path, _ in runs) + f"-{runs[0][1]}"


@pytest.mark.parametrize("runs", RUNS, ids=name_of)
def test_inside(runs: list[apart.Run], tmp_path: Path, subtests: pytest.Subtests, pytestconfig: pytest.Config) -> None:
    dataplane = runs[0][1]
    backend = [] if dataplane == "nftables" else [dataplane]
    programs = [program for program in ("mount", "ip", "nft", *backend) if not shutil.which(program)]
    if os.geteuid() != 0 or programs:
        pytest.skip(f"needs root, mount, ip and nft: it makes network namespaces; missing: {programs or 'root'}")
    arguments = ["-q", "--durations=0", *("-p", "no:xdist"), *("-p", "no:cacheprovider"), *("-p", "world_fixtures")]
    arguments += ["--hypothesis-profile", settings.get_current_profile_name(), "-m", pytestconfig.option.markexpr]
    done = subprocess.run(
        apart.command(tmp_path, "/run", runs, *arguments),
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(INSIDE)},
        capture_output=True,
        text=True,
        timeout=1000,
        check=False,
    )
    print(done.stdout + done.stderr)
    apart.tell(tmp_path, runs, subtests, done.stdout + done.stderr)
    assert done.returncode == 0
