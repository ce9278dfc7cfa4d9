"""What the DNS server costs over the endpoints of a Service, and over the clients that ask at the same time.

The first table has 1,000 headless Services of so many endpoints, beside those of the other benchmarks. `once` asks each
name a single time, `again` draws names at random that were asked before. In the second table so many clients ask at
random, each from a socket of its own; `2,000/s` is the rate of all together. CPU time is user and system.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from typing import Final

from _dns_servers import Peer, Place, installed, kdns, place
from _dnsperf import dnsperf
from _process import asked, cpu_s, memory_mib
from _questions import HEADLESS, NXDOMAIN, SRV, A, Kind, at_random, packet

SERVICES: Final = 1_000
ENDPOINTS: Final = (1, 5, 25, 100)
CLIENTS: Final = (1, 10, 100, 1_000)
RATE: Final = 2_000


def once_us(peer: Peer, at: Place, kind: Kind) -> float:
    """CPU time for each query of names that nobody has asked for."""
    return dnsperf(peer.pid, peer.port, map(kind.line, range(at.services)), ("-n", "1"), at.cores).cpu_us


def again_us(peer: Peer, at: Place, kind: Kind, *options: str, rounds: int = 3) -> float:
    """CPU time for each query of names that were asked for before: the median of some turns."""
    lines = [*at_random(kind, at.services)]
    return statistics.median(dnsperf(peer.pid, peer.port, lines, options, at.cores).cpu_us for _ in range(rounds))


def over_endpoints(at: Place, seconds: float) -> None:
    """Print the first table."""
    print("| endpoints | start CPU s | MiB | A once µs | SRV once µs | A again µs | SRV again µs | MiB at the end |")
    print(f"|{'---|' * 8}")
    for endpoints in ENDPOINTS:
        with kdns(replace(at, endpoints=endpoints)) as server:
            asked(server.port, packet(SRV, at.services - 1))
            figures = [f"{cpu_s(server.pid):.2f}", f"{memory_mib(server.pid):.0f}"]
            figures += [f"{once_us(server, at, kind):.1f}" for kind in (HEADLESS, SRV)]
            figures += [f"{again_us(server, at, kind, '-l', str(seconds)):.2f}" for kind in (HEADLESS, SRV)]
            print(f"| {endpoints} | {' | '.join(figures)} | {memory_mib(server.pid):.0f} |", flush=True)


def over_clients(at: Place, seconds: float) -> None:
    """Print the second table."""
    print(f"| clients | A at {RATE:,}/s µs | A µs | NXDOMAIN µs | MiB |\n|{'---|' * 5}")
    with kdns(at) as server:
        asked(server.port, packet(SRV, at.services - 1))
        for kind in (A, NXDOMAIN):
            once_us(server, at, kind)
        for clients in CLIENTS:
            sockets = ("-c", str(clients), "-q", str(max(clients, 100)), "-l", str(seconds))
            figures = [again_us(server, at, A, *sockets, "-Q", str(RATE))]
            figures += [again_us(server, at, kind, *sockets) for kind in (A, NXDOMAIN)]
            row = " | ".join(f"{figure:.2f}" for figure in figures)
            print(f"| {clients:,} | {row} | {memory_mib(server.pid):.0f} |", flush=True)
            time.sleep(0.5)


def main() -> None:
    """Measure one table after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one run of dnsperf")
    options = parser.parse_args()
    installed(())
    with place(SERVICES) as at:
        over_endpoints(at, options.seconds)
        print()
        over_clients(at, options.seconds)


if __name__ == "__main__":
    main()
