"""Servers of the benchmark's cluster: kdns, Knot DNS and NSD, each alone on one core.

kdns runs with kubeadm's Corefile and follows a stand-in for an API server; the others have the same names in zone
files, and one worker.
"""

from __future__ import annotations

import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from _certificate import write_certificate
from _cluster import ENDPOINTS, REVERSE_ZONE, ZONE, reverse_zone_file, zone_file
from _process import Cores, asked, free_port, read_until, running
from _questions import KINDS, A, meaning, packet

KUBEADM: Final = """\
.:{dns} {{
    bind 127.0.0.1
    errors
    health 127.0.0.1:0 {{
       lameduck 1s
    }}
    ready 127.0.0.1:0
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
       endpoint http://127.0.0.1:{api}
       startup_timeout 120s
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }}
    prometheus 127.0.0.1:0
    forward . 127.0.0.1:{upstream} {{
       max_concurrent 1000
    }}
    cache 30 {{
       disable success cluster.local
       disable denial cluster.local
    }}
    loop
    reload
    loadbalance
}}
"""
"""kubeadm's whole Corefile."""
OVER_TLS: Final = """\
tls://.:{dot} {{
    bind 127.0.0.1
    tls {folder}/crt.pem {folder}/key.pem
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
       endpoint http://127.0.0.1:{api}
       startup_timeout 120s
       pods insecure
       ttl 30
    }}
    loadbalance
}}
"""
KNOT_SERVER: Final = """\
server:
    rundir: "{folder}"
    listen: 127.0.0.1@{dns}
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
    answer-rotation: on
database:
    storage: "{folder}"
log:
  - target: stderr
    any: warning
"""
"""Knot DNS with one worker; the zones are to follow."""
KNOT_ZONES: Final = """\
template:
  - id: default
    storage: "{folder}"
    file: "%s.zone"
    zonefile-load: whole
    zonefile-sync: -1
    journal-content: none
zone:
  - domain: {zone}
  - domain: {reverse}
"""
NSD_CONF: Final = """\
server:
    server-count: 1
    ip-address: 127.0.0.1@{dns}
    ip-address: 127.0.0.1@{dot}
    tls-port: {dot}
    tls-service-key: "{folder}/key.pem"
    tls-service-pem: "{folder}/crt.pem"
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
    zonefile: {zone}.zone
zone:
    name: {reverse}
    zonefile: {reverse}.zone
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """A running server: its port for UDP and TCP, the one for TLS or 0, its process and when that began."""

    name: str
    port: int
    tls_port: int
    pid: int
    began_s: float


@dataclass(frozen=True, slots=True)
class Place:
    """What the servers are started with: `services` of each sort, and how often a second some of them change.

    Headless ones have so many `endpoints`; the zone files of the peers have ENDPOINTS always.
    """

    folder: Path
    services: int
    cores: Cores
    changes_per_s: int = 0
    endpoints: int = ENDPOINTS

    def configured(self, name: str, text: str, **ports: int) -> str:
        """The path of a configuration."""
        path = self.folder / f"{name}.conf"
        path.write_text(text.format(folder=self.folder, zone=ZONE, reverse=REVERSE_ZONE, **ports))
        return str(path)


@contextmanager
def place(services: int, changes_per_s: int = 0) -> Iterator[Place]:
    """A folder with the zone files and a certificate."""
    with tempfile.TemporaryDirectory(prefix="kdns-bench-") as name:
        folder = Path(name)
        (folder / f"{ZONE}.zone").write_text("\n".join((*zone_file(services), "")))
        (folder / f"{REVERSE_ZONE}.zone").write_text("\n".join((*reverse_zone_file(services), "")))
        write_certificate(folder)
        yield Place(folder, services, Cores.of_this_machine(), changes_per_s)


@contextmanager
def kdns(at: Place, workers: int = 1) -> Iterator[Peer]:
    """`kdns serve` as its own command, ready."""
    api = [
        sys.executable,
        str(Path(__file__).with_name("_cluster.py")),
        *map(str, (at.services, at.changes_per_s, at.endpoints)),
    ]
    with running(api, at.cores.others, at.folder / "api.log") as stand_in:
        api_port = int(read_until(stand_in, "", at.folder / "api.log")[0])
        dot = free_port()
        corefile = at.configured("kdns", KUBEADM + OVER_TLS, dns=0, dot=dot, api=api_port, upstream=free_port())
        command = [str(Path(sys.executable).with_name("kdns")), "serve", "--conf", corefile, "--workers", str(workers)]
        began_s = time.monotonic()
        with running(command, at.cores.server, at.folder / "kdns.log") as process:
            lines = read_until(process, "ready", at.folder / "kdns.log")
            found = re.search(r"^dns +127\.0\.0\.1:(\d+) ", "\n".join(lines), re.MULTILINE)
            if not found:
                raise SystemExit(f"kdns did not say where it listens: {lines}")
            yield Peer("kdns", int(found[1]), dot, process.pid, began_s)


@contextmanager
def _zone_server(at: Place, name: str, argv: Sequence[str], conf: str, *, speaks_tls: bool) -> Iterator[Peer]:
    port, dot, began_s = free_port(), free_port(), time.monotonic()
    with running(
        [*argv, at.configured(name, conf, dns=port, dot=dot)], at.cores.server, at.folder / f"{name}.log"
    ) as it:
        asked(port, packet(A, 0))
        yield Peer(name, port, dot if speaks_tls else 0, it.pid, began_s)


def knot(at: Place) -> AbstractContextManager[Peer]:
    """Knot DNS; Debian's speaks no TLS."""
    return _zone_server(at, "knot", ["knotd", "-c"], KNOT_SERVER + KNOT_ZONES, speaks_tls=False)


def nsd(at: Place) -> AbstractContextManager[Peer]:
    """NSD."""
    return _zone_server(at, "nsd", ["nsd", "-d", "-c"], NSD_CONF, speaks_tls=True)


PEERS: Final[dict[str, Callable[[Place], AbstractContextManager[Peer]]]] = {"knot": knot, "nsd": nsd}
PROGRAMS: Final = {"knot": "knotd", "nsd": "nsd"}


def installed(names: Sequence[str]) -> list[str]:
    """Those of the peers that are there; the others are named."""
    if not shutil.which("dnsperf"):
        raise SystemExit("dnsperf is needed and not installed (Debian package dnsperf)")
    for name in names:
        if not shutil.which(PROGRAMS[name]):
            print(f"{PROGRAMS[name]} is not installed (Debian package {name}): measuring without it")
    return [name for name in names if shutil.which(PROGRAMS[name])]


@contextmanager
def servers(at: Place, names: Sequence[str]) -> Iterator[list[Peer]]:
    """kdns and the peers, once they give the same answers."""
    with ExitStack() as stack:
        peers = [stack.enter_context(start(at)) for start in (kdns, *(PEERS[name] for name in names))]
        refuse_different_answers(peers, at.services)
        yield peers


def refuse_different_answers(peers: Sequence[Peer], services: int) -> None:
    """A comparison is only fair between servers that give the same answers.

    NSD either leaves out the addresses beside SRV records or adds name servers everywhere: it may leave them out.
    """
    for kind in KINDS:
        for number in random.sample(range(services), min(5, services)):
            query = packet(kind, number)
            responses = {peer.name: asked(peer.port, query) for peer in peers}
            for name, response in responses.items():
                with_extra = name != "nsd"
                wanted = meaning(responses["kdns"], with_extra=with_extra)
                if (given := meaning(response, with_extra=with_extra)) != wanted or given[0] != kind.rcode:
                    raise SystemExit(f"{name}: {kind.name(number)} {kind.qtype}: {given} is not {wanted}")
