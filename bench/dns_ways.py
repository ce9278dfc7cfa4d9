"""CPU time of the DNS server for each query for the A record of a cluster IP, by how it is asked.

Names are drawn at random over all Services, and each server answers as much as it can. Four clients keep their
connections over TCP and TLS. `0x20` is a random case of each letter; a cookie is a client's of 8 bytes (RFC 7873).
"""

from __future__ import annotations

import argparse
import random
import statistics
from dataclasses import dataclass
from typing import Final

from _dns_servers import PEERS, Peer, Place, installed, place, servers
from _dnsperf import Run, dnsperf
from _questions import A, at_random


@dataclass(frozen=True, slots=True)
class Way:
    """One way to ask."""

    label: str
    options: tuple[str, ...] = ()
    mixes_case: bool = False

    @property
    def is_encrypted(self) -> bool:
        """Whether it goes over TLS."""
        return "dot" in self.options


WAYS: Final = (
    Way("UDP"),
    Way("UDP, 0x20", mixes_case=True),
    Way("UDP, EDNS", ("-e",)),
    Way("UDP, EDNS with DO", ("-D",)),
    Way("UDP, EDNS with a cookie", ("-e", "-E", "10:0123456789abcdef")),
    Way("TCP", ("-m", "tcp")),
    Way("TLS", ("-m", "dot")),
)


def run_of(peer: Peer, way: Way, at: Place, seconds: float) -> Run | None:
    """One turn; None where the server does not listen that way."""
    port = peer.tls_port if way.is_encrypted else peer.port
    if not port:
        return None
    lines = at_random(A, at.services)
    if way.mixes_case:
        lines = ("".join(random.choice((each.upper(), each)) for each in line) for line in lines)
    run = dnsperf(peer.pid, port, lines, [*way.options, "-l", str(seconds)], at.cores)
    if set(run.rcodes) != {"NOERROR"}:
        raise SystemExit(f"{peer.name}: {way.label}: {run}")
    return run


def median_us(runs: list[Run]) -> float | None:
    """CPU time for each query, without the first turn."""
    return statistics.median(run.cpu_us for run in runs[1:]) if runs else None


def main() -> None:
    """Start the servers that are installed, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=10_000, help="Services of each sort")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one run of dnsperf")
    parser.add_argument("--rounds", type=int, default=3, help="that count, for each server and way")
    options = parser.parse_args()
    with place(options.services) as at, servers(at, installed([*PEERS])) as peers:
        print(f"| asked over | {' | '.join(f'{peer.name} µs' for peer in peers)} | kdns / best peer |")
        print(f"|---|{'---|' * (len(peers) + 1)}")
        for way in WAYS:
            runs: dict[str, list[Run]] = {peer.name: [] for peer in peers}
            for _ in range(options.rounds + 1):
                for peer in peers:
                    if run := run_of(peer, way, at, options.seconds):
                        runs[peer.name].append(run)
            medians = {name: median_us(found) for name, found in runs.items()}
            best = min((us for name, us in medians.items() if us and name != "kdns"), default=None)
            ratio = f"{(medians['kdns'] or 0) / best:.2f}" if best else "-"
            figures = [f"{us:.2f}" if us else "-" for us in medians.values()]
            print(f"| {way.label} | {' | '.join(figures)} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
