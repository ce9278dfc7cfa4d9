"""Knot DNS, NSD and Unbound from Debian on loopback, with a small zone, over every transport that they speak."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kdns.dns.message import query
from kdns.upstream.upstream import Scheme

ZONE = """\
$ORIGIN example.org.
@ 300 SOA ns host 1 3600 600 86400 60
@ 300 NS ns
ns 300 A 192.0.2.1
large 300 TXT {long}
""".format(long=" ".join(f'"{"x" * 200}"' for _ in range(20)))
KNOT = """\
server:
    rundir: "{folder}"
    listen: 127.0.0.1@{port}
database:
    storage: "{folder}"
zone:
  - domain: example.org
    file: "{folder}/zone"
    zonefile-sync: -1
    journal-content: none
"""
NSD = """\
server:
    server-count: 1
    ip-address: 127.0.0.1@{port}
    ip-address: 127.0.0.1@{tls_port}
    tls-port: {tls_port}
    tls-service-key: "{folder}/server.key"
    tls-service-pem: "{folder}/server.crt"
    username: ""
    zonesdir: "{folder}"
    database: ""
    pidfile: "{folder}/nsd.pid"
    xfrdfile: "{folder}/xfrd.state"
    zonelistfile: "{folder}/zone.list"
remote-control:
    control-enable: no
zone:
    name: example.org
    zonefile: zone
"""
UNBOUND = """\
server:
    interface: 127.0.0.1@{port}
    interface: 127.0.0.1@{tls_port}
    interface: 127.0.0.1@{https_port}
    tls-port: {tls_port}
    https-port: {https_port}
    tls-service-key: "{folder}/server.key"
    tls-service-pem: "{folder}/server.crt"
    directory: "{folder}"
    pidfile: "{folder}/unbound.pid"
    username: ""
    chroot: ""
    use-syslog: no
    num-threads: 1
    incoming-num-tcp: 100 # of its default, 10, it closes those that wait for their first query
auth-zone:
    name: example.org
    zonefile: "{folder}/zone"
    for-downstream: yes
    for-upstream: no
"""
RESOLVER = """\
server:
  interface: {host}
  port: {port}
  access-control: 0.0.0.0/0 allow
  directory: "{folder}"
  pidfile: "{folder}/unbound.pid"
  username: ""
  chroot: ""
  use-syslog: no
  do-daemonize: no
  local-zone: "." static
  local-data: ". 300 IN SOA ns. hostmaster. 1 3600 600 86400 300"
{records}
"""
DEADLINE_S = 60.0
SERVERS: dict[str, tuple[list[str], str, tuple[Scheme, ...]]] = {
    "knotd": (["-c"], KNOT, ("dns",)),
    "nsd": (["-d", "-c"], NSD, ("dns", "tls")),
    "unbound": (["-d", "-c"], UNBOUND, ("dns", "tls", "https")),
}
PORTS: dict[Scheme, str] = {"dns": "port", "tls": "tls_port", "https": "https_port"}


def free_ports() -> Iterator[int]:
    """Ports of 127.0.0.1 that were free for UDP and TCP a moment ago."""
    while True:
        with socket.socket(type=socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
            udp.bind(("127.0.0.1", 0))
            port: int = udp.getsockname()[1]
            try:
                tcp.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port


@contextmanager
def running(name: str, folder: Path) -> Iterator[dict[str, int]]:
    """A server of the zone; its ports by their names in the configuration."""
    ports = dict(zip(PORTS.values(), free_ports(), strict=False))
    (folder / "zone").write_text(ZONE)
    with started(name, folder, SERVERS[name][1].format(folder=folder, **ports)):
        yield ports


@contextmanager
def resolver(folder: Path, *records: str, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """`HOST:PORT` of an Unbound that answers, and knows these records and no others; port 0 is a free one."""
    port = port or next(free_ports())
    lines = "\n".join(f"  local-data: '{record}'" for record in records)
    with started("unbound", folder, RESOLVER.format(host=host, port=port, folder=folder, records=lines)) as process:
        wait_for_answer(process, host, port)
        yield f"{host}:{port}"


@contextmanager
def started(name: str, folder: Path, conf: str) -> Iterator[subprocess.Popen[bytes]]:
    """The server with this configuration, which may not answer yet."""
    program = shutil.which(name, path="/usr/sbin:/usr/bin")
    if program is None:
        pytest.skip(f"{name} is not here: tests/install-debian-packages says how to get it")
    (folder / "conf").write_text(conf)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([program, *SERVERS[name][0], str(folder / "conf")], stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def wait_for_answer(process: subprocess.Popen[bytes], host: str, port: int) -> None:
    """Ask until something is answered."""
    deadline_s = time.monotonic() + DEADLINE_S
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.settimeout(0.1)
        client.connect((host, port))
        while True:
            try:
                client.send(query("is.anybody.there.example.", 1))
                client.recv(512)
            except OSError:
                assert process.poll() is None, f"exit code {process.returncode}"
                assert time.monotonic() < deadline_s, "no answer"
                time.sleep(0.05)
            else:
                return
