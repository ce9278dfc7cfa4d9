"""Which addresses `bind` means, and what is said of those that cannot be had."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any, Self

import pyroute2
import pytest
from structlog.testing import capture_logs

from kdns.aio.admin import start_site
from kdns.aio.dnsserver import DnsServer
from kdns.aio.interfaces import interface_addresses
from kdns.corefile.parse import parse
from kdns.errors import CorefileError, ListenError
from kdns.plugins.registry import configure


class Netlink:
    """Answers with these entries; without any it cannot be opened."""

    entries: tuple[dict[str, Any], ...] = ()

    async def __aenter__(self) -> Self:
        if not self.entries:
            raise PermissionError("no netlink here")
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def get_addr(self) -> AsyncIterator[dict[str, Any]]:
        async def each() -> AsyncIterator[dict[str, Any]]:
            for entry in self.entries:
                yield entry

        return each()


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ((), []),
        (({"index": 1, "address": "10.0.0.1", "local": "10.0.0.1"},), ["10.0.0.1"]),
        (({"index": 1, "address": "10.0.0.2", "local": "10.0.0.1"},), ["10.0.0.1"]),  # a tunnel to 10.0.0.2
        (({"index": 1, "address": "fd00::1"}, {"index": 1, "local": "10.0.0.1"}), ["10.0.0.1", "fd00::1"]),
        (({"index": 1, "address": "fe80::1"}, {"index": 1}), []),
    ],
)
async def test_the_machines_addresses(
    entries: tuple[dict[str, Any], ...], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Netlink, "entries", entries)
    monkeypatch.setattr(pyroute2, "AsyncIPRoute", Netlink)
    assert [one.address for one in await interface_addresses()] == expected


async def test_bind_never_falls_back_to_every_address() -> None:
    server = DnsServer(configure(parse(".:0 {\n bind 127.0.0.1 {\n except 127.0.0.1\n }\n}\n")))
    try:
        with pytest.raises(CorefileError, match=r"^Corefile:1: bind: `except` leaves no address to listen on$"):
            await server.start()
    finally:
        await server.stop()
    assert server.addresses == []


WANTED = ", which the block at Corefile:1 listens on; wanted: `bind` with addresses in both, or in neither"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            ".:1053 {\nbind lo\n}\n.:1053 {\nbind 127.0.0.1\n}",
            "Corefile:4: . on 127.0.0.1, port 1053, is already served by the block at Corefile:1",
        ),
        (
            ".:1053 {\n}\na:1053 {\nbind lo\n}",
            "Corefile:3: port 1053 cannot be had on 127.0.0.1 beside every address" + WANTED,
        ),
        (
            "a:1053 {\nbind 127.0.0.1\n}\n.:1053 {\nbind 0.0.0.0\n}",
            "Corefile:4: port 1053 cannot be had on 0.0.0.0 beside 127.0.0.1" + WANTED,
        ),
        (".:1053 {\nbind lo\n}\na:1053 {\nbind 127.0.0.1\n}", ""),
        (".:1053 {\n}\na:1054 {\nbind 127.0.0.1\n}", ""),
        (".:1053 {\nbind 0.0.0.0\n}\na:1053 {\nbind ::1\n}", ""),
        (".:0 {\nbind lo\n}\n.:0 {\nbind 127.0.0.1\n}\n.:0 {\n}", ""),
    ],
)
async def test_two_blocks_do_not_want_the_same_place(text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [{"index": socket.if_nametoindex("lo"), "local": address} for address in ("127.0.0.1", "::1")]
    monkeypatch.setattr(Netlink, "entries", tuple(entries))
    monkeypatch.setattr(pyroute2, "AsyncIPRoute", Netlink)
    server = DnsServer(configure(parse(text)))
    if message:
        with pytest.raises(CorefileError) as caught:
            await server._build()  # noqa: SLF001 - what comes before the sockets
        assert str(caught.value) == message
    else:
        await server._build()  # noqa: SLF001


async def test_a_site_tells_its_log_of_bytes_that_are_no_http() -> None:
    site = await start_site("127.0.0.1", 0, {})
    with capture_logs() as logs:
        reader, writer = await asyncio.open_connection(*site.address)
        writer.write(b"GET / HTTP/9.9 x\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()
        await site.close()
    assert [(each["event"], each["log_level"]) for each in logs] == [("request cannot be read", "info")]


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("203.0.113.1", r"cannot listen on 203\.0\.113\.1:9153: Cannot assign requested address"),
        ("2001:db8::1", r"cannot listen on \[2001:db8::1\]:9153: (Cannot assign requested|Address family not supp).*"),
        ("no-such-host.invalid", r"cannot listen on no-such-host\.invalid:9153: [A-Z](?!nknown error).*"),
    ],
)
async def test_a_site_that_cannot_listen_says_why(host: str, message: str) -> None:
    with pytest.raises(ListenError, match=f"^{message}$"):
        await start_site(host, 9153, {})
