"""Connections through a virtual IP: past kdns's rules, a rule by hand, rules in kube-proxy's shape, and past none.

Needs root, unshare and nft; the shape of kube-proxy's mode iptables needs iptables-restore. Each set of rules has a
client, a node and endpoints in network namespaces of their own. The client asks one question after the other, each on
a new connection or, with UDP, from a new socket: a byte there and a byte back. Everything runs on one core. Sets of
rules take turns; what is compared with going to an endpoint directly is compared within one round, and each figure is
the median of the rounds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from statistics import median
from typing import Final, NamedTuple

from _lanes import Asker, lane
from _process import Cores
from _vip_ends import Turn
from _vip_rules import SHAPES, Shape
from _vip_services import PORT, TARGET_PORT, Setting, setting

from kdns.net import FAMILIES, Family

KINDS: Final = ("tcp", "udp")
DIRECT: Final = "directly to an endpoint"
NAMESPACES: Final = (
    *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh"),
)
"""Those of the whole program: whatever it has started or made ends with it."""
COLUMNS: Final = (
    *("Services", "rules"),
    *("TCP connections/s", "÷ direct", "p50 µs", "more", "p99 µs"),
    *("UDP requests/s", "÷ direct", "p50 µs"),
)


class Way(NamedTuple):
    """One line of the table: who asks whom."""

    name: str
    asker: Asker
    address: str
    port: int


def ways(given: Setting, shapes: list[Shape], core: frozenset[int], stack: ExitStack) -> list[Way]:
    """Lanes with these rules, and one without any."""
    asked = given.asked
    direct = stack.enter_context(lane("direct", asked.endpoints, (), "", core))
    found = [Way(DIRECT, direct, asked.endpoints[0], TARGET_PORT)]
    for number, shape in enumerate(shapes):
        text = "\n".join(shape.text(given)) + "\n"
        asker = stack.enter_context(lane(f"rules{number}", asked.endpoints, shape.argv[given.family], text, core))
        found.append(Way(shape.name, asker, asked.vip, PORT))
    return found


def measured(found: list[Way], rounds: int, seconds: float) -> dict[str, dict[str, list[Turn]]]:
    """By kind and way, the turns; the first round does not count, and each round begins with another way."""
    turns: dict[str, dict[str, list[Turn]]] = {kind: {way.name: [] for way in found} for kind in KINDS}
    for number in range(rounds + 1):
        start = number % len(found)
        for way in found[start:] + found[:start]:
            for kind in KINDS:
                turn = way.asker.turn(kind, way.address, way.port, seconds)
                if turn.failed:
                    raise SystemExit(f"{way.name}: {turn.failed} questions of {turn.answers} had no answer ({kind})")
                if number:
                    turns[kind][way.name].append(turn)
    return turns


def rows(found: list[Way], turns: dict[str, dict[str, list[Turn]]], size: str) -> list[str]:
    """The lines of the table."""
    lines = []
    for way in found:
        cells = [size, way.name]
        for kind in KINDS:
            mine, direct = turns[kind][way.name], turns[kind][DIRECT]
            pairs = list(zip(mine, direct, strict=True))
            rate = median(turn.answers / turn.took_s for turn in mine)
            share = median(turn.answers / turn.took_s / (other.answers / other.took_s) for turn, other in pairs)
            more_us = median(turn.p50_us - other.p50_us for turn, other in pairs)
            cells += [f"{rate:,.0f}", f"{share:.2f}", f"{median(turn.p50_us for turn in mine):.0f}"]
            if kind == "tcp":
                cells += [f"{more_us:.0f}", f"{median(turn.p99_us for turn in mine):.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def installed(family: Family) -> list[Shape]:
    """The sets of rules whose program is there; others are named."""
    there = []
    for shape in SHAPES:
        if shutil.which(shape.argv[family][0]):
            there.append(shape)
        else:
            program = shape.argv[family][0]
            print(f"{shape.name} left out: {program} is not installed (Debian package {shape.package})")
    return there


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[1, 1000, 10000], help="Services in the table")
    parser.add_argument("--family", choices=FAMILIES, default="IPv4")
    parser.add_argument("--affinity", type=int, default=1000, help="Services beside one with ClientIP affinity, or 0")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each turn")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not given.inside:
        if os.geteuid() != 0 or not shutil.which("nft"):
            print("left out: it needs root, since it makes network namespaces, and nft")
            return
        again = [sys.executable, __file__, "--inside", *sys.argv[1:]]
        sys.exit(subprocess.run([*NAMESPACES, *again], check=False).returncode)
    shapes, core = installed(given.family), Cores.of_this_machine().server
    print(f"\n| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    blocks = [(size, False) for size in given.sizes] + ([(given.affinity, True)] if given.affinity else [])
    for size, affinity in blocks:
        used = [shape for shape in shapes if shape.has_affinity or not affinity]
        with ExitStack() as stack:
            found = ways(setting(size, given.family, affinity=affinity), used, core, stack)
            turns = measured(found, given.rounds, given.seconds)
            print("\n".join(rows(found, turns, f"{size:,}{', affinity' * affinity}")), flush=True)


if __name__ == "__main__":
    main()
