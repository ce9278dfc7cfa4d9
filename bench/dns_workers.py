"""The DNS server with worker processes: what an answer costs a process that answers, and memory.

A cluster of N Services is asked at random, with every name asked before, without a pause and more than the server
answers. `process µs` is the CPU time of an answer in one of the processes that answer, which has a core alone while
only its clients ask; so a machine with two cores can show it. `of one` says how many times the answers of one process
the server gives in a second, if each of its processes has a core and the kernel distributes clients evenly. Cores that
share caches or clocks give less. The servers take turns, and each figure is a median. Memory is that of all processes
together (Pss), after all names were asked.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import os
import random
import select
import signal
import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from _dns_servers import Peer, kdns, place
from _process import Cores, asked, descendants, memory_mib, own_cpu_s
from _questions import HEADLESS, NXDOMAIN, A, Kind, packet

ASKED: Final = (A, NXDOMAIN, HEADLESS)
CLIENTS: Final = 64
"""The kernel gives each client to one process."""
BATCH: Final = 64
"""Queries of one client that are sent at a time."""


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_char_p), ("length", ctypes.c_size_t))


class _Message(ctypes.Structure):
    """A struct mmsghdr of Linux (sendmmsg(2))."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("parts", ctypes.POINTER(_IoVec)),
        ("parts_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("padding", ctypes.c_int),
        ("sent", ctypes.c_uint32),
    )


class Batch:
    """Queries as sendmmsg(2) takes them; the parts have to outlive the messages."""

    def __init__(self, packets: Sequence[bytes]) -> None:
        self.packets = packets
        self.parts = (_IoVec * len(packets))(*(_IoVec(each, len(each)) for each in packets))
        self.messages = (_Message * len(packets))()
        for message, part in zip(self.messages, self.parts, strict=True):
            message.parts, message.parts_count = ctypes.pointer(part), 1


@contextmanager
def clients(port: int, count: int) -> Iterator[list[socket.socket]]:
    """So many sockets to a server."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)) for _ in range(count)]
        for sock in sockets:
            sock.settimeout(5)
            sock.connect(("127.0.0.1", port))
        yield sockets


def unread(sockets: Sequence[socket.socket]) -> int:
    """The answers that came to sockets that nobody reads: those that the kernel dropped."""
    ports = {sock.getsockname()[1] for sock in sockets}
    rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    return sum(int(row[-1]) for row in rows if int(row[1].rpartition(":")[2], 16) in ports)


def clients_without(others: Sequence[int], sockets: Sequence[socket.socket]) -> list[socket.socket]:
    """The clients whose queries the kernel gives to none of these processes, which are stopped meanwhile."""
    for other in others:
        os.kill(other, signal.SIGSTOP)
    for sock in sockets:
        sock.send(packet(A, 0))
    time.sleep(0.2)
    found, _, _ = select.select(sockets, (), (), 0)
    for sock in found:
        sock.recv(65535)
    for other in others:
        os.kill(other, signal.SIGCONT)
    time.sleep(0.1)
    return found


def measured(server: Peer, kind: Kind, services: int, seconds: float) -> float:
    """CPU µs for each answer, in one of the processes that answer."""
    pid, *others = list(descendants(server.pid)) or [server.pid]
    send = ctypes.CDLL(None).sendmmsg
    with clients(server.port, CLIENTS * (1 + len(others))) as sockets:
        own = clients_without(others, sockets)
        batches = [Batch([packet(kind, random.randrange(services)) for _ in range(BATCH)]) for _ in range(500)]
        floods = list(zip(itertools.cycle([sock.fileno() for sock in own]), batches, strict=False))
        for is_warm in (False, True):
            before_s, answers = own_cpu_s(pid), unread(own)
            end_s = time.monotonic() + (seconds if is_warm else 0.3)
            while time.monotonic() < end_s:
                for fd, queries in floods:
                    send(fd, queries.messages, BATCH, 0)
        return (own_cpu_s(pid) - before_s) / (unread(own) - answers) * 1e6


def ask_all(server: Peer, processes: int, kind: Kind, services: int) -> None:
    """Ask for each name by so many clients that all processes have all answers."""
    with clients(server.port, 8 * processes) as sockets:
        for number in range(services):
            for sock in sockets:
                sock.send(packet(kind, number))
            for sock in sockets:
                sock.recv(65535)


def pin(server: Peer, workers: int, cores: frozenset[int]) -> None:
    """Have all processes of a server run on these cores, once there are all."""
    deadline_s = time.monotonic() + 60
    while len(found := list(descendants(server.pid)) or [server.pid]) < workers:
        if time.monotonic() > deadline_s:
            raise SystemExit(f"{workers} processes do not run; this machine has {os.cpu_count()} processors")
        time.sleep(0.1)
    time.sleep(1)  # they read their sockets
    for pid in (server.pid, *found):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=10_000, help="Services of each sort")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="numbers of processes")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one turn")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each server")
    options = parser.parse_args()
    print("| question | workers | process µs | of one | MiB |")
    print("|---|---|---|---|---|")
    every = frozenset(os.sched_getaffinity(0))
    os.sched_setaffinity(0, Cores.of_this_machine().others)
    with place(options.services) as alone, ExitStack() as stack:
        at = replace(alone, cores=Cores(every, every))
        servers = []
        for workers in options.workers:
            server = stack.enter_context(kdns(at, workers))
            asked(server.port, packet(A, 0))
            pin(server, workers, alone.cores.server)
            servers.append((workers, server))
        for kind in ASKED:
            for workers, server in servers:
                ask_all(server, workers, kind, at.services)
            rounds = [
                [measured(server, kind, at.services, options.seconds) for _, server in servers]
                for _ in range(options.rounds)
            ]
            for number, (workers, server) in enumerate(servers):
                figures = [each[number] for each in rounds]
                times = statistics.median(each[0] / each[number] for each in rounds) * workers / servers[0][0]
                row = f"{statistics.median(figures):.2f} | {times:.2f} | {memory_mib(server.pid):.0f}"
                print(f"| {kind.label} | {workers} | {row} |", flush=True)


if __name__ == "__main__":
    main()
