"""The DNS server over the size of the cluster: its start, its memory, and what a query costs; kdns beside Knot DNS.

A cluster of N Services has N with a cluster IP, N headless ones with 5 endpoints and N / 100 with 100 endpoints. The
start is counted from exec to the first right answer for the last Service. `once` asks each name a single time, the
other columns draw names at random and ask as much as the server answers. CPU time is user and system.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

from _dns_servers import Peer, Place, installed, kdns, knot, place
from _dnsperf import dnsperf
from _process import asked, cpu_s, memory_mib
from _questions import NXDOMAIN, SRV, A, Kind, at_random, packet

ASKED_ONCE_MAX: Final = 10_000
AGAIN: Final = (A, NXDOMAIN, SRV)


def cost_us(peer: Peer, at: Place, lines: Iterable[str], *options: str) -> float:
    """CPU time of the server for each query."""
    return dnsperf(peer.pid, peer.port, lines, options, at.cores).cpu_us


def once_us(peer: Peer, at: Place) -> float:
    """Of names that nobody has asked for."""
    numbers = random.sample(range(at.services), min(at.services, ASKED_ONCE_MAX))
    return cost_us(peer, at, [A.line(number) for number in numbers], "-n", "1")


def again_us(peer: Peer, at: Place, kind: Kind, seconds: float, rounds: int) -> float:
    """Of names that were asked for before: every name once, then the median of some turns at random."""
    cost_us(peer, at, [kind.line(number) for number in range(at.services)], "-n", "1")
    length = ("-l", str(seconds))
    return statistics.median(cost_us(peer, at, at_random(kind, at.services), *length) for _ in range(rounds))


def row(at: Place, seconds: float, rounds: int) -> str:
    """The figures of one size."""
    with kdns(at) as server, ExitStack() as stack:
        asked(server.port, packet(SRV, at.services - 1))
        took_s, start_s, start_mib = time.monotonic() - server.began_s, cpu_s(server.pid), memory_mib(server.pid)
        peer = stack.enter_context(knot(at))
        figures = [f"{took_s:.2f}", f"{start_s:.2f}", f"{start_mib:.0f}", f"{memory_mib(peer.pid):.0f}"]
        figures.append(f"{once_us(server, at):.1f}")
        for kind in AGAIN:
            ours, theirs = (again_us(each, at, kind, seconds, rounds) for each in (server, peer))
            figures += [f"{ours:.2f}", f"{theirs:.2f}"]
        figures.append(f"{memory_mib(server.pid):.0f}")
    return f"| {at.services:,} | {' | '.join(figures)} |"


def main() -> None:
    """Measure one size after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("services", type=int, nargs="*", default=[100, 1_000, 10_000, 50_000], help="sizes")
    parser.add_argument("--seconds", type=float, default=1.0, help="of one run of dnsperf")
    parser.add_argument("--rounds", type=int, default=3, help="for each server and question")
    options = parser.parse_args()
    if not installed(["knot"]):
        raise SystemExit("Knot DNS is needed (Debian package knot)")
    again = " | ".join(f"kdns {name} µs | knot {name} µs" for name in ("A", "NXDOMAIN", "SRV"))
    print(f"| Services | start s | start CPU s | MiB | knot MiB | kdns A once µs | {again} | MiB at the end |")
    print(f"|{'---|' * 13}")
    for services in options.services:
        with place(services) as at:
            print(row(at, options.seconds, options.rounds), flush=True)


if __name__ == "__main__":
    main()
