"""CPU time of a resolver for each query of an external name, kdns beside Unbound, dnsmasq and Knot Resolver.

All of them forward to one Knot DNS that holds 100,000 names, and keep what it says. Each runs alone on one core,
dnsperf and Knot DNS on the others. Servers take turns for every sort of question, the first turn warms up and does not
count, and the table has the median of the others. The CPU time is the server's whole process tree's, user and system,
so most of what the kernel does for packets, connections and encryption is in it.
`kubeadm` is kdns with the Corefile that kubeadm writes; a miss is a name that is asked for the first time.
Names of "after its TTL" were asked once, and what the server keeps of them has expired.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import dnslib
from _certificate import write_certificate
from _dns_servers import KNOT_SERVER, KUBEADM
from _dnsperf import Run, dnsperf
from _process import Cores, asked, free_port, memory_mib, read_until, running

ZONE: Final = "example.org"
NAMES: Final = 100_000
CACHED: Final = 1000
TTL_S: Final = 5
"""The TTL of `short` names, and of the denial of `absent` ones; kdns and Knot Resolver keep nothing for less."""
LOST_MAX: Final = 0.001
"""The part of the queries that may stay without an answer, as sockets' buffers overflow."""

ZONE_CONF: Final = """\
zone:
  - domain: {zone}
    file: "{folder}/zone"
    zonefile-load: whole
    zonefile-sync: -1
    journal-content: none
"""
COREFILE: Final = """\
.:{dns} {{
    bind 127.0.0.1
    forward . 127.0.0.1:{upstream}
    cache 30
}}
tls://.:{dot} {{
    bind 127.0.0.1
    tls {folder}/crt.pem {folder}/key.pem
    forward . 127.0.0.1:{upstream}
    cache 30
}}
https://.:{doh} {{
    bind 127.0.0.1
    tls {folder}/crt.pem {folder}/key.pem
    forward . 127.0.0.1:{upstream}
    cache 30
}}
"""
UNBOUND_CONF: Final = """\
server:
    num-threads: 1
    interface: 127.0.0.1@{dns}
    interface: 127.0.0.1@{dot}
    interface: 127.0.0.1@{doh}
    tls-port: {dot}
    https-port: {doh}
    tls-service-key: "{folder}/key.pem"
    tls-service-pem: "{folder}/crt.pem"
    module-config: "iterator"
    do-not-query-localhost: no
    use-caps-for-id: yes
    msg-cache-size: 128m
    rrset-cache-size: 256m
    directory: "{folder}"
    pidfile: "{folder}/unbound.pid"
    username: ""
    chroot: ""
    use-syslog: no
    verbosity: 0
remote-control:
    control-enable: no
forward-zone:
    name: "."
    forward-addr: 127.0.0.1@{upstream}
"""
KRESD_CONF: Final = """\
net.listen('127.0.0.1', {dns}, {{ kind = 'dns' }})
net.listen('127.0.0.1', {dot}, {{ kind = 'tls' }})
net.listen('127.0.0.1', {doh}, {{ kind = 'doh2' }})
net.tls('{folder}/crt.pem', '{folder}/key.pem')
net.ipv6 = false
modules.unload('ta_update')
modules.unload('ta_signal_query')
modules.unload('priming')
trust_anchors.remove('.')
cache.open(256 * MB, 'lmdb://{folder}/kresd-cache')
policy.add(policy.all(policy.STUB('127.0.0.1@{upstream}')))
"""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a server listens."""

    dns: int
    dot: int
    doh: int

    @classmethod
    def free(cls) -> Ports:
        """Ports that nobody had a moment ago."""
        return cls(free_port(), free_port(), free_port())


@dataclass(frozen=True, slots=True)
class Resolver:
    """A running server, and the transports that it is measured with."""

    name: str
    ports: Ports
    pid: int
    modes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """What all servers are started with."""

    folder: Path
    upstream: int
    cores: Cores


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of question: the names of one run by its number, and how dnsperf asks."""

    label: str
    names: Callable[[int], range]
    mode: str
    options: tuple[str, ...] = ()
    prefix: str = "name"
    rcode: str = "NOERROR"
    is_expired: bool = False


def once(number: int) -> range:
    """Names that no other run asks for."""
    share = (NAMES - CACHED) // 10
    return range(CACHED + number * share, CACHED + (number + 1) * share)


KINDS: Final = (
    Kind("kept", lambda _: range(CACHED), "udp"),
    Kind("kept, EDNS", lambda _: range(CACHED), "udp", ("-e",)),
    Kind("miss, EDNS", once, "udp", ("-e",)),
    Kind("A, miss", once, "udp", prefix="short"),
    Kind("A, after its TTL", once, "udp", prefix="short", is_expired=True),
    Kind("NXDOMAIN, miss", once, "udp", prefix="absent", rcode="NXDOMAIN"),
    Kind("NXDOMAIN, after its TTL", once, "udp", prefix="absent", rcode="NXDOMAIN", is_expired=True),
    Kind("kept, TCP", lambda _: range(CACHED), "tcp", ("-e",)),
    Kind("kept, DNS over TLS", lambda _: range(CACHED), "dot", ("-e",)),
    Kind("kept, DNS over HTTPS", lambda _: range(CACHED), "doh", ("-e", "-O", "doh-method=POST")),
    Kind("kept, DNS over HTTPS with GET", lambda _: range(CACHED), "doh", ("-e", "-O", "doh-method=GET")),
)
ALL_MODES: Final = ("udp", "tcp", "dot", "doh")


def address(number: int) -> str:
    """The address of a name."""
    return str(ip_address(0x0A000000 + number))


def zone_file() -> str:
    """The zone of the upstream."""
    head = f"$ORIGIN {ZONE}.\n$TTL 3600\n@ SOA ns host 1 3600 600 86400 {TTL_S}\n@ NS ns\nns A 192.0.2.1\n"
    names = (
        f"name{number} A {address(number)}\nshort{number} {TTL_S} A {address(number)}\n" for number in range(NAMES)
    )
    return head + "".join(names)


def question(number: int) -> bytes:
    """A query for one of the names."""
    record = dnslib.DNSRecord.question(f"name{number}.{ZONE}", "A")
    record.add_ar(dnslib.EDNS0(udp_len=1232))
    return bytes(record.pack())


@contextmanager
def started(place: Place, name: str, argv: list[str], ports: Ports, modes: tuple[str, ...]) -> Iterator[Resolver]:
    """A server that answers."""
    with running(argv, place.cores.server, place.folder / f"{name}.log") as process:
        asked(ports.dns, question(0))
        yield Resolver(name, ports, process.pid, modes)


def configured(place: Place, name: str, text: str, ports: Ports, **more: int) -> str:
    """The path of a configuration."""
    path = place.folder / f"{name}.conf"
    fields = {"dns": ports.dns, "dot": ports.dot, "doh": ports.doh, "upstream": place.upstream, **more}
    path.write_text(text.format(folder=place.folder, **fields))
    return str(path)


def kdns(place: Place) -> AbstractContextManager[Resolver]:
    """Kdns with `forward` and `cache`."""
    ports = Ports.free()
    command = str(Path(sys.executable).with_name("kdns"))
    return started(
        place, "kdns", [command, "serve", "--conf", configured(place, "kdns", COREFILE, ports)], ports, ALL_MODES
    )


@contextmanager
def kubeadm(place: Place) -> Iterator[Resolver]:
    """Kdns with kubeadm's Corefile, beside a stand-in for an API server."""
    api = [sys.executable, str(Path(__file__).with_name("_cluster.py")), "1000"]
    with running(api, place.cores.others, place.folder / "api.log") as stand_in:
        port = int(read_until(stand_in, "", place.folder / "api.log")[0])
        ports = Ports.free()
        command = str(Path(sys.executable).with_name("kdns"))
        conf = configured(place, "kubeadm", KUBEADM, ports, api=port)
        with started(place, "kubeadm", [command, "serve", "--conf", conf], ports, ("udp", "tcp")) as resolver:
            yield resolver


def unbound(place: Place) -> AbstractContextManager[Resolver]:
    """Unbound with one thread."""
    ports = Ports.free()
    conf = configured(place, "unbound", UNBOUND_CONF, ports)
    return started(place, "unbound", ["unbound", "-d", "-c", conf], ports, ALL_MODES)


def dnsmasq(place: Place) -> AbstractContextManager[Resolver]:
    """Dnsmasq, which speaks no TLS, and forks for each connection."""
    ports = Ports.free()
    argv = ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--no-resolv", "--no-hosts"]
    argv += [f"--port={ports.dns}", "--listen-address=127.0.0.1", "--bind-interfaces", "--cache-size=10000"]
    argv += ["--dns-forward-max=1000", f"--server=127.0.0.1#{place.upstream}", f"--pid-file={place.folder}/dnsmasq.pid"]
    return started(place, "dnsmasq", argv, ports, ("udp",))


def kresd(place: Place) -> AbstractContextManager[Resolver]:
    """Knot Resolver with one process."""
    ports = Ports.free()
    folder = place.folder / "kresd"
    folder.mkdir()
    conf = configured(place, "kresd", KRESD_CONF, ports)
    return started(place, "kresd", ["kresd", "-n", "-c", conf, str(folder)], ports, ALL_MODES)


PEERS: Final[dict[str, Callable[[Place], AbstractContextManager[Resolver]]]] = {
    "unbound": unbound,
    "dnsmasq": dnsmasq,
    "kresd": kresd,
}


@contextmanager
def upstream(folder: Path, cores: Cores) -> Iterator[int]:
    """The port of the authoritative server behind all of them."""
    port = free_port()
    (folder / "zone").write_text(zone_file())
    (folder / "knot.conf").write_text((KNOT_SERVER + ZONE_CONF).format(folder=folder, dns=port, zone=ZONE))
    with running(["knotd", "-c", str(folder / "knot.conf")], cores.others, folder / "knot.log"):
        asked(port, question(0))
        yield port


def refuse_different_answers(resolvers: list[Resolver]) -> None:
    """A comparison is only fair between servers that give the same answers."""
    for resolver in resolvers:
        for number in range(0, CACHED, 50):
            record = dnslib.DNSRecord.parse(asked(resolver.ports.dns, question(number)))
            addresses = [str(each.rdata) for each in record.rr]
            if addresses != [address(number)]:
                raise SystemExit(f"{resolver.name}: name{number}: {addresses} is not {address(number)}")


def run_of(place: Place, resolver: Resolver, kind: Kind, number: int, seconds: float) -> Run:
    """One run against one server."""
    queries = [f"{kind.prefix}{name}.{ZONE} A\n" for name in kind.names(number)]
    port = {"dot": resolver.ports.dot, "doh": resolver.ports.doh}.get(kind.mode, resolver.ports.dns)
    length = ["-n", "1"] if kind.names is once else ["-l", str(seconds)]
    uri = ["-O", f"doh-uri=https://127.0.0.1:{port}/dns-query"] if kind.mode == "doh" else []
    run = dnsperf(resolver.pid, port, queries, ["-m", kind.mode, *length, *kind.options, *uri], place.cores)
    if set(run.rcodes) != {kind.rcode} or run.lost > LOST_MAX:
        raise SystemExit(f"{resolver.name}: {kind.label}: {run}")
    return run


def measure(place: Place, resolvers: list[Resolver], seconds: float, rounds: int) -> None:
    """Print the table, row by row as it comes about."""
    print(f"| question | {' | '.join(f'{resolver.name} µs' for resolver in resolvers)} | max q/s |")
    print(f"|---|{'---|' * (len(resolvers) + 1)}")
    for kind in KINDS:
        runs: dict[str, list[Run]] = {}
        speaking = [resolver for resolver in resolvers if kind.mode in resolver.modes]
        for number in range(rounds + 1):
            if kind.is_expired:
                for one in speaking:
                    run_of(place, one, kind, number, seconds)
                time.sleep(TTL_S + 1)
            for one in speaking:
                run = run_of(place, one, kind, number, seconds)
                if number:
                    runs.setdefault(one.name, []).append(run)
        columns = [_medians(runs.get(resolver.name, [])) for resolver in resolvers]
        us, qps = (" | ".join(column[0] for column in columns), " / ".join(column[1] for column in columns))
        print(f"| {kind.label} | {us} | {qps} |", flush=True)
    print(f"\nmemory, MiB: {', '.join(f'{resolver.name} {memory_mib(resolver.pid):.0f}' for resolver in resolvers)}")


def _medians(runs: list[Run]) -> tuple[str, str]:
    """CPU µs and queries per second, or a dash for what a server does not speak."""
    if not runs:
        return "-", "-"
    us, qps = statistics.median(run.cpu_us for run in runs), statistics.median(run.qps for run in runs)
    return f"{us:.1f}", f"{qps:,.0f}"


def main() -> None:
    """Start the servers that are installed, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one run of dnsperf, where names are asked again")
    parser.add_argument("--rounds", type=int, default=5, help="that count, for each server and question; at most 9")
    parser.add_argument("--peers", default=",".join(PEERS), help="comma-separated, or nothing")
    options = parser.parse_args()
    wanted = [name for name in options.peers.split(",") if name]
    if unknown := set(wanted) - set(PEERS):
        parser.error(f"unknown peers {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    for program in ("dnsperf", "knotd"):
        if not shutil.which(program):
            raise SystemExit(f"{program} is needed and not installed")
    missing = [name for name in wanted if not shutil.which(name)]
    for name in missing:
        print(f"{name} is not installed: measuring without it")
    cores = Cores.of_this_machine()
    with tempfile.TemporaryDirectory(prefix="kdns-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        write_certificate(folder)
        place = Place(folder, stack.enter_context(upstream(folder, cores)), cores)
        starts = [kdns, kubeadm, *(PEERS[name] for name in wanted if name not in missing)]
        resolvers = [stack.enter_context(start(place)) for start in starts]
        refuse_different_answers(resolvers)
        measure(place, resolvers, options.seconds, min(options.rounds, 9))


if __name__ == "__main__":
    main()
