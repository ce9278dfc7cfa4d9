"""The two ends of a path, each a program in its own network namespace: endpoints that answer, and a client that asks.

    _vip_ends.py endpoints PORT ADDRESS...    answers a byte with a byte on TCP and UDP
    _vip_ends.py client                       for each line "tcp|udp ADDRESS PORT SECONDS", a line with a Turn

Every question is a new connection or, with UDP, comes from a new socket, so that its first packet is sent where the
rules say. The client resets its connections: none of them is left behind, on any of the machines.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
from statistics import quantiles
from typing import Final, NamedTuple

TIMEOUT_S: Final = 2
_ATTEMPTS: Final = 3
_KINDS: Final = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}
_RESET: Final = struct.pack("=ii", 1, 0)
_PATIENCE: Final = struct.pack("=qq", TIMEOUT_S, 0)


class Turn(NamedTuple):
    """Questions asked one after the other for some time, how long they took, and how many had no answer."""

    answers: int
    took_s: float
    p50_us: float
    p99_us: float
    failed: int


def endpoints(port: int, addresses: list[str]) -> None:
    """Answer for ever."""
    poll = select.epoll()
    sockets = {}
    for address in addresses:
        for kind in _KINDS.values():
            made = _socket(address, kind)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((address, port))
            if kind == socket.SOCK_STREAM:
                made.listen(1024)
            sockets[made.fileno()] = made
            poll.register(made, select.EPOLLIN)
    print("ready", flush=True)
    while True:
        for number, _ in poll.poll():
            try:
                _answer(sockets[number])
            except OSError:  # the client is gone already
                continue


def _answer(asked: socket.socket) -> None:
    if asked.type == socket.SOCK_DGRAM:
        said, client = asked.recvfrom(16)
        asked.sendto(said, client)
        return
    connection, _ = asked.accept()
    with connection:
        connection.send(connection.recv(1))


def client() -> None:
    """Ask as each line says."""
    for line in sys.stdin:
        kind, address, port, seconds = line.split()
        print(json.dumps(asked(_KINDS[kind], address, int(port), float(seconds))), flush=True)


def asked(kind: int, address: str, port: int, seconds: float) -> Turn:
    """One question after the other."""
    took_ns: list[int] = []
    failed = 0
    place, now_ns = (address, port), time.perf_counter_ns
    began_ns = now_ns()
    end_ns = began_ns + int(seconds * 1e9)
    while (start_ns := now_ns()) < end_ns:
        made = _socket(address, kind)
        try:
            if kind == socket.SOCK_STREAM:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            made.connect(place)
            made.send(b"x")
            made.recv(1)
            took_ns.append(now_ns() - start_ns)
        except OSError:
            failed += 1
            if failed > _ATTEMPTS:
                break
        finally:
            made.close()
    percent = quantiles(took_ns, n=100) if len(took_ns) > 1 else [0.0] * 99
    return Turn(len(took_ns), (now_ns() - began_ns) / 1e9, percent[49] / 1e3, percent[98] / 1e3, failed)


def _socket(address: str, kind: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        made.setsockopt(socket.SOL_SOCKET, option, _PATIENCE)
    return made


if __name__ == "__main__":
    if sys.argv[1] == "client":
        client()
    else:
        endpoints(int(sys.argv[2]), sys.argv[3:])
