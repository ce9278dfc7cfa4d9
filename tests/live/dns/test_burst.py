"""Compiled and interpreted bursts give the same bytes and the same counts for every datagram."""

import asyncio
import random
import shutil
import socket
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from configured import configured
from dns_client import packet, with_options
from structlog.testing import capture_logs

from kdns.dnsserver.io.burst.event_loop import BurstEventLoop, BurstSelector, is_compiled
from kdns.dnsserver.io.burst.sampling import Sampling
from kdns.dnsserver.io.request_metrics import Requests
from kdns.dnsserver.io.server import DnsServer

COREFILE = """\
.:0 {
    bind 127.0.0.1 ::1
    errors
    loadbalance
    records example.org {
        @    60 IN SOA ns.example.org. admin.example.org. 1 7200 3600 1209600 60
        web  60 IN A   192.0.2.1
        web  60 IN A   192.0.2.2
        web  60 IN A   192.0.2.3
        six  60 IN AAAA 2001:db8::1
        big  60 IN TXT "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        www  60 IN CNAME web
    }
}
"""
NAMES = ("web", "six", "big", "www", "none", "a.b.none")
LOOPS: tuple[Callable[[], asyncio.AbstractEventLoop], ...] = (asyncio.SelectorEventLoop, BurstEventLoop)
PROBE = 0xFFFF

compiled_only = pytest.mark.skipif(not is_compiled(), reason="kdns was installed without a C compiler")


def test_what_has_a_compiler_compiles() -> None:
    headers = Path(sysconfig.get_paths()["include"], "Python.h")
    if not (shutil.which("gcc") and headers.is_file()):
        pytest.skip("no C compiler, or no headers of Python")
    assert is_compiled()


def datagrams(count: int) -> Iterator[bytes]:
    """Queries in every spelling and with every kind of OPT, such queries with bytes changed, and noise."""
    chance = random.Random(7)
    for number in range(count):
        name = f"{chance.choice(NAMES)}.example.org"
        spelled = "".join(chance.choice((letter, letter.upper())) for letter in name)
        qtype, size = chance.choice(("A", "AAAA", "TXT", "ANY", "SOA")), chance.choice((0, 0, 512, 1232, 4096))
        query = packet(spelled, qtype, number=number % PROBE, payload_bytes=size, do=size > 0 and chance.random() < 0.3)
        if size and chance.random() < 0.5:
            codes = chance.choices((8, 10, 10, 11, 12, 266), k=chance.choice((1, 1, 2)))
            query = with_options(query, *((code, chance.randbytes(chance.choice((0, 8, 24)))) for code in codes))
        match chance.randrange(6):
            case 0:
                changed = bytearray(query)
                changed[chance.randrange(2, len(query))] = chance.randrange(256)
                yield bytes(changed)
            case 1:
                yield query[: chance.randrange(len(query))]
            case 2:
                yield query[:2] + chance.randbytes(chance.choice((0, 1, 9, 10, 11, 20, 4100)))
            case _:
                yield query


@contextmanager
def serving(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> Iterator[DnsServer]:
    """A server in a thread with a loop of its own."""
    server = DnsServer(configured(COREFILE))
    started, end = threading.Event(), SimpleNamespace()

    async def main() -> None:
        end.loop, end.event = asyncio.get_running_loop(), asyncio.Event()
        await server.start()
        started.set()
        await end.event.wait()
        await server.stop()

    def run() -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(main())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert started.wait(30)
        yield server
    finally:
        end.loop.call_soon_threadsafe(end.event.set)
        thread.join()


def responses(host: str, port: int, queries: list[bytes]) -> list[bytes]:
    """What comes for each datagram before the answer to a new name that is asked for behind it."""
    found = []
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(60)
        client.connect((host, port))
        for number, query in enumerate(queries):
            client.send(query)
            client.send(packet(f"probe{number}.example.org", number=PROBE))
            answer = client.recv(65535)
            found.append(b"" if answer[:2] == b"\xff\xff" else answer)
            if found[-1]:
                assert client.recv(65535)[:2] == b"\xff\xff"
    return found


def counts(server: DnsServer) -> dict[Any, int]:
    """Every kind of response, and how often it was sent."""
    tables = {id(listener.table): listener.table for listener in server.servers}.values()
    return {
        kind: times for table in tables for partition in table.partitions.values() for kind, times in partition.totals()
    }


@compiled_only
def test_every_datagram_gets_the_same_bytes_and_counts() -> None:
    queries = list(datagrams(1200))
    queries += queries[:400]  # now the table has what may be kept
    both = []
    for new_loop in LOOPS:
        with serving(new_loop) as server:
            by_host = {host: responses(host, port, queries) for host, port in server.addresses if port}
            both.append((list(by_host.values()), counts(server)))
    interpreted, compiled = both
    assert compiled == interpreted
    assert sum(map(bool, interpreted[0][0])) > 600


class Answer:
    """Just what the selector reads of an answer."""

    def __init__(self, **changed: object) -> None:
        self.head, self.question_end, self.bodies = b"\x81\x80" + bytes(8), 25, (b"one", b"two")
        self.hits, self.until_s = 0, 0.0
        self.renewed: object = True
        self.__dict__.update(changed)

    def renew(self, _now_s: float) -> object:
        if isinstance(self.renewed, Exception):
            raise self.renewed
        return self.renewed


@contextmanager
def selecting(answers: object, query: bytes) -> Iterator[tuple[BurstSelector, list[Any], Requests, socket.socket]]:
    """A selector with one listener that has received a query."""
    with (
        socket.socket(type=socket.SOCK_DGRAM) as listener,
        socket.socket(type=socket.SOCK_DGRAM) as client,
        BurstSelector() as selector,
    ):
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        client.connect(listener.getsockname())
        client.settimeout(60)
        selector.register(listener, 1)
        requests = Requests()
        misses = selector.follow(listener.fileno(), SimpleNamespace(answers=answers), requests, Sampling())  # type: ignore[arg-type]
        client.send(query)
        yield selector, misses, requests, client


QUERY = packet("web.test")
KEY = QUERY[2:]


@compiled_only
@pytest.mark.parametrize(
    "answers",
    [
        {KEY: Answer(head=b"short")},
        {KEY: Answer(bodies=())},
        {KEY: Answer(bodies=("text",))},
        {KEY: Answer(bodies=None)},
        {KEY: Answer(question_end=26 << 10)},
        {KEY: Answer(question_end=-1)},
        {KEY: Answer(hits="x")},
        {KEY: Answer(until_s="x")},
        {KEY: Answer(renewed=RuntimeError("renew"))},
        {KEY: object()},
        [],
    ],
)
def test_after_a_failure_others_answer(answers: object) -> None:
    with selecting(answers, QUERY) as (selector, misses, _, client), capture_logs() as logged:
        (fd,) = (key.fd for key in selector.get_map().values())
        selector.select(5)
        assert [line["event"] for line in logged] == ["compiled code failed, Python answers UDP from now on"]
        assert not selector.follows(fd)
        client.send(QUERY)
        assert [key.fd for key, _ in selector.select(5)] == [fd]
        assert misses == []


@compiled_only
def test_a_server_survives_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    query = packet("web.example.org", number=1)
    with serving(BurstEventLoop) as server:
        host, port = next(address for address in server.addresses if address[1])
        first, second = responses(host, port, [query, query])
        monkeypatch.setattr(Requests, "observe", None)  # what the compiled code calls behind a burst
        assert sorted(responses(host, port, [query])[0]) == sorted(first) == sorted(second)
        monkeypatch.undo()
        assert sorted(responses(host, port, [query])[0]) == sorted(first)


@compiled_only
def test_hits_are_answered_in_turn_and_counted_and_misses_handed_up() -> None:
    answer = Answer()
    with selecting({KEY: answer}, QUERY) as (selector, misses, requests, client):
        assert selector.select(0.05) == []
        assert client.recv(512) == QUERY[:2] + answer.head + QUERY[12:25] + b"two"
        client.send(QUERY)
        selector.select(0.05)
        assert client.recv(512).endswith(b"one")
        assert (answer.hits, sum(requests.durations.counts), misses) == (2, 2, [])
        answer.renewed = False
        client.send(QUERY)
        client.send(b"short")
        ((key, events),) = selector.select(5)
        assert events == 1
        assert [(miss[0], miss[1], miss[2]) for miss in misses] == [
            (QUERY, KEY, client.getsockname()),
            (b"short", b"", client.getsockname()),
        ]
        misses.clear()
        selector.leave(key.fd)
        client.send(QUERY)
        assert [key.fd for key, _ in selector.select(5)] == [key.fd]
        assert misses == []
