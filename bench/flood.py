"""What one client that floods `kdns serve` with names that do not exist does to another one that asks little.

The flood comes from one address of loopback and reads no answers. The other client asks from a second address: for a
name that is in the answer table, and for names that were never asked. An idle server is measured first.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import random
import socket
import statistics
import struct
import time
from typing import Final

from _dns_servers import kdns, place
from _process import memory_mib
from _questions import A, Kind, packet

FLOODER: Final = "127.0.0.3"
OTHER: Final = "127.0.0.2"
FLOOD: Final = Kind("a random name", lambda _: "x.default.svc.cluster.local", "A", "NXDOMAIN")
BATCHES_PER_S: Final = 200
PATIENCE_S: Final = 5.0
"""As long as a stub resolver waits for an answer (resolv.conf(5))."""


def socket_from(address: str, port: int) -> socket.socket:
    """A UDP socket that sends from this address to the server."""
    sock = socket.socket(type=socket.SOCK_DGRAM)
    sock.bind((address, 0))
    sock.connect(("127.0.0.1", port))
    return sock


def flood(port: int, names: int, rate: int) -> None:
    """Send as many questions for random names, `rate` a second as far as this machine can."""
    sock = socket_from(FLOODER, port)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)
    head, tail = struct.pack("!HHHHHH", 1, 0x0100, 1, 0, 0, 0), packet(FLOOD, 0)[14:-11]
    began_s, batch = time.monotonic(), rate // BATCHES_PER_S
    for sent in range(0, names, batch):
        for _ in range(batch):
            sock.send(head + b"\x10%016x" % random.getrandbits(64) + tail)
        time.sleep(max(0.0, began_s + (sent + batch) / rate - time.monotonic()))


class Probe:
    """The client that asks little: how long each answer took, in ms; infinite where none came in time."""

    def __init__(self, port: int) -> None:
        self.sock = socket_from(OTHER, port)
        self.sock.settimeout(PATIENCE_S)
        self.took_ms: dict[str, list[float]] = {"known": [], "new": []}
        self.numbers = itertools.count(1)

    def ask(self, kind: str, service: int) -> None:
        """One question and its answer."""
        number = next(self.numbers).to_bytes(2, "big")
        began_s = time.monotonic()
        self.sock.send(number + packet(A, service)[2:])
        try:
            while self.sock.recv(4096)[:2] != number:
                pass
            took_ms = (time.monotonic() - began_s) * 1000
        except TimeoutError:
            took_ms = float("inf")
        self.took_ms[kind].append(took_ms)

    def rows(self, title: str) -> list[str]:
        """The table's rows, and a fresh start."""
        rows = []
        for kind, took_ms in self.took_ms.items():
            p50, p99 = statistics.median(took_ms), sorted(took_ms)[len(took_ms) * 99 // 100]
            lost = sum(took == float("inf") for took in took_ms)
            rows.append(f"| {title} | {kind} | {len(took_ms)} | {p50:.1f} | {p99:.1f} | {max(took_ms):.1f} | {lost} |")
            took_ms.clear()
        return rows


def main() -> None:
    """Start the server, ask it while it is idle, then under the flood."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", type=int, default=2_000_000, help="random names in the flood")
    parser.add_argument("--rate", type=int, default=60_000, help="of the flood, queries per second")
    parser.add_argument("--pause-ms", type=float, default=20.0, help="between two questions of the other client")
    parser.add_argument("--services", type=int, default=10_000)
    options = parser.parse_args()
    with place(options.services) as at, kdns(at) as server:
        probe, new = Probe(server.port), itertools.count(1)

        def ask() -> None:
            probe.ask("known", 0)
            probe.ask("new", next(new) % options.services)
            time.sleep(options.pause_ms / 1000)

        print("| server | name | questions | p50 ms | p99 ms | max ms | lost |\n|---|---|---|---|---|---|---|")
        for _ in range(200):
            ask()
        print(*probe.rows("idle"), sep="\n", flush=True)
        before_mib = memory_mib(server.pid)
        flooder = multiprocessing.Process(target=flood, args=(server.port, options.names, options.rate))
        began_s = time.monotonic()
        flooder.start()
        while flooder.is_alive():
            ask()
        took_s = time.monotonic() - began_s
        print(*probe.rows("flooded"), sep="\n", flush=True)
        after_mib = memory_mib(server.pid)
    print(f"\nflood: {options.names / took_s:,.0f} queries/s for {took_s:.0f} s")
    print(f"memory, MiB: {before_mib:.0f} before, {after_mib:.0f} after: {after_mib - before_mib:.0f} more")


if __name__ == "__main__":
    main()
