"""Fuzzes the compiled reader of UDP sockets: `python -m tools.fuzz_bursts --seconds 3600 --seed 1`.

It builds kdns/dnsserver/io/burst/_burst.c with the address and undefined behaviour sanitizers into a temporary folder,
and has it and the reader in Python read the same datagrams: each answer's bytes, each miss and each counter must be
the same. A finding ends the run with exit code 1, and says the world in which it was: `--world` begins with it.
It needs gcc, its libasan and the headers of Python.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[2] / "kdns/dnsserver/io/burst/_burst.c"
MODULE: Final = "kdns.dnsserver.io.burst._burst"
REPORT_S: Final = 60.0
SIGNAL_S: Final = 0.003
"""A signal interrupts system calls so often."""

# Python never frees everything. Its own allocator would hide what is beyond the end of a bytes object.
SANITIZED: Final = {
    "ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=32",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "PYTHONMALLOC": "malloc",
}


def main() -> int:
    """Builds the extension and fuzzes it in another process, or fuzzes one that was built."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz_bursts", description="Fuzz the reader of UDP sockets.")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument("--seed", type=int, default=1, help="another one gives other packets")
    parser.add_argument("--world", type=int, default=0, help="the first world")
    parser.add_argument("--source", type=Path, default=SOURCE, help="the file to build")
    parser.add_argument("--extension", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.extension:
        return fuzz(chosen.extension, chosen.seconds, chosen.seed, chosen.world)
    with tempfile.TemporaryDirectory() as folder:
        extension = Path(folder, "_burst.abi3.so")
        build(chosen.source, extension)
        command = [sys.executable, "-m", "tools.fuzz_bursts", *sys.argv[1:], "--extension", str(extension)]
        return subprocess.run(command, env=os.environ | SANITIZED | {"LD_PRELOAD": libasan()}, check=False).returncode  # noqa: S603 - this program


def build(source: Path, extension: Path) -> None:
    """Compiles the extension with the sanitizers."""
    options = ("-shared", "-fPIC", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    include = sysconfig.get_paths()["include"]
    subprocess.run(["gcc", *options, "-I", include, "-o", str(extension), str(source)], check=True)  # noqa: S603, S607


def libasan() -> str:
    """Returns the address sanitizer's library; only a name if gcc has none."""
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)  # noqa: S607
    return found.stdout.strip()


def fuzz(extension: Path, seconds: float, seed: int, world: int) -> int:
    """Plays worlds while signals interrupt system calls; returns the exit code."""
    _load(extension)
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, SIGNAL_S, SIGNAL_S)
    try:
        return _play(seconds, seed, world)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _play(seconds: float, seed: int, world: int) -> int:
    """Plays one world after the other for the time, and reports."""
    from tools.fuzz_bursts.worlds import Finding, World  # noqa: PLC0415 - it imports the extension

    counts: Counter[str] = Counter()
    began_s = reported_s = time.monotonic()
    while (now_s := time.monotonic()) < began_s + seconds:
        if now_s > reported_s + REPORT_S:
            reported_s = now_s
            _report(now_s - began_s, world, counts)
        try:
            World(f"{seed} {world}", counts).play()
        except Finding as finding:
            _report(now_s - began_s, world, counts)
            _say(f"finding in world {world} of seed {seed}: {finding}")
            return 1
        world += 1
    _report(time.monotonic() - began_s, world, counts)
    _say("no finding")
    return 0


def _load(extension: Path) -> None:
    """Makes the built extension the one that kdns imports."""
    spec = spec_from_file_location(MODULE, extension, loader=ExtensionFileLoader(MODULE, str(extension)))
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {extension}")
    sys.modules[MODULE] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[MODULE])


def _report(age_s: float, world: int, counts: Counter[str]) -> None:
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    listed = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    _say(f"{age_s:.0f} s, {memory_mib:.0f} MiB, world {world}: {listed}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
