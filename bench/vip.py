"""Connections through a virtual IP: by each mode of kdns, a rule by hand, rules in kube-proxy's shape, and by none.

Needs root, unshare and nft; rules of iptables need iptables-restore. Each set of rules has a client, a node and
endpoints in network namespaces of their own. The client asks one question after the other, each on a new connection or,
with UDP, from a new socket: a byte there and a byte back. Everything runs on one core. Sets of rules take turns; what
is compared with going to an endpoint directly is compared within one round, and each figure is the median of the
rounds.

Mode ipvs needs a kernel with IPVS: where this one has none, it is measured in user-mode Linux (Debian package
user-mode-linux), with others for comparison.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from _lanes import Asker, lane
from _process import Cores
from _user_mode import has_ipvs, in_user_mode
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
IPVS: Final = "kdns, ipvs"
COMPARED: Final = ("kdns, iptables-legacy", "shape of kube-proxy's iptables, legacy")
"""What stands beside mode ipvs where that is measured in another kernel."""
SAME: Final = ("family", "affinity", "rounds", "seconds")
"""Options that are passed on."""
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
        text, argv = "\n".join(shape.text(given)) + "\n", shape.argv[given.family]
        made = lane(f"rules{number}", asked.endpoints, argv, text, core, serves=shape.serves)
        asker = stack.enter_context(made)
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


def installed(names: list[str], family: Family) -> list[Shape]:
    """The sets of rules whose program is there; others are named."""
    there = []
    for shape in (SHAPES[name] for name in names):
        program = {True: shape.package, False: shape.argv[family][0]}[shape.serves]
        if shutil.which({"nftables": "nft"}.get(program, program)):
            there.append(shape)
        else:
            print(f"{shape.name} left out: {program} is not installed (Debian package {shape.package})")
    return there


def inside(given: argparse.Namespace) -> None:
    """Measure and print."""
    subprocess.run(["modprobe", "--quiet", "nf_conntrack"], check=False)  # lanes set what it has to be told
    shapes, core = installed(given.rules, given.family), Cores.of_this_machine().server
    print(f"\n| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    blocks = [(size, False) for size in given.sizes] + ([(given.affinity, True)] if given.affinity else [])
    for size, affinity in blocks:
        used = [shape for shape in shapes if shape.has_affinity or not affinity]
        with ExitStack() as stack:
            found = ways(setting(size, given.family, affinity=affinity), used, core, stack)
            turns = measured(found, given.rounds, given.seconds)
            print("\n".join(rows(found, turns, f"{size:,}{', affinity' * affinity}")), flush=True)


def main() -> None:
    """Measure here, and what this kernel lacks in user-mode Linux."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[1, 1000, 10000], help="Services in the table")
    parser.add_argument("--family", choices=FAMILIES, default="IPv4")
    parser.add_argument("--affinity", type=int, default=1000, help="Services beside one with ClientIP affinity, or 0")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each turn")
    parser.add_argument("--rules", nargs="*", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        inside(given)
        return
    if os.geteuid() != 0 or not shutil.which("nft"):
        print("left out: it needs root, since it makes network namespaces, and nft")
        return
    names = [name for name in given.rules if name != IPVS or has_ipvs()]
    numbers = [*map(str, given.sizes), *(f"--{name}={getattr(given, name)}" for name in SAME)]
    again = [sys.executable, str(Path(__file__).resolve()), "--inside", *numbers, "--rules"]
    if names:
        subprocess.run([*NAMESPACES, *again, *names], check=True)
    if IPVS in given.rules and IPVS not in names:
        print("\nIn user-mode Linux:", flush=True)
        in_user_mode([*again, *COMPARED, IPVS])


if __name__ == "__main__":
    main()
