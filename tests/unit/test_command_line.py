"""Texts of the command line that are no values, and what the process asks of the system."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
from functools import partial
from pathlib import Path

import pytest

from kdns import app, flags, up
from kdns.aio.process import raise_open_files_limit
from kdns.corefile.address import HostPort
from kdns.corefile.lexer import Token
from kdns.errors import CorefileError, InputError
from kdns.plugins.options import duration_s


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:0", HostPort("127.0.0.1", 0)),
        ("[::1]:65535", HostPort("::1", 65535)),
        ("localhost:1053", HostPort("127.0.0.1", 1053)),
        ("127.0.0.1:65536", None),
        ("127.0.0.1:" + "9" * 5000, None),
        ("127.0.0.1:٣", None),
        ("127.0.0.1", None),
        (":53", None),
    ],
)
def test_host_and_port(text: str, expected: HostPort | None) -> None:
    if expected:
        assert flags.host_port("--dns", text) == expected
    else:
        with pytest.raises(InputError, match=r"^--dns .*wanted HOST:PORT"):
            flags.host_port("--dns", text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("10.96.0.0/29", ""),
        ("10.96.0.0/16, fd00::/64", ""),
        ("fd00::/112,10.96.0.0/12", ""),
        ("10.96.0.0/30", "too small; wanted networks of at least 8 addresses"),
        ("10.96.0.0/16,fd00::/127", "too small"),
        ("fd00::/48", "too large; wanted an IPv6 network of /64 or longer"),
        ("10.96.0.0/16,10.97.0.0/16", "wanted at most one network of each IP family"),
        ("10.96.0.0/16,fd00::/112,10.97.0.0/16", "wanted at most one network of each IP family"),
        ("10.96.0.1/16", "has host bits set; wanted CIDR[,CIDR]"),
        ("", "wanted CIDR[,CIDR], such as 10.96.0.0/16"),
    ],
)
def test_service_ranges(text: str, problem: str) -> None:
    if problem:
        with pytest.raises(InputError, match=rf"^--service-cidr .*{re.escape(problem)}"):
            flags.service_networks("--service-cidr", text)
    else:
        assert [str(network) for network in flags.service_networks("--service-cidr", text)] == text.split(
            ", " if ", " in text else ","
        )


def test_a_token_file_is_text(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"tokens: not text; wanted one token a line$"):
        up.read_tokens(path)
    path.write_text("# ours\n\n one \ntwo\n")
    assert up.read_tokens(path) == ("one", "two")


def test_as_many_files_as_the_process_may_open() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    try:
        raise_open_files_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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
        await app.serve(str(corefile), dns_port=0, say=said.append)
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
            await app.say_ready(server, say, stop)  # type: ignore[arg-type]  # all it looks at
    assert said == [app.WAITING, app.WAITING, "ready"]


async def test_what_keeps_the_server_from_starting_is_raised(tmp_path: Path) -> None:
    corefile = tmp_path / "Corefile"
    corefile.write_text(".:0 {\n bind no-such-device\n}\n")
    with pytest.raises(InputError, match="no interface 'no-such-device'"):
        await app.serve(str(corefile), dns_port=0, say=print)


def test_a_duration_of_many_digits_is_refused() -> None:
    with pytest.raises(CorefileError, match="not a duration"):
        duration_s(Token("Corefile", 1, "9" * 5000 + "s"))
