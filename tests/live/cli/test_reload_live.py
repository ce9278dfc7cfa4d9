"""A server whose Corefile changes: what it listens on, how it sees the change, and that no query is lost meanwhile."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from _process import free_port
from configured import configured
from dns_client import Udp, packet, rcode
from dns_live import dns_server
from fake_api import until
from structlog.testing import capture_logs
from wholefiles import replace

from kdns.apps.serve import reloading
from kdns.dnsserver.io.corefile import Corefile, read_corefile
from kdns.dnsserver.io.reload import Reloader
from kdns.dnsserver.io.server import DnsServer
from kdns.errors import ListenError
from kdns.node_local.settings import NodeLocal
from kdns.plugins.directives import BY_NAME

DEADLINE_S = 60.0


def block(*hosts: str, port: int = 0, zone: str = ".", more: str = "") -> str:
    bind = f"bind {' '.join(hosts)}\n" if hosts else ""
    return f"{zone}:{port} {{\n{bind}{more}\nwhoami\n}}\n"


async def asked(port: int, host: str = "127.0.0.1") -> str:
    with Udp(port, host) as client:
        answer = rcode(await client.ask(packet("a.test")))
    query = packet("a.test")
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(len(query).to_bytes(2, "big") + query)
    async with asyncio.timeout(DEADLINE_S):
        size = int.from_bytes(await reader.readexactly(2), "big")
        assert rcode(await reader.readexactly(size)) == answer
    writer.close()
    return answer


async def test_addresses_of_one_port_come_and_go() -> None:
    """From every address to single ones and back: the port is the same, so the new sockets are beside the old ones."""
    port = free_port()
    async with dns_server(block(port=port)) as server:
        for hosts in (("127.0.0.1",), ("127.0.0.2", "127.0.0.1"), (), ("127.0.0.2",), ()):
            await server.swap(configured(block(*hosts, port=port)))
            here = hosts or ("127.0.0.1", "::1")
            for host in here:
                assert await asked(port, host) == "NOERROR", (hosts, host)
            labels = [each.label for each in server.servers]
            assert len(labels) == len(set(labels)), "an address that comes back has its server, and its counters, again"
            with pytest.raises(ListenError):  # the port is nobody else's
                async with dns_server(block(here[0], port=port)):
                    pass


async def test_pages_come_move_and_go() -> None:
    port = free_port()

    async def page(path: str, at: int) -> int:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{at}{path}") as response:
            return response.status

    async with dns_server(block("127.0.0.1", more=f"health :{port}")) as server:
        assert await page("/health", port) == 200
        await server.swap(configured(block("127.0.0.1", more=f"health 127.0.0.1:{port}\nready 127.0.0.1:0")))
        assert await page("/health", port) == 200
        assert await page("/ready", server.site_addresses["/ready"][1]) == 200
        with pytest.raises(ListenError):
            await server.swap(configured(block("127.0.0.1", more="prometheus 192.0.2.1:0")))
        assert server.site_addresses.keys() == {"/health", "/ready"}
        await server.swap(configured(block("127.0.0.1")))
        assert server.site_addresses == {}
        with pytest.raises(aiohttp.ClientConnectionError):
            await page("/health", port)


async def test_a_file_and_what_it_imports_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake counts once, and an unchanged file is nothing."""
    corefile, imported = tmp_path / "Corefile", tmp_path / "part"
    corefile.write_text("a.:0 {\nbind 127.0.0.1\nreload 9s\n}\n.:0 {\nbind 127.0.0.1\nreload 2s\nimport part\n}\n")
    imported.write_text("whoami\n")
    monkeypatch.setattr(Reloader, "_next", _at_once)
    read = partial(read_corefile, str(corefile), BY_NAME, dns_port=0)
    first = read()
    server = DnsServer(first.checked(), sha512=first.sha512)
    await server.start()
    try:
        assert server.reload_every_s == (2.0, 1.0)
        with capture_logs() as logs:
            async with reloading(server, asyncio.Event(), read, first.sha512):
                await asyncio.sleep(0.05)
                replace(imported, "whoamj\ncachf\n")
                await until(lambda: server.failed_reloads == 1)
                await asyncio.sleep(0.05)
                replace(imported, "whoami\nerrors\n")
                await until(lambda: server.sha512 != first.sha512)
        events = [entry["event"] for entry in logs]
        assert events == ["corefile not reloaded", "corefile reloaded"]
        assert f"{imported}:1: unknown directive `whoamj`" in str(logs[0]["reason"])
        assert (logs[0]["mistakes"], len(logs[0]["further_mistakes"])) == (2, 1)
        assert f"{imported}:2: " in logs[0]["further_mistakes"][0]
        assert server.sha512 == read().sha512
    finally:
        await server.stop()


async def _at_once(_self: Reloader) -> bool:
    await asyncio.sleep(0.005)
    return False


@pytest.mark.parametrize("problem", ["a variable without value", "an exception that nobody expected"])
async def test_reloads_go_on_after_a_corefile_that_cannot_be_made(tmp_path: Path, problem: str) -> None:
    """A node-local cache's variables are filled in before the text is parsed; that may fail too."""
    path = tmp_path / "Corefile"
    path.write_text(block("127.0.0.1"))
    local = NodeLocal(("127.0.0.1",))

    def read() -> Corefile:
        text = path.read_text()
        if "__PILLAR" in text and problem != "a variable without value":
            raise LookupError(problem)
        return read_corefile(str(path), BY_NAME, dns_port=0, with_variables=local.with_variables)

    async with dns_server(path.read_text()) as server:
        asked = asyncio.Event()
        task = asyncio.create_task(Reloader(server, read, asked).run())
        path.write_text(block("127.0.0.1", more="forward . __PILLAR__CLUSTER__DNS__"))
        with capture_logs() as lines:
            asked.set()
            await until(lambda: server.failed_reloads == 1)
        assert [line["event"] for line in lines] == ["corefile not reloaded"]
        path.write_text(block("127.0.0.1", zone="new.test"))
        asked.set()
        await until(lambda: server.servers[0].blocks[0].zone == "new.test.")
        task.cancel()


@pytest.mark.skipif(not shutil.which("dnsperf"), reason="dnsperf is not here: tests/install-debian-packages")
def test_a_reload_under_load_loses_no_query(tmp_path: Path) -> None:
    """Other answers, a further address and a page, ten times: dnsperf counts what it gets."""
    port = free_port()
    hosts = "hosts /dev/null {{\n{} a.test\n}}\n"
    binds = ("bind 127.0.0.1", "bind 127.0.0.1 127.0.0.3\nhealth 127.0.0.1:0")
    texts = [f"a.test:{port} {{\n{bind}\n{hosts.format(f'10.0.0.{nr}')}}}\n" for nr, bind in enumerate(binds)]
    corefile, names = tmp_path / "Corefile", tmp_path / "names"
    corefile.write_text(texts[0])
    names.write_text("a.test A\n")
    argv = (sys.executable, "-m", "kdns", "serve", "-conf", str(corefile), "-quiet")
    log = tmp_path / "log"
    with log.open("w") as out, subprocess.Popen(argv, stdout=out, stderr=out) as server:
        try:
            asyncio.run(until(lambda: "running configuration" in log.read_text()))
            load = f"dnsperf -s 127.0.0.1 -p {port} -d {names} -l 4 -Q 20000 -c 4".split()
            with subprocess.Popen(load, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as client:
                for number in range(1, 11):
                    corefile.write_text(texts[number % 2])
                    os.kill(server.pid, signal.SIGUSR1)
                    asyncio.run(until(lambda: log.read_text().count("corefile reloaded") >= number))  # noqa: B023
                report, _ = client.communicate(timeout=DEADLINE_S)
        finally:
            server.terminate()
    completed = re.search(r"Queries completed:\s+(\d+)", report)
    assert completed, report
    assert int(completed[1]) > 1000
    assert re.search(r"Queries lost:\s+0 ", report), report
    assert re.search(r"Response codes:\s+NOERROR \d+ \(100\.00%\)", report), report
