"""CPU time of the DNS server for each query, kdns beside Knot DNS and NSD, as a cluster asks and as much as they can.

Each server runs alone on one core, dnsperf on another; all hold the same names. `once` asks each name a single time,
so that kdns has no answer ready. At a rate, and at saturation (`max`), names are drawn at random over all Services.
Servers take turns, the first turn warms up and does not count, and each figure is the median of the others. The CPU
time is the server's whole process tree's, user and system, so most of what the kernel does for a packet is in it.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from _dns_servers import PEERS, Peer, Place, installed, place, servers
from _dnsperf import Run, dnsperf
from _process import memory_mib
from _questions import BIG, KINDS, SHARES, Kind, at_random, mixed

RATES: Final = (2_000, 15_000, 0)
"""Queries a second; 0 is as many as the server answers."""
KIND_NAMES: Final = dict(zip(("a", "aaaa", "nxdomain", "headless", "srv", "ptr", "pod"), KINDS, strict=True))
LOST_MAX: Final = 0.001
BATCH: Final = 500
"""The fewest names that are asked once in a turn."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: how dnsperf asks, and which rcodes it may hear."""

    label: str
    asked: str
    texts: list[list[str]]
    options: tuple[str, ...]
    rcodes: frozenset[str]


def once(kind: Kind, services: int, turns: int) -> Row:
    """Each turn has names of its own."""
    numbers = random.sample(range(services), services)
    share = services // turns
    texts = [[kind.line(number) for number in numbers[turn * share : (turn + 1) * share]] for turn in range(turns)]
    return Row(kind.label, "once", texts, ("-n", "1"), frozenset({kind.rcode}))


def again(kind: Kind | None, services: int, rate: int, seconds: float) -> Row:
    """Any name at any time; without a kind a mix of all."""
    texts = list(mixed(services) if kind is None else at_random(kind, services))
    rcodes = frozenset({share.rcode for share in SHARES} if kind is None else {kind.rcode})
    options = ("-l", str(seconds), *(("-Q", str(rate)) if rate else ()))
    return Row(kind.label if kind else "a mix", f"{rate:,}/s" if rate else "max", [texts], options, rcodes)


def rows(kinds: Sequence[Kind], services: int, turns: int, seconds: float) -> Iterator[Row]:
    """The rows; first those of names that nobody has asked for."""
    for kind in kinds:
        if services // turns >= BATCH:
            yield once(kind, services, turns)
    repeated: list[Kind | None] = [*kinds, BIG, None]
    for row in repeated:
        for rate in RATES:
            yield again(row, services, rate, seconds)


def run_of(peer: Peer, row: Row, turn: int, at: Place) -> Run:
    """One turn of one server."""
    run = dnsperf(peer.pid, peer.port, row.texts[turn % len(row.texts)], row.options, at.cores)
    if not row.rcodes.issuperset(run.rcodes) or run.lost > LOST_MAX:
        raise SystemExit(f"{peer.name}: {row.label}: {run}")
    return run


def measure(peers: Sequence[Peer], kinds: Sequence[Kind], at: Place, seconds: float, rounds: int) -> None:
    """Print the table, row by row as it comes about."""
    us, ratios = (
        " | ".join(f"{peer.name} µs" for peer in peers),
        "".join(f"kdns / {each.name} | " for each in peers[1:]),
    )
    print(f"| question | asked | {us} | {ratios}queries/s |")
    print(f"|---|---|{'---|' * (2 * len(peers))}")
    for row in rows(kinds, at.services, rounds + 1, seconds):
        runs: dict[str, list[Run]] = {peer.name: [] for peer in peers}
        for turn in range(rounds + 1):
            for peer in peers:
                runs[peer.name].append(run_of(peer, row, turn, at))
        taken = {name: statistics.median(run.cpu_us for run in found[1:]) for name, found in runs.items()}
        figures = [f"{taken[peer.name]:.2f}" for peer in peers]
        figures += [f"{taken['kdns'] / taken[peer.name]:.2f}" for peer in peers[1:]]
        answered = " / ".join(f"{statistics.median(run.qps for run in runs[peer.name][1:]):,.0f}" for peer in peers)
        print(f"| {row.label} | {row.asked} | {' | '.join(figures)} | {answered} |", flush=True)
    print(f"\nMemory in MiB: {', '.join(f'{peer.name} {memory_mib(peer.pid):.0f}' for peer in peers)}.")


def main() -> None:
    """Start the servers that are installed, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=10_000, help="Services of each sort")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one run of dnsperf")
    parser.add_argument("--rounds", type=int, default=3, help="that count, for each server and question")
    parser.add_argument("--peers", default=",".join(PEERS), help="comma-separated, or nothing")
    parser.add_argument("--kinds", default="", help=f"comma-separated, of {', '.join(KIND_NAMES)}; all without it")
    options = parser.parse_args()
    wanted = [name for name in options.peers.split(",") if name]
    if unknown := set(wanted) - set(PEERS):
        parser.error(f"unknown peers {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    if unknown := set(filter(None, options.kinds.split(","))) - set(KIND_NAMES):
        parser.error(f"unknown kinds {', '.join(sorted(unknown))}; there are {', '.join(KIND_NAMES)}")
    kinds = [KIND_NAMES[name] for name in options.kinds.split(",")] if options.kinds else KINDS
    with place(options.services) as at, servers(at, installed(wanted)) as peers:
        measure(peers, kinds, at, options.seconds, options.rounds)


if __name__ == "__main__":
    main()
