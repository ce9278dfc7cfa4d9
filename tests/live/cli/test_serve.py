"""`kdns serve` from its start to its stop, without a cluster."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from kdns.apps import serve
from kdns.errors import InputError


async def test_a_signal_ends_the_wait_for_an_api_server_that_is_away(tmp_path: Path) -> None:
    corefile = tmp_path / "Corefile"
    away = "kubernetes cluster.local {\n endpoint http://127.0.0.1:9\n startup_timeout 1h\n}"
    corefile.write_text(f".:0 {{\n bind 127.0.0.1\n{away}\n}}\n")
    said: list[str] = []
    before = signal.getsignal(signal.SIGTERM)

    async def interrupt() -> None:
        while signal.getsignal(signal.SIGTERM) is before:  # noqa: ASYNC110 - nobody tells of it; it would end the tests
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        os.kill(os.getpid(), signal.SIGTERM)

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
    with pytest.raises(InputError, match="no interface 'no-such-device'"):
        await serve.serve(str(corefile), dns_port=0, say=print)
