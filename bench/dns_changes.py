"""How long answers of the DNS server take while the cluster changes.

A client asks for the addresses of random Services, evenly over the time and without waiting for answers. Meanwhile the
endpoints of ten headless Services move, so many times a second. The row of 0 changes is the same client and server
without changes.
"""

from __future__ import annotations

import argparse
import random
import select
import socket
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from _dns_servers import Peer, kdns, place
from _questions import A, packet

PATIENCE_S: Final = 2.0
IDS: Final = 1 << 16


@dataclass(slots=True)
class Asked:
    """What was asked and how long it took, in ms; `lost` counts what nobody answered."""

    took_ms: list[float] = field(default_factory=list)
    lost: int = 0

    def figures(self) -> Iterator[str]:
        """Median, p99 and p99.9."""
        cuts = statistics.quantiles(self.took_ms, n=1000)
        yield from (f"{statistics.median(self.took_ms):.3f}", f"{cuts[989]:.3f}", f"{cuts[998]:.3f}")


def ask(server: Peer, services: int, rate: int, seconds: float) -> Asked:
    """Ask at a rate, without waiting for answers."""
    result, sent_s = Asked(), dict[int, float]()
    packets = [packet(A, random.randrange(services))[2:] for _ in range(2000)]
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", server.port))
        sock.setblocking(False)
        began_s, count = time.perf_counter(), int(rate * seconds)
        for number in range(count):
            due_s = began_s + number / rate
            while (left_s := due_s - time.perf_counter()) > 0:
                take(sock, sent_s, result, left_s)
            sent_s[number % IDS] = time.perf_counter()
            sock.send((number % IDS).to_bytes(2, "big") + packets[number % len(packets)])
            take(sock, sent_s, result, 0)
        deadline_s = time.perf_counter() + PATIENCE_S
        while sent_s and (left_s := deadline_s - time.perf_counter()) > 0:
            take(sock, sent_s, result, left_s)
    result.lost = len(sent_s)
    return result


def take(sock: socket.socket, sent_s: dict[int, float], result: Asked, wait_s: float) -> None:
    """Take the answers that are there, or the first that comes."""
    readable, _, _ = select.select([sock], [], [], wait_s)
    while readable:
        try:
            answer = sock.recv(4096)
        except BlockingIOError:
            return
        if (began_s := sent_s.pop(int.from_bytes(answer[:2], "big"), None)) is not None:
            result.took_ms.append((time.perf_counter() - began_s) * 1000)


def main() -> None:
    """One server for each rate of changes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("changes", type=int, nargs="*", default=[0, 20, 200], help="changes per second")
    parser.add_argument("--services", type=int, default=10_000, help="Services of each sort")
    parser.add_argument("--rate", type=int, default=5_000, help="queries per second")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each rate of changes")
    options = parser.parse_args()
    print("| changes/s | queries | p50 ms | p99 ms | p99.9 ms | max ms | lost |")
    print("|---|---|---|---|---|---|---|")
    for changes in options.changes:
        with place(options.services, changes) as at, kdns(at) as server:
            ask(server, options.services, options.rate, options.seconds / 10)
            result = ask(server, options.services, options.rate, options.seconds)
        figures = " | ".join(result.figures())
        print(
            f"| {changes} | {len(result.took_ms):,} | {figures} | {max(result.took_ms):.2f} | {result.lost} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
