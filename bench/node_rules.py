"""A node's rules: from the start of `kdns proxy` until they are in the kernel, and what one change of endpoints takes.

Needs root, unshare and nft: everything happens in a network namespace of its own. A change is one endpoint less, timed
from when it is written to the watch until nftables tells of the transaction.

Figures of kube-proxy 1.36 in mode nftables are from one earlier run on such a machine, with nft 1.0.6.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import quantiles
from typing import Final, NamedTuple

from _node import ENDPOINTS, cpu_s, memory_mib, node

from kdns.aio.netlink.protocol import attributes, messages, netlink_socket
from kdns.aio.netlink.uapi import NETLINK_NETFILTER, NFNLGRP_NFTABLES, NFT_MSG_NEWGEN, NFTA_TABLE_NAME

CHANGES: Final = 60
PAUSE_S: Final = 0.1
PATIENCE_S: Final = 30.0
KUBE_PROXY: Final = {
    1000: (0.84, 144.0, 161.0, 78),
    5000: (3.7, 1070.0, 1100.0, 144),
    10000: (13.4, 3800.0, 4000.0, 268),
}
"""By Services: start in s, one change p50 in ms, CPU per change in ms, RSS in MiB."""


class Figures(NamedTuple):
    """What one size took."""

    start_s: float
    change_p50_ms: float
    change_p99_ms: float
    cpu_ms: float
    rss_mib: float
    peak_mib: float


def drain(monitor: socket.socket) -> None:
    """Forget what nftables has told so far."""
    monitor.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            monitor.recv(1 << 18)
    monitor.settimeout(PATIENCE_S)


def wait_for_transaction(monitor: socket.socket) -> float:
    """When nftables told of the next transaction on kdns's table."""
    is_ours = False
    while True:
        for message in messages(monitor.recv(1 << 18)):
            kind = message.kind & 0xFF
            if kind == NFT_MSG_NEWGEN:
                if is_ours:
                    return time.monotonic()
            else:
                is_ours = is_ours or attributes(message.body, 4).get(NFTA_TABLE_NAME) == b"kdns\0"


def measured(count: int, folder: Path) -> Figures:
    """One size."""
    with node(count, folder, "10ms") as asked, netlink_socket(NETLINK_NETFILTER, NFNLGRP_NFTABLES) as monitor:
        elements = subprocess.run(["nft", "list", "map", "ip", "kdns", "service-ips"], capture_output=True, check=True)
        if (found := elements.stdout.count(b"goto")) != count:
            raise SystemExit(f"{found} fronts in the kernel, wanted {count}")
        time.sleep(2)
        took_ms, cpu_before_s = [], cpu_s(asked.pid)
        for number in range(CHANGES):
            drain(monitor)
            asked.change(number * 13 % count, ENDPOINTS - 1)
            written_s = asked.written_s()
            took_ms.append((wait_for_transaction(monitor) - written_s) * 1e3)
            time.sleep(PAUSE_S)
        cpu_ms = (cpu_s(asked.pid) - cpu_before_s) / CHANGES * 1e3
        percent = quantiles(took_ms, n=100)
        rss_mib = memory_mib(asked.pid, "VmRSS")
        return Figures(asked.start_s, percent[49], percent[98], cpu_ms, rss_mib, asked.peak.mib)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[1000, 5000, 10000])
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside:
        if os.geteuid() != 0:
            print("left out: it needs root, since it makes a network namespace")
            return
        own = [sys.executable, __file__, "--inside", *map(str, arguments.sizes)]
        sys.exit(subprocess.run(["unshare", "--net", *own], check=False).returncode)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    print("| Services x 5 | | start | one change, p50 | p99 | CPU per change | RSS | peak, with children |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for size in arguments.sizes:
            got = measured(size, Path(folder))
            change = f"{got.change_p50_ms:.1f} ms | {got.change_p99_ms:.1f} ms | {got.cpu_ms:.1f} ms"
            memory = f"{got.rss_mib:.0f} MiB | {got.peak_mib:.0f} MiB"
            print(f"| {size:,} | kdns | {got.start_s:.2f} s | {change} | {memory} |", flush=True)
            if peer := KUBE_PROXY.get(size):
                figures = f"{peer[0]:.2f} s | {peer[1]:.0f} ms | | {peer[2]:.0f} ms | {peer[3]} MiB"
                print(f"| | kube-proxy | {figures} | |", flush=True)


if __name__ == "__main__":
    main()
