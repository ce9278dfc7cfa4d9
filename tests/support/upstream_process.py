"""Resolvers from Debian's packages as upstreams: started on a free port of 127.0.0.1, and stopped."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kdns.dns.message import query

DEADLINE_S = 60.0
CONFIG = """\
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


def free_port() -> int:
    """A port of 127.0.0.1 that was free for UDP and TCP a moment ago."""
    while True:
        with socket.socket(type=socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
            udp.bind(("127.0.0.1", 0))
            port: int = udp.getsockname()[1]
            try:
                tcp.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


@contextmanager
def unbound(folder: Path, *records: str, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """`HOST:PORT` of a resolver that knows these records and no others; port 0 is a free one of 127.0.0.1."""
    program = shutil.which("unbound", path="/usr/sbin:/usr/bin")
    if program is None:
        pytest.skip("unbound is not here: tests/install-debian-packages says how to get it")
    port = port or free_port()
    lines = "\n".join(f"  local-data: '{record}'" for record in records)
    config = folder / f"unbound-{port}.conf"
    config.write_text(CONFIG.format(host=host, port=port, folder=folder, records=lines))
    process = subprocess.Popen([program, "-d", "-c", str(config)], stderr=subprocess.PIPE, text=True)
    try:
        wait_for_answer(process, host, port)
        yield f"{host}:{port}"
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE_S)


def wait_for_answer(process: subprocess.Popen[str], host: str, port: int) -> None:
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
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < deadline_s, "no answer"
                time.sleep(0.05)
            else:
                return
