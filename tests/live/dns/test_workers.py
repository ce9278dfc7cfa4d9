"""Workers answer as one process does: the same bytes and counts, through changes, reloads, crashes and the end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from dns_client import Udp, answers, packet, rcode, read, with_options
from dns_live import SITES, api_of, cluster, page, port_of, serving
from fake_api import FakeApi, service, until
from fake_upstream import fake_server

from kdns.corefile.parse import parse
from kdns.dns.query import HEADER_BYTES
from kdns.dnsserver.config import ServerConfig
from kdns.dnsserver.io import listeners
from kdns.dnsserver.io.burst.event_loop import INTERPRETED, BurstEventLoop
from kdns.dnsserver.io.server import DnsServer
from kdns.dnsserver.io.workers import pool
from kdns.errors import ListenError
from kdns.plugins.directives import configure
from kdns.runtime.process import processors

CLIENTS = 12
"""Sockets of clients: the kernel gives each to a worker by its address and port."""
RETRY_S = 0.3
NAMES = (
    *(f"s{number}.default.svc.cluster.local" for number in range(8)),
    "many.default.svc.cluster.local",
    "none.default.svc.cluster.local",
    "s1.default.svc.cluster.local.default.svc.cluster.local",
    "3.0.96.10.in-addr.arpa",
    "cluster.local",
    "outside.example",
)
QUERIES = [
    *(packet(name, qtype, number=number) for name in NAMES for number, qtype in enumerate(("A", "AAAA", "SRV", "PTR"))),
    *(packet(name.upper(), payload_bytes=1232) for name in NAMES),
    *(with_options(packet(name, payload_bytes=4096), (10, bytes(8))) for name in NAMES),
    *(packet(name, payload_bytes=512, do=True) for name in NAMES),
    packet("s1.default.svc.cluster.local", payload_bytes=1232, version=1),
    packet("s1.default.svc.cluster.local")[:20],
    packet("s1.default.svc.cluster.local")[:9],
    packet("s1.default.svc.cluster.local") + b"junk",
]


@pytest.fixture(autouse=True)
async def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers on any machine; they run compiled code if this process does."""
    monkeypatch.setattr(listeners, "processors", lambda: 2)
    if not isinstance(asyncio.get_running_loop(), BurstEventLoop):
        monkeypatch.setenv(INTERPRETED, "1")


def configs(api: FakeApi, *more: str, blocks: str = "") -> tuple[ServerConfig, ...]:
    stanza = f"kubernetes cluster.local in-addr.arpa ip6.arpa {{\nendpoint {api.url}\n\n}}"
    lines = "\n".join(more)
    return configure(parse(f".:0 {{\nbind 127.0.0.1\nerrors\n{SITES}{stanza}\n{lines}\n}}\n{blocks}"))


def children(parent: int) -> list[int]:
    """The workers of a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_child = int((path / "stat").read_text().rpartition(")")[2].split()[1]) == parent
            if is_child and b"workers.worker" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except (OSError, ValueError):
            continue
    return sorted(found)


async def metric(server: DnsServer, name: str) -> float:
    """The sum of a metric's samples; 0 if it has none."""
    _, text = await page(server, "/metrics")
    lines = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


async def workers_read(server: DnsServer, count: int = 2) -> None:
    deadline_s = time.monotonic() + 60
    while await metric(server, "kdns_dns_workers") != count or len(children(os.getpid())) != count:
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.01)


@asynccontextmanager
async def clients(port: int, host: str = "127.0.0.1") -> AsyncIterator[list[Udp]]:
    async with AsyncExitStack() as stack:
        yield [stack.enter_context(Udp(port, host)) for _ in range(CLIENTS)]


async def responses(port: int, queries: Iterable[bytes]) -> list[list[bytes]]:
    """The responses to each query, from every client twice, b"" for silence."""
    async with clients(port) as sockets:
        found = []
        for query in queries:
            if len(query) < HEADER_BYTES:
                assert [await each.is_silent_about(query) for each in sockets] == [True] * CLIENTS
                found.append([b""])
            else:
                found.append([await each.ask(query) for each in (*sockets, *sockets)])
        return found


async def test_workers_answer_with_the_bytes_of_one_process_and_come_and_go_with_reloads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with api_of(cluster()) as api, serving(api.url, monkeypatch) as server:
        await server.swap(configs(api))
        port = port_of(server)
        one = await responses(port, QUERIES)
        assert [QUERIES[at] for at, each in enumerate(one) if len(set(each)) > 1] == []
        for _ in range(2):
            await server.swap(configs(api, "multisocket 2"))
            await workers_read(server)
            assert await responses(port, QUERIES) == one
            await server.swap(configs(api))
            assert children(os.getpid()) == []
            assert await responses(port, QUERIES) == one
            assert await metric(server, "kdns_dns_workers") == 0


async def test_a_wildcard_and_its_single_addresses_have_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connected client gets answers from the queried address only."""
    async with api_of(cluster()) as api, serving(api.url, monkeypatch) as server:
        for directive in ("multisocket 2", "", "multisocket 2"):
            await server.swap(configure(parse(f".:0 {{\n{SITES}{directive}\nwhoami\n}}\n")))
            if directive:
                await workers_read(server)
            for host, port in server.addresses:
                address = "127.0.0.1" if host == "0.0.0.0" else "::1"
                async with clients(port, address) as sockets:
                    assert {rcode(await each.ask(packet("example.org"))) for each in sockets} == {"NOERROR"}


async def test_all_workers_see_changes_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = cluster()
    async with api_of(objects) as api, serving(api.url, monkeypatch, more="multisocket 2") as server:
        await workers_read(server)
        name = packet("changing.default.svc.cluster.local")
        async with clients(port_of(server)) as sockets:
            assert {rcode(await each.ask(name)) for each in sockets} == {"NXDOMAIN"}
            for number in range(1, 30):
                address = f"10.96.1.{number}"
                objects.put("services", service("changing", address))
                deadline_s = time.monotonic() + 60
                while answers(await sockets[number % CLIENTS].ask(name)) != [address]:
                    assert time.monotonic() < deadline_s
                    await asyncio.sleep(0)
                await asyncio.sleep(0.02)  # the other worker has the same messages
                assert {tuple(answers(await each.ask(name))) for each in sockets} == {(address,)}
            objects.delete("services", ("default", "changing"))
            for each in sockets:
                deadline_s = time.monotonic() + 60
                while rcode(await each.ask(name)) != "NXDOMAIN":
                    assert time.monotonic() < deadline_s
                    await asyncio.sleep(0)
            serials = [read(await each.ask(name)).auth[0].rdata.times[0] for each in sockets]
            assert len(set(serials)) == 1


COUNTED = (
    "coredns_dns_requests_total",
    "coredns_dns_responses_total",
    "coredns_dns_request_duration_seconds_count",
    "coredns_dns_do_requests_total",
    "coredns_dns_request_size_bytes_sum",
    "coredns_dns_response_size_bytes_sum",
    "coredns_cache_requests_total",
)


async def counted(server: DnsServer) -> list[float]:
    return [await metric(server, name) for name in COUNTED]


async def test_metrics_add_up_to_the_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = [query for query in QUERIES if len(query) >= HEADER_BYTES]
    sent = 2 * CLIENTS * len(queries)
    counts = []
    async with api_of(cluster()) as api, serving(api.url, monkeypatch, more="cache 30") as server:
        for more in ((), ("multisocket 2",)):
            await server.swap(configs(api, "cache 30", *more))
            if more:
                await workers_read(server)
            before = await counted(server)
            await responses(port_of(server), queries)
            counts.append([now - old for now, old in zip(await counted(server), before, strict=True)])
        total = await counted(server)
        await server.swap(configs(api, "cache 30"))  # ends the workers
        assert await counted(server) == total
    assert counts[0][:3] == [sent, sent, sent]
    assert 0 < counts[0][-1] <= sent
    assert counts[1] == counts[0]


async def test_a_killed_worker_is_replaced_and_no_name_stays_unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with api_of(cluster()) as api, serving(api.url, monkeypatch, more="multisocket 2") as server:
        await workers_read(server)
        before = children(os.getpid())
        ended = asyncio.Event()
        asked = 0

        async def ask_on(client: Udp, number: int) -> None:
            nonlocal asked
            while not ended.is_set():
                name = f"s{asked % 30}.default.svc.cluster.local"
                query = packet(name, number=number)
                for _ in range(20):
                    client.socket.send(query)
                    try:
                        response = await client.receive(RETRY_S)
                    except TimeoutError:
                        continue
                    assert rcode(response) == "NOERROR"
                    break
                else:
                    pytest.fail(f"no answer for {name}")
                while True:  # answers to retried queries
                    try:
                        client.socket.recv(65535)
                    except BlockingIOError:
                        break
                asked += 1
                await asyncio.sleep(0)

        async with clients(port_of(server)) as sockets:
            asking = [asyncio.create_task(ask_on(each, number)) for number, each in enumerate(sockets)]
            for pid in before:
                os.kill(pid, signal.SIGKILL)
                at = asked
                await until(lambda at=at: asked > at + 200)  # type: ignore[misc]
                await workers_read(server)
            ended.set()
            await asyncio.gather(*asking)
        after = children(os.getpid())
        assert len(after) == 2
        assert set(after).isdisjoint(before)
        assert await metric(server, "kdns_dns_worker_restarts_total") == 2


async def test_reloads_add_and_remove_addresses_and_a_broken_one_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = "other.test:0 {\nbind 127.0.0.2\nmultisocket\nwhoami\n}\n"
    query = packet("x.other.test")
    async with api_of(cluster()) as api, serving(api.url, monkeypatch, more="multisocket 2") as server:
        await workers_read(server)
        before = children(os.getpid())
        for _ in range(2):
            await server.swap(configs(api, "multisocket 2", blocks=other))
            port = next(port for host, port in server.addresses if host == "127.0.0.2")
            await workers_read(server)
            async with clients(port, "127.0.0.2") as sockets:
                assert {rcode(await each.ask(query)) for each in (*sockets, *sockets)} == {"NOERROR"}
            with pytest.raises(ListenError):
                await server.swap(configs(api, blocks=other.replace("127.0.0.2", "192.0.2.1")))
            assert await metric(server, "kdns_dns_workers") == 2
            async with clients(port, "127.0.0.2") as sockets:
                assert {rcode(await each.ask(query)) for each in sockets} == {"NOERROR"}
            await server.swap(configs(api, "multisocket 2"))
            with Udp(port, "127.0.0.2") as client, pytest.raises(ConnectionRefusedError):
                await client.ask(query)
        await responses(port_of(server), QUERIES[:4])
        assert children(os.getpid()) == before
    assert children(os.getpid()) == []


async def test_directives_see_every_query_of_every_client(monkeypatch: pytest.MonkeyPatch) -> None:
    more = "multisocket 2\nacl {\nblock net 127.0.0.2\nallow\n}"
    query = packet("s1.default.svc.cluster.local")
    async with api_of(cluster()) as api, serving(api.url, monkeypatch, more=more) as server:
        await workers_read(server)
        async with clients(port_of(server)) as allowed:
            for each in (*allowed, *allowed):
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as refused:
                    refused.setblocking(False)
                    refused.bind(("127.0.0.2", 0))
                    refused.connect(("127.0.0.1", port_of(server)))
                    refused.send(query)
                    assert rcode(await each.ask(query)) == "NOERROR"
                    response = await asyncio.get_running_loop().sock_recv(refused, 512)
                    assert rcode(response) == "REFUSED"
        assert await metric(server, "coredns_acl_blocked_requests_total") == 2 * CLIENTS
        assert await metric(server, "coredns_acl_allowed_requests_total") == 2 * CLIENTS


async def test_samples_have_the_queries_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[tuple[bytes, bytes]] = set()
    query, absent = packet("s1.default.svc.cluster.local"), packet("s1.default.svc.cluster.local", "TXT")
    async with api_of(cluster()) as api, serving(api.url, monkeypatch, more="multisocket 2") as server:
        await workers_read(server)
        async with clients(port_of(server)) as sockets:
            wires = [[await each.ask(one) for each in sockets] for one in (query, absent)]
            deadline_s = time.monotonic() + 60
            while len(seen) < 2:
                assert time.monotonic() < deadline_s
                server.sampling.look_at_next(lambda packet, _, wire: seen.add((packet, wire)))
                for each in sockets:
                    await each.ask(query)
                    await each.ask(absent)
        assert seen == {(query, wires[0][0]), (absent, wires[1][0])}


async def test_forwarded_answers_are_asked_for_once_and_their_ttls_count_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with fake_server() as upstream, api_of(cluster()) as api:
        more = f"multisocket 2\nforward . 127.0.0.1:{upstream.port}\ncache 60"
        async with serving(api.url, monkeypatch, more=more) as server:
            await workers_read(server)
            queries = [packet(f"n{number}.outside.example") for number in range(20)]
            async with clients(port_of(server)) as sockets:
                for query in queries:
                    found = [read(await each.ask(query)) for each in (*sockets, *sockets)]
                    assert {str(one.rr[0].rdata) for one in found} == {"192.0.2.1"}
                    assert all(55 <= one.rr[0].ttl <= 60 for one in found)
                first = read(await sockets[0].ask(queries[0])).rr[0].ttl
                deadline_s = time.monotonic() + 60
                for each in sockets:
                    while read(await each.ask(queries[0])).rr[0].ttl >= first:
                        assert time.monotonic() < deadline_s
                        await asyncio.sleep(0.05)
            assert len(upstream.received) == len(queries)
            misses = await metric(server, "coredns_cache_misses_total")
            hits = await metric(server, "coredns_cache_hits_total")
            assert misses == len(queries)
            assert hits == await metric(server, "coredns_dns_requests_total") - misses


async def test_a_worker_that_does_not_respond_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "CHECK_S", 0.6)
    query = packet("s1.default.svc.cluster.local")
    async with api_of(cluster()) as api, serving(api.url, monkeypatch, more="multisocket 2") as server:
        await workers_read(server)
        before = children(os.getpid())
        async with clients(port_of(server)) as sockets:
            for each in sockets:
                await each.ask(query)
            os.kill(before[0], signal.SIGSTOP)
            for each in sockets:
                each.socket.send(query)
            answered = await asyncio.gather(*(each.receive(0.5) for each in sockets), return_exceptions=True)
            assert {type(each) for each in answered} == {bytes, TimeoutError}  # the kernel distributes clients
        deadline_s = time.monotonic() + 60
        while await metric(server, "kdns_dns_worker_restarts_total") < 1:
            assert time.monotonic() < deadline_s
            await asyncio.sleep(0.05)
        await workers_read(server)
        after = children(os.getpid())
        assert len(after) == 2
        assert before[1] in after
        async with clients(port_of(server)) as sockets:
            assert {rcode(await each.ask(query)) for each in sockets} == {"NOERROR"}


COREFILE = """\
.:0 {
    bind 127.0.0.1
    whoami
}
"""


@pytest.mark.skipif(processors() < 2, reason="workers need two processors")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_server(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "Corefile").write_text(COREFILE)
    command = [sys.executable, "-m", "kdns", "serve", "--workers", "2"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        line = ""
        while not line.startswith("ready"):
            line = process.stdout.readline()
            assert line
        deadline_s = time.monotonic() + 60
        while len(started := children(process.pid)) < 2:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(60) == (0 if number == signal.SIGTERM else -signal.SIGKILL)
        while any(Path(f"/proc/{pid}").exists() for pid in started):
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
