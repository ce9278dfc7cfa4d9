"""Real sockets, real packets: a whole DNS server over a fake API."""

import asyncio
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from configured import configured
from dns_client import Tcp, Udp, answers, framed, packet
from dns_live import MANY, api_of, cluster, dns_server, port_of, serving
from fake_api import FakeApi

from kdns.dnsserver.io.server import DnsServer
from kdns.errors import ListenError
from kdns.serverblocks.listener_options import DEFAULTS

NAME = "s1.default.svc.cluster.local"
SOONER_S = 8.0
"""Before a connection would be closed without what a test says: that is after 10 s."""
MANY_NAME = "many.default.svc.cluster.local"


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with api_of(cluster()) as api:
        yield api


@pytest.fixture
async def server(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DnsServer]:
    async with serving(api.url, monkeypatch) as server:
        yield server


HEADER = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
QUESTION = packet(NAME)[12:]


async def test_two_servers_cannot_be_made_to_talk_to_each_other(server: DnsServer) -> None:
    with Udp(port_of(server)) as udp:
        for query in (packet(NAME), packet("example.org"), HEADER, packet(NAME, payload_bytes=512, version=9)):
            assert await udp.is_silent_about(await udp.ask(query))


async def test_dig_asks_again_over_tcp(server: DnsServer) -> None:
    if not shutil.which("dig"):
        pytest.skip("dig is not installed (Debian package bind9-dnsutils)")
    argv = ["dig", "@127.0.0.1", "-p", str(port_of(server)), "+noedns", "+norecurse", "+tries=1", MANY_NAME, "A"]
    result = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=True, timeout=90)
    assert "Truncated, retrying in TCP mode" in result.stdout
    assert len(re.findall(r"\sIN\s+A\s+10\.245\.", result.stdout)) == MANY
    assert "status: NOERROR" in result.stdout
    warnings = re.findall(r"WARNING: (.*)", result.stdout)
    assert all(".local is reserved" in warning for warning in warnings), warnings


@pytest.mark.parametrize("size", [1, 2, 3, 11])
async def test_a_message_may_arrive_in_any_pieces(server: DnsServer, size: int) -> None:
    raw = framed(packet(NAME, number=1)) + framed(packet(MANY_NAME, number=2))
    async with await Tcp.connect(port_of(server)) as stream:
        for start in range(0, len(raw), size):
            await stream.send(raw[start : start + size])
            await asyncio.sleep(0)
        assert answers(await stream.receive()) == ["10.96.0.2"]
        assert len(answers(await stream.receive())) == MANY


async def test_an_idle_connection_is_closed_and_a_used_one_is_not(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = replace(DEFAULTS, idle_s=2.0, read_s=2.0, write_s=2.0)
    monkeypatch.setattr("kdns.serverblocks.listener_options.DEFAULTS", limits)
    async with (
        serving(api.url, monkeypatch) as server,
        await Tcp.connect(port_of(server)) as used,
        await Tcp.connect(port_of(server)) as idle,
        asyncio.timeout(SOONER_S),
    ):
        closing = asyncio.create_task(idle.is_closed())
        while not closing.done():
            assert answers(await used.ask(packet(NAME))) == ["10.96.0.2"]
            await asyncio.sleep(0.02)
        assert await closing
        assert answers(await used.ask(packet(NAME))) == ["10.96.0.2"]


async def test_a_message_that_is_no_query_ends_the_connection(server: DnsServer) -> None:
    for junk in (b"\x12\x34", HEADER[:2] + b"\x80" + HEADER[3:] + QUESTION):
        async with await Tcp.connect(port_of(server)) as stream:
            await stream.send(framed(packet(NAME)) + framed(junk))
            assert answers(await stream.receive()) == ["10.96.0.2"]
            assert await stream.is_closed()


async def test_the_log_directive_writes_corednss_line(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(api.url, monkeypatch, more="log . {\nclass denial success\n}") as server:
        with Udp(port_of(server)) as udp:
            query = packet("S1.default.svc.cluster.local", number=16432, payload_bytes=4096)
            for _ in range(2):
                await udp.ask(query)
            await udp.ask(packet("no.default.svc.cluster.local", "AAAA", number=7))
            await udp.ask(packet("example.org", number=8))
            port = udp.socket.getsockname()[1]
    written = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
    lines = [line for line in written if line.startswith("[INFO] ")]
    one = re.escape(
        f'[INFO] 127.0.0.1:{port} - 16432 "A IN s1.default.svc.cluster.local. udp 57 false 4096" '
        "NOERROR qr,aa,rd 73 "  # the size as it was sent, with the OPT
    )
    other = re.escape(
        f'[INFO] 127.0.0.1:{port} - 7 "AAAA IN no.default.svc.cluster.local. udp 46 false 512" NXDOMAIN qr,aa,rd '
    )
    assert len(lines) == 3, lines  # names are in lower case, as CoreDNS writes them
    assert all(re.fullmatch(one + r"\d+\.\d+s", line) for line in lines[:2]), lines
    assert re.fullmatch(other + r"\d+ \d+\.\d+s", lines[2]), lines
    assert [line for line in written if line not in lines] == [
        "[ERROR] plugin/errors: 2 example.org. A: no directive has the answer"
    ]


async def test_other_server_blocks_answer_on_sockets_and_connections_that_stay() -> None:
    def corefile(address: str, host: str = "127.0.0.1") -> str:
        return f".:0 {{\nbind {host}\nhosts {{\n{address} a.test\n}}\n}}\n"

    async with dns_server(corefile("10.0.0.1")) as server, await Tcp.connect(port_of(server)) as stream:
        with Udp(port_of(server)) as udp:
            for address in ("10.0.0.1", "10.0.0.2"):
                await server.swap(configured(corefile(address)))
                assert [answers(await client.ask(packet("a.test"))) for client in (udp, stream)] == [[address]] * 2
            with pytest.raises(ListenError, match=r"cannot listen on 192\.0\.2\.1:0"):
                await server.swap(configured(corefile("10.0.0.3", "192.0.2.1")))
            assert answers(await udp.ask(packet("a.test"))) == ["10.0.0.2"]
