"""CPU time of the DNS server for each query, kdns beside Knot DNS and NSD.

Each server runs alone on one core, dnsperf on another; all hold the same names. Servers take turns for every sort of
question, the first turn warms up and does not count, and the table has the median of the others. The CPU time is the
server's whole process tree's, user and system, so most of what the kernel does for a packet is in it.
Rows with `never kept` are of kdns's chain: each answer is made anew, as for the first question of a name.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import dnslib
from _cluster import BASE, TTL_S, ZONE, zone_file
from _process import Cores, asked, cpu_s, free_port, memory_mib, read_until, running

COREFILE: Final = """\
.:0 {{
    bind 127.0.0.1
    errors
    health 127.0.0.1:0
    ready 127.0.0.1:0
    kubernetes {zone} in-addr.arpa ip6.arpa {{
        endpoint http://127.0.0.1:{api_port}
        pods insecure
        ttl {ttl_s}
        startup_timeout 60s
    }}
    prometheus 127.0.0.1:0
    loadbalance
}}
"""
KNOT_CONF: Final = """\
server:
    rundir: "{folder}"
    listen: 127.0.0.1@{port}
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
    answer-rotation: on
database:
    storage: "{folder}"
log:
  - target: stderr
    any: warning
zone:
  - domain: {zone}
    file: "{folder}/zone"
    zonefile-load: whole
    zonefile-sync: -1
    journal-content: none
"""
NSD_CONF: Final = """\
server:
    server-count: 1
    ip-address: 127.0.0.1@{port}
    username: ""
    zonesdir: "{folder}"
    database: ""
    pidfile: "{folder}/nsd.pid"
    xfrdfile: "{folder}/xfrd.state"
    zonelistfile: "{folder}/zone.list"
    round-robin: yes
    minimal-responses: yes
    rrl-ratelimit: 0
remote-control:
    control-enable: no
zone:
    name: {zone}
    zonefile: zone
"""
SEARCHED: Final = (f"default.svc.{ZONE}", f"svc.{ZONE}", ZONE)


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of question: `name` makes the name for a number."""

    label: str
    name: Callable[[int], str]
    qtype: str
    rcode: str = "NOERROR"


KINDS: Final = (
    Kind("A of a cluster IP", lambda n: f"svc-{n}.{BASE}", "A"),
    Kind("NXDOMAIN of a search path", lambda n: f"svc-{n}.{BASE}.{SEARCHED[n % 3]}", "A", "NXDOMAIN"),
    Kind("A, headless, 5 endpoints", lambda n: f"set-{n}.{BASE}", "A"),
    Kind("SRV, headless, 5 endpoints", lambda n: f"_http._tcp.set-{n}.{BASE}", "SRV"),
)
EDNS: Final = {"no": (), "yes": ("-e",), "never kept": ("-e", "-E", "65001:6b646e73")}
"""How a question is asked. An answer to a query with an option is not kept: it is made anew each time."""
PROGRAMS: Final = {"knot": "knotd", "nsd": "nsd"}


@dataclass(frozen=True, slots=True)
class Peer:
    """A running server."""

    name: str
    port: int
    pid: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run of dnsperf."""

    cpu_us: float
    qps: float


@contextmanager
def kdns(folder: Path, services: int, cores: Cores) -> Iterator[Peer]:
    """Kdns as its own command, following the stand-in for an API server."""
    api = [sys.executable, str(Path(__file__).with_name("_cluster.py")), str(services)]
    with running(api, cores.others, folder / "api.log") as stand_in:
        api_port = int(read_until(stand_in, "", folder / "api.log")[0])
        corefile = folder / "Corefile"
        corefile.write_text(COREFILE.format(zone=ZONE, api_port=api_port, ttl_s=TTL_S))
        command = Path(sys.executable).with_name("kdns")
        with running([str(command), "serve", "--conf", str(corefile)], cores.server, folder / "kdns.log") as process:
            lines = read_until(process, "ready", folder / "kdns.log")
            found = re.search(r"^dns +127\.0\.0\.1 port (\d+)", "\n".join(lines), re.MULTILINE)
            if not found:
                raise SystemExit(f"kdns did not say where it listens: {lines}")
            yield Peer("kdns", int(found[1]), process.pid)


@contextmanager
def zone_server(name: str, argv: list[str], conf: str, folder: Path, cores: Cores) -> Iterator[Peer]:
    """A server of the zone file, on a port of its own."""
    port = free_port()
    (folder / f"{name}.conf").write_text(conf.format(folder=folder, port=port, zone=ZONE))
    with running([*argv, str(folder / f"{name}.conf")], cores.server, folder / f"{name}.log") as process:
        asked(port, question(f"svc-0.{BASE}", "A"))
        yield Peer(name, port, process.pid)


def question(name: str, qtype: str) -> bytes:
    """A query packet with EDNS."""
    record = dnslib.DNSRecord.question(name, qtype)
    record.add_ar(dnslib.EDNS0(udp_len=4096))
    return bytes(record.pack())


def meaning(packet: bytes, *, with_extra: bool) -> tuple[str, frozenset[str]]:
    """What a response says: its rcode, its answer, and the addresses beside it, without order."""
    record = dnslib.DNSRecord.parse(packet)
    extra = [rr for rr in record.ar if rr.rtype == dnslib.QTYPE.A] if with_extra else []
    records = frozenset(f"{rr.rname} {rr.ttl} {rr.rtype} {rr.rdata}" for rr in (*record.rr, *extra))
    return dnslib.RCODE[record.header.rcode], records


def refuse_different_answers(peers: list[Peer], services: int) -> None:
    """A comparison is only fair between servers that give the same answers.

    NSD either leaves out the addresses beside SRV records or adds name servers everywhere: it may leave them out.
    """
    for kind in KINDS:
        for number in random.sample(range(services), min(20, services)):
            packet = question(kind.name(number), kind.qtype)
            responses = {peer.name: asked(peer.port, packet) for peer in peers}
            for name, response in responses.items():
                with_extra = name != "nsd"
                wanted = meaning(responses["kdns"], with_extra=with_extra)
                if (found := meaning(response, with_extra=with_extra)) != wanted or found[0] != kind.rcode:
                    raise SystemExit(f"{name}: {kind.name(number)} {kind.qtype}: {found} is not {wanted}")


def dnsperf(peer: Peer, queries: Path, kind: Kind, options: list[str], seconds: float, cores: Cores) -> Run:
    """One run against one server."""
    before_s = cpu_s(peer.pid)
    pins = ",".join(map(str, sorted(cores.others)))
    argv = ["taskset", "-c", pins, "dnsperf", "-s", "127.0.0.1", "-p", str(peer.port), "-d", str(queries)]
    result = subprocess.run(
        [*argv, "-l", str(seconds), "-q", "100", "-c", "4", *options], capture_output=True, text=True, check=True
    )
    used_s = cpu_s(peer.pid) - before_s
    completed = int(_figure(r"Queries completed:\s+(\d+)", result.stdout))
    codes = _figure(r"Response codes:\s+(.*)", result.stdout)
    if not re.fullmatch(rf"{kind.rcode} \d+ \(100.00%\)", codes):
        raise SystemExit(f"{peer.name}: {kind.label}: wanted only {kind.rcode}, found {codes}")
    return Run(used_s / completed * 1e6, float(_figure(r"Queries per second:\s+([\d.]+)", result.stdout)))


def _figure(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if not found:
        raise SystemExit(f"dnsperf's statistics have no {pattern!r}:\n{text}")
    return found[1]


def measure(peers: list[Peer], folder: Path, services: int, seconds: float, rounds: int, cores: Cores) -> None:
    """Print the table, row by row as it comes about."""
    print(f"| question | EDNS | {' | '.join(f'{peer.name} µs' for peer in peers)} | {ratios(peers)}max q/s |")
    print(f"|---|---|{'---|' * (2 * len(peers))}")
    for position, kind in enumerate(KINDS):
        queries = folder / f"queries{position}"
        numbers = random.sample(range(services), services)
        queries.write_text("".join(f"{kind.name(number)} {kind.qtype}\n" for number in numbers))
        for edns, options in EDNS.items():
            runs: dict[str, list[Run]] = {peer.name: [] for peer in peers}
            for number in range(rounds + 1):
                for peer in peers:
                    run = dnsperf(peer, queries, kind, list(options), seconds, cores)
                    if number:
                        runs[peer.name].append(run)
            us = {name: statistics.median(run.cpu_us for run in found) for name, found in runs.items()}
            figures = [f"{us[peer.name]:.2f}" for peer in peers]
            figures += [f"{us['kdns'] / us[peer.name]:.2f}" for peer in peers[1:]]
            fastest = " / ".join(f"{statistics.median(run.qps for run in runs[peer.name]):,.0f}" for peer in peers)
            print(f"| {kind.label} | {edns} | {' | '.join(figures)} | {fastest} |", flush=True)
    print(f"\nmemory, MiB: {', '.join(f'{peer.name} {memory_mib(peer.pid):.0f}' for peer in peers)}")


def ratios(peers: list[Peer]) -> str:
    """The heads of the columns that compare."""
    return "".join(f"kdns / {peer.name} | " for peer in peers[1:])


def main() -> None:
    """Start the servers that are installed, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=10_000, help="Services of each sort")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one run of dnsperf")
    parser.add_argument("--rounds", type=int, default=5, help="that count, for each server and question")
    parser.add_argument("--peers", default="knot,nsd", help="comma-separated: knot, nsd, or nothing")
    options = parser.parse_args()
    wanted = [name for name in options.peers.split(",") if name]
    if unknown := set(wanted) - set(PROGRAMS):
        parser.error(f"unknown peers {', '.join(sorted(unknown))}; there are {', '.join(PROGRAMS)}")
    if not shutil.which("dnsperf"):
        raise SystemExit("dnsperf is needed and not installed (Debian package dnsperf)")
    missing = [name for name in wanted if not shutil.which(PROGRAMS[name])]
    for name in missing:
        print(f"{PROGRAMS[name]} is not installed (Debian package {name}): measuring without it")
    cores = Cores.of_this_machine()
    with tempfile.TemporaryDirectory(prefix="kdns-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "zone").write_text("\n".join((*zone_file(options.services), "")))
        servers = {
            "knot": lambda: zone_server("knot", ["knotd", "-c"], KNOT_CONF, folder, cores),
            "nsd": lambda: zone_server("nsd", ["nsd", "-d", "-c"], NSD_CONF, folder, cores),
        }
        peers = [stack.enter_context(kdns(folder, options.services, cores))]
        peers += [stack.enter_context(servers[name]()) for name in wanted if name not in missing]
        refuse_different_answers(peers, options.services)
        measure(peers, folder, options.services, options.seconds, options.rounds, cores)


if __name__ == "__main__":
    main()
