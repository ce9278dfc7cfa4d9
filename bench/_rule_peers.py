"""The programs that load rules, alone: kdns's own rules, as they were saved, and rules of kube-proxy's shape.

As a program, `_rule_peers.py NAME SERVICES FOLDER` loads one of them into the empty tables of its network namespace and
prints a Load as JSON.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from _kube_proxy_rules import kube_proxy_iptables, kube_proxy_nftables
from _vip_services import setting

CHANGES: Final = 7
COUNTED_BY_NAME: Final = re.compile(r"-m nfacct --nfacct-name +\S+ ")


class Load(NamedTuple):
    """What a program took for all rules, and for those that kube-proxy writes for one change; 0: not measured."""

    took_s: float
    cpu_s: float
    peak_mib: float
    change_ms: float = 0.0
    change_cpu_ms: float = 0.0

    def __str__(self) -> str:
        change = f"{self.change_ms:.0f} ms | | {self.change_cpu_ms:.0f} ms" if self.change_ms else "| | "
        return f"{self.took_s:.2f} s | | {self.cpu_s:.2f} s | {change} | | {self.peak_mib:.0f} MiB"


class Peer(NamedTuple):
    """A program with its rules. Its row is below that of `mode`; with more than `most` Services it is left out."""

    name: str
    mode: str
    argv: tuple[str, ...]
    rules: Callable[[int, Path], Iterable[str]]
    change: Callable[[int], Iterable[str]] | None = None
    most: int = sys.maxsize


def _saved(count: int, folder: Path) -> Iterator[str]:
    """The rules without what they count by name, which has to be made for each network namespace."""
    del count
    yield COUNTED_BY_NAME.sub("", (folder / "saved").read_text().rstrip("\n"))


def _iptables(count: int, folder: Path) -> Iterator[str]:
    del folder
    return kube_proxy_iptables(setting(count, "IPv4", affinity=False))


def _iptables_change(count: int) -> Iterator[str]:
    given = setting(count, "IPv4", affinity=False)
    return kube_proxy_iptables(given, given.asked)


def _nftables(count: int, folder: Path) -> Iterator[str]:
    del folder
    return kube_proxy_nftables(setting(count, "IPv4", affinity=False))


PEERS: Final = (
    Peer("nft, kube-proxy's shape", "nftables", ("nft", "-f", "{}"), _nftables, most=5000),
    *(
        peer
        for backend, most in (("nft", 5000), ("legacy", sys.maxsize))
        for peer in (
            Peer(
                f"iptables-{backend}-restore, kdns's rules as saved",
                f"iptables-{backend}",
                (f"iptables-{backend}-restore", "{}"),
                _saved,
            ),
            Peer(
                f"iptables-{backend}-restore, kube-proxy's shape",
                f"iptables-{backend}",
                (f"iptables-{backend}-restore", "--noflush", "{}"),
                _iptables,
                _iptables_change,
                most,
            ),
        )
    ),
)


def loaded(peer: Peer, count: int, folder: Path) -> Load:
    """What the peer took, in a network namespace of its own."""
    argv = ["unshare", "--net", sys.executable, __file__, peer.name, str(count), str(folder)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    return Load(*json.loads(done.stdout))


def _run(argv: tuple[str, ...], lines: Iterable[str], folder: Path) -> Load:
    path = folder / "rules"
    path.write_text("\n".join((*lines, "")))
    began_s = time.monotonic()
    process = subprocess.Popen([each.format(path) for each in argv], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    took_s = time.monotonic() - began_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with {process.returncode}")
    return Load(took_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def main() -> None:
    """Load, and change."""
    name, count, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    peer = next(each for each in PEERS if each.name == name)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    made = _run(peer.argv, peer.rules(count, folder), folder)
    if peer.change:
        again = [_run(peer.argv, peer.change(count), folder) for _ in range(CHANGES)]
        took_ms, cpu_ms = (median(each) * 1e3 for each in zip(*(one[:2] for one in again), strict=True))
        made = made._replace(change_ms=took_ms, change_cpu_ms=cpu_ms)
    print(json.dumps(made))


if __name__ == "__main__":
    main()
