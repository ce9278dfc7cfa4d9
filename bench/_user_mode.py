"""Measurements in user-mode Linux, a kernel that is a plain process, for what this machine's kernel lacks.

It has one processor, and each of its system calls and page faults costs several of this machine's: its figures compare
with each other only.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kernel"))
import user_mode

MEMORY: Final = "2G"
TIMEOUT_S: Final = 3600


def has_ipvs() -> bool:
    """Whether this machine's kernel has IPVS."""
    subprocess.run(["modprobe", "--quiet", "ip_vs"], check=False)
    return Path("/proc/net/ip_vs").exists()


def in_user_mode(argv: list[str]) -> None:
    """Print what the program prints there; SystemExit where it fails."""
    if reason := user_mode.missing():
        print(f"left out: {reason}")
        return
    with tempfile.TemporaryDirectory() as folder:
        ended = user_mode.run(argv, Path(folder), options=f"mem={MEMORY}", timeout_s=TIMEOUT_S)
    print(ended.output, end="", flush=True)
    if ended.status:
        raise SystemExit(f"user-mode Linux ended with {ended.status}: {ended.console}")
