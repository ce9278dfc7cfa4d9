"""A node's rules in each mode: from the start of `kdns proxy` until they are in the kernel, and what one change takes.

Needs root, unshare, nft and iptables: every row is made in a network namespace of its own. A change is one endpoint
less, timed from when it is written to the watch until it is in the kernel; its CPU time is kdns's with that of the
programs that it ran. Mode ipvs needs a kernel with IPVS: where this one has none, its rows and one for comparison come
from user-mode Linux (Debian package user-mode-linux), a slower machine in the machine.

Peers are the programs alone, with the rules of the same Services: those that kdns wrote, loaded by a plain restore into
empty tables, and those of kube-proxy's shape. Figures of kube-proxy 1.36 are from one earlier run on such a machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from statistics import quantiles
from typing import Final, NamedTuple

from _arrivals import Arrivals, destinations, legacy_tables, syncs, transactions
from _node import ENDPOINTS, cpu_s, memory_mib, metric, node
from _rule_peers import PEERS, loaded
from _user_mode import has_ipvs, in_user_mode

PAUSE_S: Final = 0.1
SETTLE_S: Final = 2.0
KUBE_PROXY: Final[dict[str, dict[int, tuple[float, float, float, int]]]] = {
    "nftables": {1000: (0.84, 144.0, 161.0, 78), 5000: (3.7, 1070.0, 1100.0, 144), 10000: (13.4, 3800.0, 4000.0, 268)},
    "iptables-nft": {1000: (1.55, 121.0, 0, 0), 5000: (37.7, 554.0, 0, 0), 10000: (188.0, 1100.0, 0, 0)},
}
"""By mode and Services: start in s, one change p50 in ms, CPU per change in ms, RSS in MiB; 0 was not measured."""
COMPARED: Final = "iptables-legacy"
"""The mode that is measured beside those which this kernel lacks."""
COLUMNS: Final = (
    *("Services x 5", "", "start", "first sync", "CPU until then"),
    *("one change, p50", "p99", "CPU per change", "RSS", "peak, with children"),
)
TITLE: Final = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"


class Way(NamedTuple):
    """A mode with what is below it. `fronts` counts the Services that the kernel has."""

    name: str
    mode: str
    arrivals: Arrivals
    fronts: Callable[[], int]
    before: tuple[tuple[str, ...], ...] = ()
    saved: tuple[str, ...] = ()


def _said(*argv: str) -> Callable[[], bytes]:
    return lambda: subprocess.run(argv, capture_output=True, check=True).stdout


def _counted(read: Callable[[], bytes], word: bytes) -> Callable[[], int]:
    return lambda: read().count(word)


_FRONTS: Final = _counted(_said("nft", "list", "map", "ip", "kdns", "service-ips"), b"counter packets")
WAYS: Final = {
    way.name: way
    for way in (
        Way("nftables", "nftables", transactions("kdns"), _FRONTS),
        *(
            Way(
                f"iptables-{backend}",
                "iptables",
                arrivals,
                _counted(_said(f"iptables-{backend}-save", "-t", "nat"), b"-A KUBE-SERVICES -d"),
                ((f"iptables-{backend}", "-t", "mangle", "-N", "KUBE-KUBELET-CANARY"),),
                (f"iptables-{backend}-save",),
            )
            for backend, arrivals in (("nft", transactions("nat")), ("legacy", legacy_tables))
        ),
        Way("userspace", "userspace", syncs, _FRONTS),
        Way("ipvs", "ipvs", destinations, lambda: Path("/proc/net/ip_vs").read_bytes().count(b"TCP ")),
    )
}
"""A kubelet's chain tells which back end of iptables a node uses."""


class Figures(NamedTuple):
    """What one size took."""

    start_s: float
    start_cpu_s: float
    first_sync_s: float
    change_p50_ms: float
    change_p99_ms: float
    cpu_ms: float
    rss_mib: float
    peak_mib: float

    def __str__(self) -> str:
        change = f"{self.change_p50_ms:.1f} ms | {self.change_p99_ms:.1f} ms | {self.cpu_ms:.1f} ms"
        memory = f"{self.rss_mib:.0f} MiB | {self.peak_mib:.0f} MiB"
        start = f"{self.start_s:.2f} s | {self.first_sync_s:.2f} s | {self.start_cpu_s:.2f} s"
        return f"{start} | {change} | {memory}"


def measured(way: Way, count: int, changes: int, folder: Path) -> Figures:
    """One mode with so many Services; what it saved is left in the folder."""
    for argv in way.before:
        subprocess.run(argv, check=True)
    with node(count, folder, "10ms", way.mode) as asked, way.arrivals() as arrival:
        first_sync_s = metric("kubeproxy_sync_full_proxy_rules_duration_seconds_sum")
        if (found := way.fronts()) != count:
            raise SystemExit(f"{way.name}: {found} Services in the kernel, wanted {count}")
        if way.saved:
            (folder / "saved").write_bytes(_said(*way.saved)())
        time.sleep(SETTLE_S)
        took_ms, cpu_ms = [], []
        for number in range(changes):
            service = number * 13 % count
            arrival.expect(service)
            cpu_before_s = cpu_s(asked.pid)
            asked.change(service, ENDPOINTS - 1)
            written_s = asked.written_s()
            took_ms.append((arrival.wait() - written_s) * 1e3)
            time.sleep(PAUSE_S)
            cpu_ms.append((cpu_s(asked.pid) - cpu_before_s) * 1e3)
        percent = quantiles(took_ms, n=100)
        return Figures(
            *(asked.start_s, asked.start_cpu_s, first_sync_s),
            *(percent[49], percent[98], sum(cpu_ms) / changes),
            *(memory_mib(asked.pid, "VmRSS"), asked.peak.mib),
        )


def rows(way: Way, count: int, changes: int, folder: Path, *, alone: bool) -> Iterator[str]:
    """The lines of the table for one mode and size; without peers if it stands `alone`."""
    yield f"kdns, {way.name} | {measured(way, count, changes, folder)}"
    if alone:
        return
    for peer in PEERS:
        if peer.mode == way.name and count <= peer.most:
            yield f"{peer.name} | {loaded(peer, count, folder)}"
    if recorded := KUBE_PROXY.get(way.name, {}).get(count):
        start_s, change_ms, cpu_ms, rss_mib = recorded
        tail = f"{cpu_ms:.0f} ms | {rss_mib} MiB |" if cpu_ms else "| |"
        yield f"kube-proxy, {way.name} | {start_s:.2f} s | | | {change_ms:.0f} ms | | {tail}"


def inside(name: str, count: int, changes: int, *, alone: bool) -> None:
    """Print the rows of one mode and size, in a network namespace, or a machine, that has nothing else."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(WAYS[name], count, changes, Path(folder), alone=alone):
            print(f"| {count:,} | {row} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[1000, 5000, 10000])
    parser.add_argument("--modes", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--changes", type=int, default=60)
    parser.add_argument("--alone", action="store_true", help="no peers")
    parser.add_argument("--user-mode", action="store_true", help="measure in user-mode Linux")
    parser.add_argument("--inside", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        inside(given.inside, given.sizes[0], given.changes, alone=given.alone)
        return
    if os.geteuid() != 0:
        print("left out: it needs root, since it makes network namespaces")
        return
    here = [] if given.user_mode else [name for name in given.modes if name != "ipvs" or has_ipvs()]
    there = [name for name in given.modes if name not in here]
    if there and not given.user_mode:
        there.append(COMPARED)
    for names, is_here in ((here, True), (there, False)):
        if names:
            print(f"\n{'Here' if is_here else 'In user-mode Linux'}:\n\n{TITLE}", flush=True)
        for size, name in product(given.sizes, names):
            again = [
                sys.executable,
                str(Path(__file__).resolve()),
                str(size),
                f"--inside={name}",
                f"--changes={given.changes}",
                *(("--alone",) if given.alone else ()),
            ]
            if is_here:
                subprocess.run(["unshare", "--net", *again], check=True)
            else:
                in_user_mode(again)


if __name__ == "__main__":
    main()
