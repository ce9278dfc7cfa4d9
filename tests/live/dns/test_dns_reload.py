"""A server whose configuration is swapped again and again."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from configured import configured
from dns_client import Udp, packet
from dns_live import api_of, cluster, dns_server, page, serving
from fake_api import until

from kdns.answers.chain import Plugin
from kdns.dnsserver.io import reload
from kdns.dnsserver.io import server as server_module
from kdns.dnsserver.io.corefile import Corefile
from kdns.dnsserver.io.reload import Reloader
from kdns.dnsserver.io.server import DnsServer
from kdns.dnsserver.io.world import BlockWorld
from kdns.errors import InputError, ListenError
from kdns.plugins.observers import errors
from kdns.runtime import process
from kdns.serverblocks.config import ServerConfig
from kdns.serverblocks.directive import World
from kdns.serverblocks.listener_options import DEFAULTS
from kdns.status.io.site import DnsStatus


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

    def exposing(config: Any, world: World) -> Plugin:
        world.expose("kdns_test", "A family.", ("nr",), lambda: [(("1",), 1.0)])
        return errors.Errors(config, world)

    monkeypatch.setattr(errors, "DIRECTIVE", replace(errors.DIRECTIVE, plugin=exposing))
    async with api_of(cluster()) as api, serving(api.url, monkeypatch) as other:
        del other  # it shortens the waits of a follower
        async with dns_server(corefile()) as server:
            before = await settled(left)
            for number in range(5):
                await server.swap(configured(corefile(f"ttl {number}")))
                await server.swap(configured(corefile()))
                for refused in (
                    corefile("labels a=b", "ready 192.0.2.1:0"),
                    corefile("labels a=b") + "a.test:0 {\nbind 192.0.2.1\n}\n",
                    corefile("tls /none /none /none"),
                    2 * corefile("labels a=b").replace(".:0", ".:53"),
                    corefile("labels a=b") + corefile().replace("bind 127.0.0.1", "bind no-such-device"),
                ):
                    with pytest.raises((InputError, ListenError)):
                        await server.swap(configured(refused))
            await until(lambda: left() == before)
            text = (await page(server, "/metrics"))[1]
            assert text.count('\nkdns_test{nr="1"} 1.0\n') == 1


async def test_a_reload_changes_the_options_of_an_address_that_stays_bound() -> None:
    def corefile(stanza: str) -> str:
        return f".:0 {{\nbind 127.0.0.1\nwhoami\n{stanza}\n}}\n"

    async with dns_server(corefile("timeouts {\nread 1s\n}\nhealth 127.0.0.1:0 {\nlameduck 5s\n}")) as server:
        (at_address,) = server.servers
        assert (at_address.options, server.lameduck_s) == (replace(DEFAULTS, read_s=1.0), 5.0)
        for stanza, options in (("timeouts {\nidle 2s\n}", replace(DEFAULTS, idle_s=2.0)), ("", DEFAULTS)):
            await server.swap(configured(corefile(stanza)))
            assert (server.servers, at_address.options, server.lameduck_s) == ([at_address], options, 0.0)


async def test_what_a_new_cluster_holds_is_exempt_from_garbage_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is listed, which may be later than the reload; a reload without a new cluster exempts nothing."""

    def corefile(text: str, sha512: str) -> Corefile:
        return Corefile(sha512, configured(f".:0 {{\nbind 127.0.0.1\n{text}\n}}\n"))

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


STANZAS = {
    "acl": "acl {\n allow net 127.0.0.0/8\n}",
    "any": "any",
    "auto": "auto f.test {\n directory FOLDER\n}",
    "autopath": "autopath @kubernetes",
    "bufsize": "bufsize 600",
    "cache": "cache",
    "cache that prefetches": "cache {\n serve_stale\n prefetch 1\n}",
    "cancel": "cancel",
    "chaos": "chaos",
    "debug": "debug",
    "dns64": "dns64",
    "dnssec": "dnssec d.test",
    "dnstap": "dnstap tcp://127.0.0.1:9 full",
    "errors": "errors",
    "file": "file FOLDER/db.f.test f.test\ntransfer {\n to *\n}",
    "forward": "forward . 127.0.0.1:9",
    "forward with a file": "forward . FOLDER/resolv.conf",
    "header": "header {\n response set ra\n}",
    "health": "health 127.0.0.1:0",
    "hosts": "hosts {\n 192.0.2.1 h.test\n fallthrough\n}",
    "hosts of a file": "hosts FOLDER/hosts {\n fallthrough\n}",
    "k8s_external": "k8s_external ext.test",
    "loadbalance": "loadbalance",
    "local": "local",
    "log": "log",
    "loop": "loop",
    "metadata": "metadata",
    "minimal": "minimal",
    "multisocket": "multisocket 2",
    "nothing": "",
    "nsid": "nsid",
    "pprof": "pprof 127.0.0.1:0",
    "prometheus": "prometheus 127.0.0.1:0",
    "ready": "ready 127.0.0.1:0",
    "records": "records {\n r.test. IN A 192.0.2.1\n}",
    "reload": "reload",
    "rewrite": "rewrite name a.test b.test",
    "rrl": "rrl . {\n responses-per-second 10\n}",
    "secondary": "secondary s.test {\n transfer from 127.0.0.1:9\n}",
    "status": "status 127.0.0.1:0",
    "template": 'template IN A t.test {\n answer "{{ .Name }} 60 IN A 192.0.2.1"\n}',
    "timeouts": "timeouts {\n read 1s\n}",
    "tsig": "tsig {\n secret a.test. NoTCJU+DMqFWywaPyxSijrDEA/eC3nK0xi3AMEZuPVk=\n require all\n}",
    "view": "view v {\n expr true\n}",
    "whoami": "whoami",
}
FILES = {
    "db.f.test": "$ORIGIN f.test.\n@ 60 IN SOA a b 1 2 3 4 5\n@ IN A 192.0.2.1\n",
    "hosts": "192.0.2.1 h.test\n",
    "resolv.conf": "nameserver 127.0.0.1\n",
}
NAMES = ("s1.default.svc.cluster.local", "s1.a.svc.cluster.local", "f.test", "h.test", "t.test", "r.test", "a.test")


async def test_nothing_of_old_blocks_lives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Reference counts have to free them: what was there after the start is exempt from garbage collection.

    The cluster is followed by the new blocks too.
    """

    def is_freed() -> bool:
        gc.collect()  # what later failures of upstreams left
        return not old & living.keys()

    def configs(*, changed: bool) -> tuple[ServerConfig, ...]:
        blocks = []
        for number, stanza in enumerate(STANZAS.values(), 1):
            other = "errors" if stanza != "errors" else "log"
            lines = f"bind 127.0.1.{number}\n{other if changed else stanza}\n{kubernetes}"
            blocks.append(f".:0 {{\n{lines.replace('FOLDER', str(tmp_path))}\n}}\n")
        return configured("".join(blocks))

    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    async with api_of(cluster()) as api, serving(api.url, monkeypatch):
        kubernetes = f"kubernetes cluster.local {{\nendpoint {api.url}\n}}"
        living: dict[weakref.ref[object], str] = {}

        class RecordedWorld(BlockWorld):
            def build(self) -> None:
                super().build()
                names = [type(plugin).__name__ for plugin in self.chain.plugins]
                for one in (self, *self.chain.plugins):
                    living[weakref.ref(one, living.pop)] = f"{type(one).__name__} of {names}"

        monkeypatch.setattr(server_module, "BlockWorld", RecordedWorld)
        server = DnsServer(configs(changed=False), status=DnsStatus)
        try:
            await server.start()
            await until(lambda: server.is_synced)
            gc.collect()
            gc.freeze()
            assert len(server.addresses) == len(STANZAS)
            for host, port in server.addresses:
                with Udp(port, host) as client:
                    for name in NAMES:
                        client.socket.send(packet(name))
                    await client.receive()
            old = set(living)
            assert len(old) >= 2 * len(STANZAS), "blocks, and the plugins of their cluster"
            await server.swap(configs(changed=True))
            with suppress(AssertionError):  # the next one names what lives
                await until(is_freed)
            assert not [living[one] for one in old & living.keys()]
        finally:
            await server.stop()
