"""A server whose configuration is swapped again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from dns_live import api_of, cluster, page, serving
from fake_api import until

from kdns.corefile.parse import parse
from kdns.dnsserver.chain import Plugin
from kdns.dnsserver.directive import Setup
from kdns.dnsserver.io import reload
from kdns.dnsserver.io.corefile import Corefile
from kdns.dnsserver.io.reload import Reloader
from kdns.dnsserver.io.server import DnsServer
from kdns.errors import InputError, ListenError
from kdns.plugins import errors
from kdns.plugins.directives import configure
from kdns.runtime import process


async def settled(look: Callable[[], tuple[object, ...]]) -> tuple[object, ...]:
    """What is seen fifty times on end: watches begin and lists end for some time after a start."""
    seen = [look()]
    while len(seen) < 50:
        await asyncio.sleep(0.005)
        now = look()
        seen = [*seen, now] if now == seen[-1] else [now]
    return seen[-1]


async def test_repeated_swaps_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do those that are refused, whatever for."""

    def corefile(options: str = "", more: str = "") -> str:
        stanza = f"kubernetes cluster.local {{\nendpoint {api.url}\n{options}\n}}"
        return f".:0 {{\nbind 127.0.0.1\nerrors\nprometheus 127.0.0.1:0\nhealth 127.0.0.1:0\n{stanza}\n{more}\n}}\n"

    def left() -> tuple[object, ...]:
        tasks = len(asyncio.all_tasks())
        return tasks, server.is_synced, [len(each.listeners) for each in server.clusters], server.site_addresses.keys()

    def exposing(config: Any, setup: Setup) -> Plugin:
        setup.expose("kdns_test", "A family.", ("nr",), lambda: [(("1",), 1.0)], counter=False)
        return errors.build(config, setup)

    monkeypatch.setattr(errors, "DIRECTIVE", replace(errors.DIRECTIVE, build=exposing))
    async with api_of(cluster()) as api, serving(api.url, monkeypatch) as other:
        del other  # it shortens the waits of a follower
        server = DnsServer(configure(parse(corefile())))
        await server.start()
        try:
            before = await settled(left)
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


async def test_what_a_new_cluster_holds_is_exempt_from_garbage_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is listed, which may be later than the reload; a reload without a new cluster exempts nothing."""

    def corefile(text: str, sha512: str) -> Corefile:
        return Corefile(sha512, configure(parse(f".:0 {{\nbind 127.0.0.1\n{text}\n}}\n")))

    frozen: list[bool] = []
    async with api_of(cluster()) as api, serving(api.url, monkeypatch) as server:
        for module in (process, reload):
            monkeypatch.setattr(module, "exempt_from_gc", lambda: frozen.append(server.is_synced))
        asked = asyncio.Event()
        stanza = f"kubernetes a.test {{\nendpoint {api.url}\nlabels a=b\nstartup_timeout 0s\n}}"
        corefiles = [corefile(f"{stanza}\nerrors", "again"), corefile(stanza, "first")]
        task = asyncio.create_task(Reloader(server, corefiles.pop, asked).run())
        try:
            asked.set()
            await until(lambda: frozen[-1:] == [True])
            followed, times = server.clusters, len(frozen)
            asked.set()
            await until(lambda: server.sha512 == "again")
            assert (server.clusters, len(frozen)) == (followed, times)
        finally:
            task.cancel()
