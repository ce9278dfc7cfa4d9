"""Runs of dnsperf, and what a server used meanwhile."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from tempfile import NamedTemporaryFile

from _process import Cores, cpu_s


@dataclass(frozen=True, slots=True)
class Run:
    """One run: CPU time of the server for each answer, answers per second, the share of each rcode, what was lost."""

    cpu_us: float
    qps: float
    rcodes: dict[str, float]
    lost: float


def dnsperf(pid: int, port: int, queries: Iterable[str], options: Sequence[str], cores: Cores) -> Run:
    """Ask the process behind a port of loopback from four clients; at most 100 questions wait for their answers."""
    pins = ",".join(map(str, sorted(cores.others)))
    with NamedTemporaryFile("w", prefix="kdns-bench-") as file:
        file.writelines(queries)
        file.flush()
        argv = ["taskset", "-c", pins, "dnsperf", "-s", "127.0.0.1", "-p", str(port), "-d", file.name]
        before_s = cpu_s(pid)
        done = subprocess.run([*argv, "-q", "100", "-c", "4", *options], capture_output=True, text=True, check=True)
        used_s = cpu_s(pid) - before_s
    sent, completed = (int(_figure(rf"Queries {word}:\s+(\d+)", done.stdout)) for word in ("sent", "completed"))
    shares = re.findall(r"(\w+) \d+ \(([\d.]+)%\)", _figure(r"Response codes:\s+(.*)", done.stdout))
    qps = float(_figure(r"Queries per second:\s+([\d.]+)", done.stdout))
    rcodes = {rcode: float(percent) / 100 for rcode, percent in shares}
    return Run(used_s / completed * 1e6, qps, rcodes, 1 - completed / sent)


def _figure(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if not found:
        raise SystemExit(f"dnsperf's statistics have no {pattern!r}:\n{text}")
    return found[1]
