"""Thousands of changes each second against a node: CPU, memory, transactions, and how late they are in the kernel.

Needs root, unshare and nft: everything happens in a network namespace of its own. An API with many Services tells
`kdns proxy` at an even pace that one after the other has an endpoint less, and in the next round one more. A change's
delay is from when it is written to the watch until nftables tells that the Service's front leads to so many endpoints.
At the end, the endpoints in the kernel are counted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from socket import SOL_SOCKET
from statistics import quantiles
from typing import Final, NamedTuple

from _node import ENDPOINTS, FIRST_IP, NodeUnderTest, cpu_s, memory_mib, node

from kdns.netlink.io.requests import netlink_socket
from kdns.netlink.protocol import attribute_spans, attributes, messages
from kdns.netlink.uapi import (
    NETLINK_NETFILTER,
    NFNLGRP_NFTABLES,
    NFT_MSG_NEWGEN,
    NFT_MSG_NEWSETELEM,
    NFTA_DATA_VALUE,
    NFTA_SET_ELEM_KEY,
    NFTA_SET_ELEM_LIST_ELEMENTS,
    NFTA_SET_ELEM_LIST_SET,
    NFTA_SET_ELEM_LIST_TABLE,
)

SO_RCVBUFFORCE: Final = 33
STEP_S: Final = 0.01
QUIET_S: Final = 3.0
PATIENCE_S: Final = 60.0
STRIDE: Final = 13


class Figures(NamedTuple):
    """What came of one load; `late_ms` are delays, and `missing` the changes that were taken back before their turn."""

    rate: float
    cpu_percent: float
    transactions: int
    late_ms: list[float]
    missing: int
    before_mib: float
    most_mib: float
    after_mib: float


class Kernel:
    """What nftables tells, kept as it comes, and read when the load is over."""

    def __init__(self) -> None:
        self._socket = netlink_socket(NETLINK_NETFILTER, NFNLGRP_NFTABLES)
        self._socket.setsockopt(SOL_SOCKET, SO_RCVBUFFORCE, 1 << 28)
        self._socket.settimeout(0.2)
        self._told: list[tuple[float, bytes]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while not self._ended.is_set():
            try:
                told = self._socket.recv(1 << 18)
            except TimeoutError:
                continue
            self._told.append((time.monotonic(), told))

    def close_when_quiet(self) -> None:
        """Listen no more, once nothing has been told for a while."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < min(self._told[-1][0] + QUIET_S, deadline_s):
            time.sleep(STEP_S)
        self._ended.set()
        self._thread.join()
        self._socket.close()

    def heard(self) -> Iterator[tuple[float, int | None]]:
        """Times and numbers of the Services whose fronts got new elements; None for the end of a transaction."""
        for when_s, told in self._told:
            for message in messages(told):
                if message.kind & 0xFF == NFT_MSG_NEWGEN:
                    yield when_s, None
                elif message.kind & 0xFF == NFT_MSG_NEWSETELEM:
                    row = attributes(message.body, 4)
                    if row[NFTA_SET_ELEM_LIST_TABLE] == b"kdns\0" and row[NFTA_SET_ELEM_LIST_SET] == b"service-ips\0":
                        elements = row[NFTA_SET_ELEM_LIST_ELEMENTS]
                        for _, start, end in attribute_spans(elements, 0, len(elements)):
                            element = attributes(elements[start:end])
                            key = attributes(element[NFTA_SET_ELEM_KEY])[NFTA_DATA_VALUE]
                            yield when_s, int.from_bytes(key[:4], "big") - FIRST_IP


def changes(count: int, total: int) -> Iterator[tuple[int, int]]:
    """Service and endpoints; in each round over all Services one has one endpoint less or more than before."""
    for number in range(total):
        yield number * STRIDE % count, ENDPOINTS - 1 + number // count % 2


def loaded(asked: NodeUnderTest, count: int, rate: int, seconds: float) -> Figures:
    """One load on a node that is at work."""
    kernel, most_mib = Kernel(), 0.0
    written_s: list[float] = []
    made = list(changes(count, int(rate * seconds)))
    reader = threading.Thread(target=lambda: written_s.extend(asked.written_s() for _ in made))
    reader.start()
    before_mib, cpu_before_s, began_s = memory_mib(asked.pid, "VmRSS"), cpu_s(asked.pid), time.monotonic()
    for number, (service, endpoints) in enumerate(made):
        asked.change(service, endpoints)
        if number % max(int(rate * STEP_S), 1) == 0:
            most_mib = max(most_mib, memory_mib(asked.pid, "VmRSS"))
            time.sleep(max(began_s + number / rate - time.monotonic(), 0.0))
    reader.join()
    took_s = time.monotonic() - began_s
    cpu_percent = (cpu_s(asked.pid) - cpu_before_s) / took_s * 100
    kernel.close_when_quiet()
    waiting: dict[int, list[float]] = defaultdict(list)
    for (service, _), when_s in zip(made, written_s, strict=True):
        waiting[service].append(when_s)
    late_ms, transactions = [], 0
    for when_s, told in kernel.heard():
        transactions += told is None
        if told is not None:
            late_ms += [(when_s - each) * 1e3 for each in waiting[told] if each <= when_s]
            waiting[told] = [each for each in waiting[told] if each > when_s]
    missing = sum(map(len, waiting.values()))
    after_mib = memory_mib(asked.pid, "VmRSS")
    return Figures(len(made) / took_s, cpu_percent, transactions, late_ms, missing, before_mib, most_mib, after_mib)


def checked(count: int, total: int) -> None:
    """Wait until the kernel has as many endpoints as the last changes say; SystemExit if that never is so."""
    wanted = sum((dict.fromkeys(range(count), ENDPOINTS) | dict(changes(count, total))).values())
    deadline_s, found = time.monotonic() + PATIENCE_S, 0
    while time.monotonic() < deadline_s:
        listed = subprocess.run(["nft", "list", "map", "ip", "kdns", "endpoints-tcp"], capture_output=True, check=True)
        if (found := listed.stdout.partition(b"elements =")[2].count(b" : ")) == wanted:
            return
        time.sleep(1)
    raise SystemExit(f"{found} endpoints in the kernel, wanted {wanted}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=5000)
    parser.add_argument("--rates", type=int, nargs="*", default=[200, 2000], help="changes each second")
    parser.add_argument("--min-sync", nargs="*", default=["1s", "10ms"], help="minSyncPeriod")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not given.inside:
        if os.geteuid() != 0:
            print("left out: it needs root, since it makes a network namespace")
            return
        again = ["unshare", "--net", sys.executable, __file__, "--inside", *sys.argv[1:]]
        sys.exit(subprocess.run(again, check=False).returncode)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    columns = "CPU | transactions/s | latency, p50 | p99 | most | RSS before | most | after"
    print(f"| changes/s | minSyncPeriod | {columns} |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for min_sync in given.min_sync:
            for rate in given.rates:
                with node(given.services, Path(folder), min_sync) as asked:
                    time.sleep(2)
                    got = loaded(asked, given.services, rate, given.seconds)
                    checked(given.services, int(rate * given.seconds))
                percent = quantiles(got.late_ms, n=100)
                late = f"{percent[49]:,.0f} ms | {percent[98]:,.0f} ms | {max(got.late_ms):,.0f} ms"
                memory = f"{got.before_mib:.0f} MiB | {got.most_mib:.0f} MiB | {got.after_mib:.0f} MiB"
                done = (
                    f"{got.rate:,.0f} | {min_sync} | {got.cpu_percent:.0f} % | {got.transactions / given.seconds:.1f}"
                )
                print(f"| {done} | {late} | {memory} |", flush=True)
                if got.missing:
                    print(f"\n{got.missing} changes were taken back before their turn.\n")


if __name__ == "__main__":
    main()
