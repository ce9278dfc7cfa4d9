"""What a resolver sees while the API server is away, late, mute or forgetful: the answers it had, and never less."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from dns_client import Tcp, Udp, answers, packet, rcode, read
from dns_live import SERVICES, TIMING, api_of, cluster, page, port_of, serving
from fake_api import FakeApi, RefusedError, endpoint_slice, service, until

from kdns.dnsserver.io.server import DnsServer

PATIENT = replace(TIMING, idle_s=600.0)
"""Here only what the test does ends a watch."""


def name_of(number: int) -> str:
    return f"s{number}.default.svc.cluster.local"


@dataclass
class Load:
    """Queries one after another, for every name; what was answered, by question."""

    server: DnsServer
    asked: int = 0
    seen: dict[str, Counter[tuple[str, tuple[str, ...]]]] = field(default_factory=dict)

    async def run(self) -> None:
        with Udp(port_of(self.server)) as udp:
            async with await Tcp.connect(port_of(self.server)) as stream:
                while True:
                    for number in range(SERVICES):
                        query = packet(name_of(number), number=self.asked & 0xFFFF)
                        response = await (stream.ask(query) if number % 5 == 0 else udp.ask(query))
                        found = rcode(response), tuple(answers(response))
                        self.seen.setdefault(name_of(number), Counter())[found] += 1
                        self.asked += 1
                        await asyncio.sleep(0.001)


@asynccontextmanager
async def under_load(server: DnsServer) -> AsyncIterator[Load]:
    load = Load(server)
    task = asyncio.create_task(load.run())
    try:
        yield load
    finally:
        assert not task.done(), task.exception()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def more(load: Load, rounds: int = 2) -> None:
    """Let every name be asked again a few times."""
    goal = load.asked + rounds * SERVICES
    await until(lambda: load.asked >= goal)


async def shows(server: DnsServer, name: str, *rdata: str, code: str = "NOERROR") -> None:
    """Poll until a name has this answer."""
    deadline_s = asyncio.get_running_loop().time() + 60
    with Udp(port_of(server)) as udp:
        while True:
            response = await udp.ask(packet(name))
            if (rcode(response), answers(response)) == (code, sorted(rdata)):
                return
            assert asyncio.get_running_loop().time() < deadline_s, f"{name}: {rcode(response)} {answers(response)}"
            await asyncio.sleep(0.005)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with api_of(cluster()) as api:
        yield api


async def test_no_answer_changes_while_the_api_server_is_killed_and_back(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(api.url, monkeypatch, timing=PATIENT) as server, under_load(server) as load:
        await more(load)
        for _ in range(3):
            await api.stop()
            await more(load)
            await api.start()
            await until(lambda: all(api.watching[kind] for kind in ("services", "endpointslices", "namespaces")))
            await more(load)
        assert load.seen == {
            name_of(number): Counter({("NOERROR", (f"10.96.0.{number + 1}",)): load.seen[name_of(number)].total()})
            for number in range(SERVICES)
        }
        assert await page(server, "/ready") == (200, "OK")


async def test_without_an_api_server_answers_are_servfail_until_it_appears(monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApi(cluster())
    await api.start()
    await api.stop()
    async with serving(api.url, monkeypatch, options="startup_timeout 0s") as server:
        with Udp(port_of(server)) as udp:
            for name in (name_of(0), "no.default.svc.cluster.local", "1.0.96.10.in-addr.arpa"):
                response = await udp.ask(packet(name))
                assert rcode(response) == "SERVFAIL"
                assert not read(response).rr
            assert rcode(await udp.ask(packet("cluster.local", "SOA"))) == "NOERROR"
        assert await page(server, "/ready") == (503, "kubernetes")
        assert await page(server, "/health") == (200, "OK")
        await api.start()
        try:
            await shows(server, name_of(0), "10.96.0.1")
            await shows(server, "no.default.svc.cluster.local", code="NXDOMAIN")
            await until(lambda: server.is_synced)
            assert await page(server, "/ready") == (200, "OK")
        finally:
            await api.stop()


@pytest.mark.parametrize("missing", ["namespaces", "services", "endpointslices"])
async def test_one_kind_that_cannot_be_listed_yet_makes_servfail_and_never_nxdomain(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    api.refuse_always["list", missing] = RefusedError(500, "InternalError", "not yet")
    async with serving(api.url, monkeypatch, options="startup_timeout 0s") as server:
        others = {"namespaces", "services", "endpointslices"} - {missing}
        await until(lambda: all(api.watching[kind] for kind in others))
        with Udp(port_of(server)) as udp:
            for name in (name_of(0), "no.default.svc.cluster.local", "many.default.svc.cluster.local"):
                assert rcode(await udp.ask(packet(name))) == "SERVFAIL"
        assert await page(server, "/ready") == (503, "kubernetes")
        del api.refuse_always["list", missing]
        await shows(server, name_of(0), "10.96.0.1")
        await shows(server, "no.default.svc.cluster.local", code="NXDOMAIN")


async def test_every_change_reaches_the_answer_while_queries_come(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(api.url, monkeypatch, timing=PATIENT) as server, under_load(server) as load:
        for number in range(1, 11):
            api.cluster.put("services", service("s3", f"10.96.7.{number}"))
            await shows(server, name_of(3), f"10.96.7.{number}")
            slices = endpoint_slice("many", f"10.246.0.{number}")
            api.cluster.put("endpointslices", slices)
            await shows(server, "many.default.svc.cluster.local", f"10.246.0.{number}")
            api.cluster.delete("services", ("default", "many"))
            await shows(server, "many.default.svc.cluster.local", code="NXDOMAIN")
            api.cluster.put("services", service("many", "None"))
            await shows(server, "many.default.svc.cluster.local", f"10.246.0.{number}")
        others = {name: found for name, found in load.seen.items() if name != name_of(3)}
        assert all(len(found) == 1 for found in others.values())
