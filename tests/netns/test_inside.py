"""Starts the tests of inside/ with real packets: each file in a network namespace and mounts of its own.

A file that imports `dataplanes` is started over each of them, or all but one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dataplanes import DATAPLANES, ONE_BACK_END

INSIDE = Path(__file__).parent / "inside"
FILES = {path.name: path.read_text(encoding="utf-8") for path in sorted(INSIDE.glob("test_*.py"))}
RUNS = [
    (name, dataplane)
    for name, text in FILES.items()
    for dataplane in (DATAPLANES if "from dataplanes import" in text else ["nftables"])
    if dataplane != "iptables-legacy" or name not in ONE_BACK_END
]


@pytest.mark.parametrize(("name", "dataplane"), RUNS)
def test_inside(name: str, dataplane: str) -> None:
    backend = [] if dataplane == "nftables" else [dataplane]
    programs = [program for program in ("unshare", "ip", "nft", *backend) if not shutil.which(program)]
    if os.geteuid() != 0 or programs:
        pytest.skip(f"needs root, unshare, ip and nft: it makes network namespaces; missing: {programs or 'root'}")
    pytest_command = (
        f"exec {sys.executable} -m pytest -q -p no:xdist -p no:cacheprovider -p world_fixtures {INSIDE / name}"
    )
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", f"mount -t tmpfs tmpfs /run && {pytest_command}"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(INSIDE), "DATAPLANE": dataplane},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
