"""What every other kernel has in common: how a command gets into it, and what comes out."""

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
START: Final = Path(__file__).parent / "start"
SEARCHED: Final = "/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command in the other kernel said, and its status; None if it did not end in time."""

    status: int | None
    output: str
    console: str


def absent(*programs: str) -> str:
    """Which programs are missing, as a sentence; "" if none is."""
    names = [program for program in programs if not shutil.which(program, path=SEARCHED)]
    return f"programs are missing: {names}" if names else ""


def exchange(command: list[str], folder: Path) -> Path:
    """A folder that the other kernel mounts and may write: it finds the command there, which `start` runs."""
    made = folder / "said"
    made.mkdir()
    (made / "command").write_text(f"exec {shlex.join(command)}\n")
    return made


def ended(argv: Sequence[str], folder: Path, timeout_s: float) -> Ended:
    """Run the kernel until it turns itself off, or end it; what its command left in the exchange."""
    said, console = folder / "said", folder / "console"
    stopped = ""
    with (folder / "complaint").open("wb") as complaint:
        try:
            subprocess.run(
                argv, timeout=timeout_s, stdin=subprocess.DEVNULL, stdout=complaint, stderr=complaint, check=False
            )
        except subprocess.TimeoutExpired:
            stopped = f"\nnot done after {timeout_s} s"
    status = _read(said / "status")
    return Ended(
        int(status) if status else None,
        _read(said / "output") + stopped,
        _read(folder / "complaint") + _read(console),
    )


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
