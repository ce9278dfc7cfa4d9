"""A server whose configuration is swapped again and again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from dns_live import api_of, cluster, page, serving
from fake_api import until

from kdns.aio.dns import setup as setups
from kdns.aio.dns.server import DnsServer
from kdns.corefile.parse import parse
from kdns.errors import InputError, ListenError
from kdns.plugins import health
from kdns.plugins.chain import Plugin
from kdns.plugins.directive import Setup
from kdns.plugins.directives import DIRECTIVES
from kdns.plugins.server_config import configure


async def test_repeated_swaps_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do those that are refused, whatever for."""

    def corefile(options: str = "", more: str = "") -> str:
        stanza = f"kubernetes cluster.local {{\nendpoint {api.url}\n{options}\n}}"
        return f".:0 {{\nbind 127.0.0.1\nerrors\nprometheus 127.0.0.1:0\nhealth 127.0.0.1:0\n{stanza}\n{more}\n}}\n"

    def left() -> tuple[object, ...]:
        tasks = len(asyncio.all_tasks())
        return tasks, server.is_synced, [len(each.listeners) for each in server.clusters], server.site_addresses.keys()

    def exposing(configs: tuple[Any, ...], setup: Setup) -> Plugin | None:
        setup.expose("kdns_test", "A family.", ("nr",), lambda: [(("1",), 1.0)], counter=False)
        return health.DIRECTIVE.build(configs, setup)

    rows = [replace(row, build=exposing) if row is health.DIRECTIVE else row for row in DIRECTIVES]
    monkeypatch.setattr(setups, "DIRECTIVES", rows)
    async with api_of(cluster()) as api, serving(api.url, monkeypatch) as other:
        del other  # it shortens the waits of a follower
        server = DnsServer(configure(parse(corefile())))
        await server.start()
        try:
            before = left()
            for number in range(5):
                await server.swap(configure(parse(corefile(f"ttl {number}"))))
                await server.swap(configure(parse(corefile())))
                for refused in (
                    corefile("labels a=b", "ready 192.0.2.1:0"),
                    corefile("labels a=b") + "a.test:0 {\nbind 192.0.2.1\n}\n",
                    corefile("tls /none /none /none"),
                    2 * corefile("labels a=b").replace(".:0", ".:53"),
                    corefile("labels a=b") + corefile().replace("bind 127.0.0.1", "bind no-such-device"),
                ):
                    with pytest.raises((InputError, ListenError)):
                        await server.swap(configure(parse(refused)))
            await until(lambda: left() == before)
            text = (await page(server, "/metrics"))[1]
            assert text.count('\nkdns_test{nr="1"} 1.0\n') == 1
        finally:
            await server.stop()
