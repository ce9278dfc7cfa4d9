"""`kdns serve` from its start to its stop, without a cluster."""

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from dns_client import Udp, packet, rcode
from fake_api import until
from structlog.testing import capture_logs

from kdns.apps import serve
from kdns.dnsserver.io.corefile import read_corefile
from kdns.dnsserver.io.server import DnsServer
from kdns.errors import InputError
from kdns.node_local.io import upkeep
from kdns.node_local.settings import NodeLocal
from kdns.plugins.directives import BY_NAME
from kdns.runtime.process import RELOAD_SIGNALS, STOP_SIGNALS, reload_event, stop_event


@pytest.fixture
def hangup() -> Iterator[None]:
    """SIGHUP as a child of a terminal has it, also under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("number", STOP_SIGNALS)
async def test_a_signal_ends_the_wait_for_an_api_server_that_is_away(tmp_path: Path, number: signal.Signals) -> None:
    corefile = tmp_path / "Corefile"
    away = "kubernetes cluster.local {\n endpoint http://127.0.0.1:9\n startup_timeout 1h\n}"
    corefile.write_text(f".:0 {{\n bind 127.0.0.1\n{away}\n}}\n")
    said: list[str] = []
    before = signal.getsignal(number)

    async def interrupt() -> None:
        while signal.getsignal(number) is before:  # noqa: ASYNC110 - nobody tells of it; it would end the tests
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        os.kill(os.getpid(), number)

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(interrupt())
        await serve.serve(str(corefile), dns_port=0, say=said.append)
    assert said == []


async def test_ready_is_said_as_soon_as_it_is() -> None:
    class Server:
        is_synced = False

    said: list[str] = []
    for is_stopped in (True, False):
        server, stop = Server(), asyncio.Event()

        def say(line: str, server: Server = server, stop: asyncio.Event = stop, is_stopped: bool = is_stopped) -> None:
            said.append(line)
            asyncio.get_running_loop().call_soon(
                stop.set if is_stopped else partial(setattr, server, "is_synced", True)
            )

        async with asyncio.timeout(60):
            await serve.say_ready(server, say, stop)  # type: ignore[arg-type]  # all it looks at
    assert said == [serve.WAITING, serve.WAITING, "ready"]


async def test_what_keeps_the_server_from_starting_is_raised(tmp_path: Path) -> None:
    corefile = tmp_path / "Corefile"
    corefile.write_text(".:0 {\n bind no-such-device\n}\n")
    pidfile = tmp_path / "pid"
    pidfile.write_text("of the one that runs")
    with pytest.raises(InputError, match="no interface 'no-such-device'"):
        await serve.serve(str(corefile), dns_port=0, say=print, pidfile=str(pidfile))
    assert pidfile.read_text() == "of the one that runs"


@pytest.mark.parametrize("successor", ["", "123\n"])
async def test_the_file_with_the_processs_id_is_there_while_it_listens(tmp_path: Path, successor: str) -> None:
    corefile, pidfile = tmp_path / "Corefile", tmp_path / "pid"
    corefile.write_text(ANSWERS)

    def say(text: str) -> None:
        if text == "ready":
            assert pidfile.read_text() == f"{os.getpid()}\n"
            if successor:
                pidfile.write_text(successor)
            os.kill(os.getpid(), signal.SIGTERM)

    async with asyncio.timeout(60):
        await serve.serve(str(corefile), dns_port=0, say=say, pidfile=str(pidfile))
    assert (pidfile.read_text() if pidfile.exists() else "") == successor


@pytest.mark.usefixtures("hangup")
async def test_a_hangup_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop = stop_event()
    wanted = reload_event(stop)
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(60):
        await stop.wait()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert not wanted.is_set()


ANSWERS = ".:0 {\n bind 127.0.0.1\n whoami\n}\n"
REFUSES = "elsewhere.test:0 {\n bind 127.0.0.1\n whoami\n}\n"


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("number", RELOAD_SIGNALS)
async def test_a_signal_reloads_the_corefile(tmp_path: Path, number: signal.Signals) -> None:
    """Other answers on the same sockets; what cannot be used is logged and changes nothing."""
    corefile = tmp_path / "Corefile"
    corefile.write_text(ANSWERS)
    read = partial(read_corefile, str(corefile), BY_NAME, dns_port=0)
    server = DnsServer(read().checked())
    await server.start()
    try:
        async with asyncio.timeout(60), serve.reloading(server, reload_event(asyncio.Event()), read):
            (address,) = server.addresses
            with Udp(address[1]) as client, capture_logs() as logs:

                async def reloaded(text: str) -> tuple[str, str]:
                    """The answer afterwards, and why it was not reloaded."""
                    corefile.write_text(text)
                    os.kill(os.getpid(), number)
                    await until(lambda: bool(logs))
                    entry = logs.pop()
                    return rcode(await client.ask(packet("a.test"))), str(entry.get("reason", ""))

                assert await reloaded(REFUSES) == ("REFUSED", "")
                assert await reloaded(ANSWERS) == ("NOERROR", "")
                answer, reason = await reloaded("a {\n nonsense\n}\n")
                assert (answer, f"{corefile}:2: unknown directive" in reason) == ("NOERROR", True)
                answer, reason = await reloaded(ANSWERS.replace("127.0.0.1", "192.0.2.1"))
                assert (answer, "cannot listen on 192.0.2.1:0" in reason) == ("NOERROR", True)
                answer, reason = await reloaded(ANSWERS.replace("whoami", "whoami\n health 192.0.2.1:0"))
                assert (answer, "cannot listen on 192.0.2.1:0" in reason) == ("NOERROR", True)
                assert server.failed_reloads == 3
                corefile.unlink()
                os.kill(os.getpid(), number)
                await until(lambda: bool(logs))
                assert "cannot be read" in logs.pop()["reason"]
                assert await reloaded(REFUSES) == ("REFUSED", "")
            assert server.addresses == [address]
    finally:
        await server.stop()


async def test_what_was_loaded_is_exempt_from_garbage_collection(tmp_path: Path) -> None:
    corefile = tmp_path / "Corefile"
    corefile.write_text(".:0 {\n bind 127.0.0.1\n whoami\n}\n")
    gc.unfreeze()
    thresholds = gc.get_threshold()
    gc.set_threshold(700)

    def say(line: str) -> None:
        if line == "ready":
            asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGTERM)

    try:
        async with asyncio.timeout(60):
            await serve.serve(str(corefile), dns_port=0, say=say)
        assert gc.isenabled()
        assert gc.get_threshold()[0] > 700
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


async def test_queries_are_led_past_the_service_only_while_the_cache_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = 0
    with socket.create_server(("127.0.0.1", 0)) as some:
        port = some.getsockname()[1]
    (tmp_path / "Corefile").write_text(f".:{port} {{\n bind 127.0.0.1\n whoami\n}}\n")
    listening: list[bool] = []

    class Kernel:
        """Of nft, that has no such table."""

        @staticmethod
        async def check(_: str) -> str:
            return "No such file or directory"

        @staticmethod
        async def apply(_: str) -> None:
            with socket.socket() as client:
                listening.append(client.connect_ex(("127.0.0.1", port)) == 0)

    monkeypatch.setattr(upkeep, "nft", Kernel)
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if text == "ready":
            assert listening == [True]
            os.kill(os.getpid(), signal.SIGTERM)

    local = NodeLocal(("127.0.0.1",), interface="", ports=(port,))
    async with asyncio.timeout(60):
        await serve.serve(str(tmp_path / "Corefile"), dns_port=0, say=say, node_local=local)
    assert said[-1] == "ready"
    assert listening == [True, True]
