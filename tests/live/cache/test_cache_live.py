"""`cache` of a running server before NSD: stale answers while that is away, and counters that equal what was sent."""

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path

from decoded_message import Decoded, decode
from dns_live import dns_server, page
from fake_api_certs import authority, issue
from fake_upstream import answers_at, query_of, upstream_of
from real_servers import running

from kdns.dnsserver.io.server import DnsServer
from kdns.net import HostPort
from kdns.upstream.upstream import Transport, UpstreamSpec

COREFILE = """\
.:0 {
    bind 127.0.0.1
    prometheus 127.0.0.1:0
    forward . 127.0.0.1:PORT
    cache {
        success 100 1 0
        denial 100 1 0
        servfail 0
        serve_stale 1h MODE
    }
}
"""


class Client:
    """Asks, and counts what was answered."""

    def __init__(self, server: DnsServer) -> None:
        self.server = server
        self.asked = 0

    async def ask(self, name: str, transport: Transport = "udp") -> Decoded:
        spec = UpstreamSpec(HostPort(*self.server.addresses[0][:2]))
        async with upstream_of(spec) as upstream:
            self.asked += 1
            return decode(await upstream.exchange(query_of(name, payload_bytes=1232), transport, 20.0))

    async def until_ttl(self, name: str, *ttls: int) -> Decoded:
        """The first answer with one of these TTLs, which must come."""
        async with asyncio.timeout(60):
            while True:
                found = await self.ask(name)
                if found.answer and found.answer[0].ttl in ttls:
                    return found
                await asyncio.sleep(0.02)

    async def counters(self) -> dict[str, int]:
        """The cache's counters, by name, their types added up."""
        _, text = await page(self.server, "/metrics")
        counters: dict[str, int] = {}
        for name, value in re.findall(r"^coredns_cache_(\w+)_total\{.*\} (\S+)$", text, re.MULTILINE):
            counters[name] = counters.get(name, 0) + int(float(value))
        return counters


async def test_stale_answers_while_the_upstream_is_away(tmp_path: Path) -> None:
    issue(authority("ca"), "server", tmp_path)
    async with AsyncExitStack() as servers:
        with running("nsd", tmp_path) as ports:
            await answers_at(ports["port"])
            modes = {"immediate 30s": 30, "verify 100ms 20s": 20}
            corefile = COREFILE.replace("PORT", str(ports["port"]))
            clients = {
                Client(await servers.enter_async_context(dns_server(corefile.replace("MODE", mode)))): ttl
                for mode, ttl in modes.items()
            }
            for client in clients:
                assert (await client.ask("ns.example.org")).answer[0].ttl == 1
                assert (await client.ask("no.example.org")).rcode == "NXDOMAIN"
        for client, ttl in clients.items():
            stale = await client.until_ttl("ns.example.org", ttl)
            assert stale.answer[0].rdata == (bytes((192, 0, 2, 1)),)
            assert (await client.ask("no.example.org", "tcp")).rcode == "NXDOMAIN"
            assert (await client.ask("never.example.org")).rcode == "SERVFAIL"
            counters = await client.counters()
            assert counters["requests"] == client.asked
            assert (counters["hits"], counters["misses"]) == (client.asked - 3, 3)
            assert counters["served_stale"] >= 1
