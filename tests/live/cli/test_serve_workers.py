"""Several processes serve as one does: the same bytes and counts, through changes, reloads, crashes and the end."""

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from dns_client import Tcp, Udp, answers, packet, rcode
from dns_live import api_of, cluster
from fake_api import FakeApi, service

from kdns.dnsserver.io.supervisor import HANG_S
from kdns.runtime.process import processors

pytestmark = pytest.mark.skipif(sys.platform != "linux" or processors() < 2, reason="needs Linux and two processors")

HOST = f"127.{64 + os.getpid() // 65536 % 64}.{os.getpid() // 256 % 256}.{os.getpid() % 256}"
"""An address of this test process alone: several servers share a port, so it cannot be one of the kernel's choice."""
DNS, PAGES = 5300, 5380
CLIENTS = 12
"""Sockets of clients: the kernel gives each to a worker by its address and port."""
SERIAL = re.compile(rb"(hostmaster\xc0.).{4}", re.DOTALL)
RETRY_S, QUERY_EVERY_S = 0.5, 0.02
DEADLINE_S = 90.0
NAMES = (
    *(f"s{number}.default.svc.cluster.local" for number in range(8)),
    "many.default.svc.cluster.local",
    "none.default.svc.cluster.local",
    "s1.default.svc.cluster.local.default.svc.cluster.local",
    "3.0.96.10.in-addr.arpa",
)
QUERIES = [
    *(packet(name, qtype, number=number) for name in NAMES for number, qtype in enumerate(("A", "AAAA", "SRV", "PTR"))),
    *(packet(name, payload_bytes=512, do=True) for name in NAMES),
]


def corefile(api: FakeApi | None, *more: str, blocks: str = "") -> str:
    kubernetes = f"kubernetes cluster.local in-addr.arpa {{\nendpoint {api.url}\n\n}}" if api else ""
    pages = "\n".join(f"{page} {HOST}:{PAGES}" for page in ("health", "ready", "prometheus", "status"))
    return "\n".join((f".:{DNS} {{\nbind {HOST}\nerrors\n{pages}\n{kubernetes}", *more, f"}}\n{blocks}"))


class Served:
    def __init__(self, process: asyncio.subprocess.Process, file: Path) -> None:
        self.process, self.file = process, file
        self.output: list[str] = []

    async def line(self, beginning: str) -> str:
        """The next line of its output that begins so."""
        assert self.process.stdout
        while True:
            line = (await self.process.stdout.readline()).decode()
            assert line, "".join(self.output)
            self.output.append(line)
            if line.startswith(beginning) or f'"event": "{beginning}"' in line:
                return line

    def workers(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return sorted(map(int, children.read_text().split()))

    async def page(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://{HOST}:{PAGES}{path}") as response:
            return response.status, await response.text()

    async def metric(self, name: str) -> float:
        """The sum of a metric's samples; 0 if it has none."""
        _, text = await self.page("/metrics")
        lines = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    async def until_metric(self, name: str, wanted: Callable[[float], bool]) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while not wanted(value := await self.metric(name)):
            assert time.monotonic() < deadline_s, f"{name} is {value}"
            await asyncio.sleep(0.05)


@asynccontextmanager
async def served(folder: Path, text: str, *args: str, status: int = 0) -> AsyncIterator[Served]:
    file = folder / "Corefile"
    file.write_text(text)
    command = [sys.executable, "-m", "kdns", "--log-format", "json", "serve", "--conf", str(file), *args]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    server = Served(process, file)
    try:
        async with asyncio.timeout(DEADLINE_S):
            await server.line("ready")
        yield server
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        async with asyncio.timeout(DEADLINE_S):
            await process.communicate()
    assert process.returncode == status


@asynccontextmanager
async def clients() -> AsyncIterator[list[Udp]]:
    async with AsyncExitStack() as stack:
        yield [stack.enter_context(Udp(DNS, HOST)) for _ in range(CLIENTS)]


async def responses(queries: Iterable[bytes]) -> list[set[bytes]]:
    """The different responses to each query, from every client; without the serial, which is each server's own."""
    async with clients() as sockets:
        return [{SERIAL.sub(rb"\1", await client.ask(query)) for client in sockets} for query in queries]


async def until_answered(client: Udp, query: bytes, address: str) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while answers(await client.ask(query)) != [address]:
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.01)


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def ask_until(client: Udp, ended: asyncio.Event) -> tuple[int, int]:
    """Asks one name after another; returns how many were asked, and how many needed another try."""
    asked = tried_again = 0
    while not ended.is_set():
        query = packet(f"s{asked % 30}.default.svc.cluster.local", number=asked % 65536)
        for attempt in range(20):
            client.socket.send(query)
            try:
                response = await client.receive(RETRY_S)
                while response[:2] != query[:2]:  # the answer to an earlier try
                    response = await client.receive(RETRY_S)
            except (TimeoutError, ConnectionRefusedError):
                continue
            assert rcode(response) == "NOERROR"
            tried_again += attempt > 0
            await asyncio.sleep(QUERY_EVERY_S)
            break
        else:
            pytest.fail("no answer")
        asked += 1
    return asked, tried_again


async def test_the_answers_and_counts_are_those_of_one_process(tmp_path: Path) -> None:
    async with api_of(cluster()) as api:
        async with served(tmp_path, corefile(api)) as one:
            assert one.workers() == []
            expected = await responses(QUERIES)
        async with served(tmp_path, corefile(api, "multisocket 2")) as server:
            assert len(server.workers()) == 2
            assert await responses(QUERIES) == expected
            sent = CLIENTS * len(QUERIES)
            assert await server.metric("coredns_dns_requests_total") == sent
            assert await server.metric("coredns_dns_responses_total") == sent
            assert await server.metric("coredns_dns_request_duration_seconds_count") == sent
            assert await server.metric("kdns_dns_workers") == 2
            assert await server.metric("kdns_objects") < 200  # those of one watch, not the sum of two
            assert await server.page("/ready") == (200, "OK")
            assert await server.page("/health") == (200, "OK")
            assert (await server.page("/status"))[0] == 200
            assert (await server.page("/status/status.css"))[0] == 200
            assert (await server.page("/else"))[0] == 404
            for _ in range(CLIENTS):
                async with await Tcp.connect(DNS, HOST) as client:
                    assert rcode(await client.ask(packet(NAMES[0]))) == "NOERROR"
            counted = await server.metric("coredns_dns_requests_total")
            for restarts, pid in enumerate(server.workers(), 1):
                os.kill(pid, signal.SIGKILL)
                await server.until_metric("kdns_dns_worker_restarts_total", lambda count, most=restarts: count == most)  # type: ignore[misc]
            assert counted == await server.metric("coredns_dns_requests_total") == sent + CLIENTS


async def test_every_worker_sees_changes_of_the_cluster(tmp_path: Path) -> None:
    objects = cluster()
    async with api_of(objects) as api, served(tmp_path, corefile(api), "--workers", "2"), clients() as sockets:
        name = packet("changing.default.svc.cluster.local")
        assert {rcode(await client.ask(name)) for client in sockets} == {"NXDOMAIN"}
        for number in range(1, 6):
            address = f"10.96.1.{number}"
            objects.put("services", service("changing", address))
            for client in sockets:
                await until_answered(client, name, address)


async def test_a_killed_or_hanging_worker_is_replaced_and_no_name_stays_unanswered(tmp_path: Path) -> None:
    async with (
        api_of(cluster()) as api,
        served(tmp_path, corefile(api, "multisocket 2")) as server,
        clients() as sockets,
    ):
        ended = asyncio.Event()
        asking = [asyncio.create_task(ask_until(client, ended)) for client in sockets]
        for restarts, (number, pid) in enumerate(zip((signal.SIGKILL, signal.SIGSTOP), server.workers(), strict=True)):
            counted = await server.metric("coredns_dns_requests_total")
            os.kill(pid, number)
            await server.until_metric("kdns_dns_worker_restarts_total", lambda count, least=restarts: count > least)  # type: ignore[misc]
            assert await server.metric("coredns_dns_requests_total") >= counted
            assert (await server.page("/ready"))[0] == 200
            await server.until_metric("kdns_dns_workers", lambda count: count == 2)
            assert pid not in server.workers()
        ended.set()
        total = [await task for task in asking]
        assert sum(asked for asked, _ in total) > 100
        assert HANG_S < DEADLINE_S


async def test_reloads_reach_every_worker_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    def hosts(address: str) -> str:
        return f"hosts {{\n{address} reload.test\n}}"

    query = packet("reload.test")
    async with served(tmp_path, corefile(None, hosts("192.0.2.1"), "multisocket 2")) as server:
        workers = server.workers()
        other = f"x.test:{DNS + 1} {{\nbind {HOST}\nwhoami\n}}\n"
        for text, expected in (
            (corefile(None, hosts("192.0.2.2"), "multisocket 2"), "192.0.2.2"),
            (corefile(None, hosts("192.0.2.3"), "nonsense"), "192.0.2.2"),
            (corefile(None, hosts("192.0.2.4"), "multisocket 2", blocks=other), "192.0.2.4"),
            (corefile(None, hosts("192.0.2.5"), "multisocket 3"), "192.0.2.5"),
        ):
            server.file.write_text(text)
            server.process.send_signal(signal.SIGUSR1)
            await server.line("corefile not reloaded" if "nonsense" in text else "corefile reloaded")
            async with clients() as sockets:
                for client in sockets:
                    await until_answered(client, query, expected)
            if "x.test" in text:
                with Udp(DNS + 1, HOST) as client:
                    assert rcode(await client.ask(packet("x.test"))) == "NOERROR"
        assert server.workers() == workers
        assert await server.metric("coredns_reload_failed_total") == 1


async def test_workers_end_with_a_killed_supervisor(tmp_path: Path) -> None:
    async with served(tmp_path, corefile(None, "multisocket 2", "whoami"), status=-signal.SIGKILL) as server:
        workers = server.workers()
        server.process.kill()
        deadline_s = time.monotonic() + DEADLINE_S
        while any(map(exists, workers)):
            assert time.monotonic() < deadline_s
            await asyncio.sleep(0.02)


async def test_an_address_that_cannot_be_shared_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "Corefile"
    async with served(tmp_path, corefile(None, "multisocket 2", "whoami")):
        for port, reason in ((DNS, "already in use"), (0, "several processes would get a port each")):
            file.write_text(f".:{port} {{\nbind {HOST}\nmultisocket 2\nwhoami\n}}\n")
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kdns", "serve", "--conf", str(file)),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            async with asyncio.timeout(DEADLINE_S):
                _, errors = await process.communicate()
            assert reason in errors.decode()
            assert process.returncode == 1
