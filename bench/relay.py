"""TCP relays beside each other: kdns's mode userspace, a plain asyncio relay, HAProxy in mode tcp, and no relay at all.

The relay has one core; clients and the endpoint share the other. Each client of the second table connects, sends a
byte, gets one and closes. CPU is that of the relay alone, and says more than the rates where the other core is the
bottleneck. Relays take turns, the first turn does not count, and each figure is the median of the others.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from _process import Cores, cpu_s, free_port, memory_mib, read_until, running
from _relays import VIP

PIECE: Final = bytes(1 << 20)
HAPROXY: Final = """
global
    nbthread 1
    maxconn 2000
defaults
    mode tcp
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option splice-auto
listen relay
    bind {vip}:{port}
    server endpoint 127.0.0.1:{endpoint}
"""


@dataclass(frozen=True, slots=True)
class Relay:
    """Where a relay listens, and its process; without one it is the endpoint itself."""

    name: str
    address: tuple[str, int]
    pid: int | None


@dataclass(frozen=True, slots=True)
class Turn:
    """What was done in how much time, and how much of the relay's CPU it took."""

    count: float
    took_s: float
    cpu_s: float


def discarding(listener: socket.socket) -> None:
    """An endpoint that reads and forgets, and answers the first byte of a connection that has no more."""

    def read(client: socket.socket) -> None:
        buffer = bytearray(1 << 20)
        with client:
            while client.recv_into(buffer):
                pass

    while True:
        client, _ = listener.accept()
        threading.Thread(target=read, args=(client,), daemon=True).start()


def answering(listener: socket.socket) -> None:
    """An endpoint that answers a byte with a byte."""
    while True:
        client, _ = listener.accept()
        with client:
            if client.recv(1):
                client.send(b"x")


def streamed(relay: Relay, count: int, seconds: float) -> Turn:
    """MiB sent over some connections at once."""
    sent = [0] * count
    deadline_s = time.monotonic() + seconds

    def send(number: int) -> None:
        with socket.create_connection(relay.address) as client:
            while time.monotonic() < deadline_s:
                client.sendall(PIECE)
                sent[number] += 1

    return measured(relay, lambda: together(send, count), lambda: sum(sent))


def connected(relay: Relay, count: int, seconds: float) -> Turn:
    """Connections made one after another by some clients at once."""
    made = [0] * count
    deadline_s = time.monotonic() + seconds

    def connect(number: int) -> None:
        while time.monotonic() < deadline_s:
            with socket.create_connection(relay.address) as client:
                client.send(b"x")
                assert client.recv(1)  # noqa: S101 - without an answer there is nothing to measure
                made[number] += 1

    return measured(relay, lambda: together(connect, count), lambda: sum(made))


def together(work: Callable[[int], None], count: int) -> None:
    """Let threads do it."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measured(relay: Relay, work: Callable[[], None], count: Callable[[], float]) -> Turn:
    """Time and CPU of some work."""
    cpu_before_s, started_s = cpu_s(relay.pid) if relay.pid else 0.0, time.monotonic()
    work()
    took_s = time.monotonic() - started_s
    return Turn(count(), took_s, (cpu_s(relay.pid) - cpu_before_s) if relay.pid else 0.0)


@contextmanager
def started(name: str, endpoint_port: int, cores: Cores, folder: Path) -> Iterator[Relay]:
    """A relay to the endpoint, ended again."""
    if name == "none":
        yield Relay(name, ("127.0.0.1", endpoint_port), None)
        return
    port, log = free_port(), folder / f"{name}-{endpoint_port}.log"
    if name == "haproxy":
        config = folder / f"haproxy-{endpoint_port}.cfg"
        config.write_text(HAPROXY.format(vip=VIP, port=port, endpoint=endpoint_port))
        argv = [shutil.which("haproxy") or "", "-db", "-f", str(config)]
    else:
        argv = [sys.executable, str(Path(__file__).with_name("_relays.py")), name, str(port), str(endpoint_port)]
    with running(argv, cores.server, log) as process:
        if name != "haproxy":
            read_until(process, "ready", log)
        until_it_listens((VIP, port))
        yield Relay(name, (VIP, port), process.pid)


def until_it_listens(address: tuple[str, int]) -> None:
    """Wait for a listener; SystemExit without one."""
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s:
        try:
            socket.create_connection(address).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            return
    raise SystemExit(f"nobody listens at {address}")


def rounds(relays: list[Relay], work: Callable[[Relay], Turn], count: int) -> Mapping[str, Turn]:
    """The median turn of each relay."""
    turns: dict[str, list[Turn]] = {relay.name: [] for relay in relays}
    for number in range(count + 1):
        for relay in relays:
            turn = work(relay)
            if number:
                turns[relay.name].append(turn)
    return {
        name: sorted(some, key=lambda turn: turn.count / turn.took_s)[len(some) // 2] for name, some in turns.items()
    }


def row(name: str, many: int, turn: Turn, scale: float) -> str:
    """A line of a table; `scale` makes of CPU seconds for one what the last column says."""
    cost = f"{turn.cpu_s / turn.count * scale:,.0f}" if turn.cpu_s else "-"
    return f"| {name} | {many} | {turn.count / turn.took_s:,.0f} | {cost} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", default="asyncio,haproxy,none")
    given = parser.parse_args()
    names = ["kdns", *(each for each in given.peers.split(",") if each)]
    if "haproxy" in names and not shutil.which("haproxy"):
        names.remove("haproxy")
        print("haproxy is not installed (Debian package haproxy) and left out\n")
    cores = Cores.of_this_machine()
    os.sched_setaffinity(0, cores.others)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        relays: dict[str, list[Relay]] = {}
        for kind, endpoint in (("streams", discarding), ("connections", answering)):
            listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
            threading.Thread(target=endpoint, args=(listener,), daemon=True).start()
            port = listener.getsockname()[1]
            relays[kind] = [stack.enter_context(started(name, port, cores, Path(folder))) for name in names]
        print("| relay | streams | MiB/s | CPU ms per GiB |\n|---|---|---|---|")
        for streams in (1, 8):
            work = partial(streamed, count=streams, seconds=given.seconds)
            for name, turn in rounds(relays["streams"], work, given.rounds).items():
                print(row(name, streams, turn, 1024 * 1000), flush=True)
        print("\n| relay | clients | connections/s | CPU µs per connection |\n|---|---|---|---|")
        for clients in (1, 8):
            work = partial(connected, count=clients, seconds=given.seconds)
            for name, turn in rounds(relays["connections"], work, given.rounds).items():
                print(row(name, clients, turn, 1e6), flush=True)
        memory = ", ".join(
            f"{connection.name} {memory_mib(connection.pid):.0f}"
            for connection in relays["connections"]
            if connection.pid
        )
        print(f"\nMemory in MiB: {memory}.")


if __name__ == "__main__":
    main()
