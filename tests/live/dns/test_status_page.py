"""The status page: what it shows of queries and changes, what it explains, and whom it refuses."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path

import aiohttp
import pytest
from browser import PROGRAM, Tab, browser
from click.testing import CliRunner
from dns_client import Udp
from dns_live import api_of, cluster, page, port_of, serving
from fake_api import Cluster, service, until
from fake_upstream import fake_server

from kdns.cli.commands.explain import explain
from kdns.dns.names import labels_of
from kdns.dns.query import query_for
from kdns.dns.types import A
from kdns.dnsserver.io.burst.sampling import MOST
from kdns.dnsserver.io.server import DnsServer
from kdns.status import services
from kdns.status.io import services as service_pages
from kdns.status.io import site

STATUS = "status 127.0.0.1:0"
STORM = "api.example.com.default.svc.cluster.local."
DEADLINE_S = 60.0


@asynccontextmanager
async def served(monkeypatch: pytest.MonkeyPatch, more: str = STATUS) -> AsyncIterator[tuple[Cluster, DnsServer]]:
    monkeypatch.setattr(site, "SAMPLE_S", 0.01)
    monkeypatch.setattr(site, "EVERY_S", 0.2)
    known = cluster()
    async with api_of(known) as api, serving(api.url, monkeypatch, more=more) as server:
        yield known, server


async def queried(server: DnsServer, names: tuple[str, ...], times: int) -> None:
    """Asks for each name, and waits for each answer."""
    with Udp(port_of(server)) as client:
        for name in names * times:
            await client.ask(query_for(labels_of(name), A).packet)
            await asyncio.sleep(0.001)


async def fetched(server: DnsServer, path: str, **headers: str) -> tuple[int, str, Mapping[str, str]]:
    host, port = server.site_addresses["/status"]
    async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}{path}", headers=headers) as got:
        return got.status, await got.text(), got.headers


def url_of(server: DnsServer) -> str:
    host, port = server.site_addresses["/status"]
    return f"http://{host}:{port}/status"


async def shows(server: DnsServer, pattern: str, path: str = "/status") -> str:
    """The page, when it has the pattern."""
    deadline_s = asyncio.get_running_loop().time() + DEADLINE_S
    while not re.search(pattern, text := (await fetched(server, path))[1], re.DOTALL):
        assert asyncio.get_running_loop().time() < deadline_s, f"{pattern} is not in {text}"
        await asyncio.sleep(0.05)
    return text


async def test_it_shows_who_asks_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as (_, server):
        await queried(server, ("s1.default.svc.cluster.local.", "s1.default.svc.cluster.local.", STORM), 200)
        await shows(server, r'<th scope="row">s1\.default\.svc\.cluster\.local\.</th><td>A</td><td>NOERROR</td>')
        await shows(server, r'<th scope="row">127\.0\.0\.1</th>')
        await shows(server, r"\d\d% of the queries are names .* search lists make of api\.example\.com\.")
        await shows(server, r'role="img" aria-label="Responses by code, .*NOERROR.*NXDOMAIN')
        await shows(server, r'<th scope="row">services</th><td>31</td><td>yes</td>')
        sums = sum(request.durations.counts[0] for requests in server.requests.values() for request in requests)
        assert sums >= 1
        metrics = (await page(server, "/metrics"))[1]
        counted = sum(
            float(line.rsplit(" ", 1)[1])
            for line in metrics.splitlines()
            if line.startswith("coredns_dns_requests_total{") and 'type="A"' in line
        )
        assert counted == 600  # what is looked at is counted once


PEERS = ("s1.default.svc.cluster.local.", "s2.default.svc.cluster.local.", "example.org.")


async def test_of_more_queries_a_fair_sample_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twice as many as are in a sample, which begins and ends anywhere between the bursts."""
    times = 2 * MOST // len(PEERS)
    async with served(monkeypatch) as (_, server):
        monkeypatch.setattr(site, "SAMPLE_S", 60.0)
        await until(lambda: server.sampling.most == MOST)
        await asyncio.sleep(0.1)  # the last short sample has ended
        server.sampling.take()
        await asked_in_bursts(server, PEERS, times)
        seen, sample = server.sampling.take()
    assert (seen, len(sample)) == (3 * times, MOST)
    parts = Counter(packet[12:20] for packet, _, _ in sample).values()
    assert all(part / MOST == pytest.approx(1 / 3, rel=0.1) for part in parts), parts


async def asked_in_bursts(server: DnsServer, names: tuple[str, ...], times: int) -> None:
    """Asks for all names at once, and waits for their answers and a while longer, again and again."""
    packets = [query_for(labels_of(name), A).packet for name in names]
    with Udp(port_of(server)) as client:
        for number in range(times):
            for packet in packets:
                client.socket.send(packet)
            for _ in packets:
                await client.receive()
            if number % 100 < 40:
                await asyncio.sleep(0.001)


async def test_text_of_clients_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as (_, server):
        await queried(server, ("<script>alert(1)</script>.default.svc.cluster.local.",), 200)
        await shows(server, r"&lt;script&gt;alert.{1,2}1.{1,2}&lt;/script&gt;\.default")
        assert "<script>alert" not in (await page(server, "/status"))[1]
        _, text, _ = await fetched(server, "/status/explain?name=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
        assert "<script>alert" not in text


async def test_it_names_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as (_, server):
        assert "has said nothing" not in (await page(server, "/status"))[1]
        for cluster_ in server.clusters:
            for stats in cluster_.stats.kinds.values():
                stats.last_contact_s = -1e6
        await shows(server, r"The API http://[^ ]* has said nothing about services for \d+ d\.")


async def test_it_explains_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as (known, server):
        status, text, headers = await fetched(server, "/status/explain?name=s1&output=text")
        assert (status, headers["Kdns-Answered"]) == (200, "true")
        assert "Service default/s1 has cluster IP 10.96.0.2" in text
        _, text, _ = await fetched(server, "/status/explain?name=s1&output=json")
        assert json.loads(text)["records"] == ["s1.default.svc.cluster.local. 5 IN A 10.96.0.2"]
        known.delete("services", ("default", "s1"))
        await until(lambda: ("default", "s1") not in server.clusters[0].state.services)
        _, text, headers = await fetched(server, "/status/explain?name=s1")
        assert headers["Content-Type"].startswith("text/html")
        assert re.search(r"Service default/s1 was deleted \d+ s ago; clients may hold its addresses for 5 s", text)
        status, text, _ = await fetched(server, "/status/explain?name=s1&type=NONSENSE")
        assert (status, 'role="alert"' in text) == (400, True)
        assert (await fetched(server, "/status/explain?output=text"))[:2] == (400, "the name is missing\n")


async def test_services_are_listed_and_one_is_shown_with_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as (known, server):
        known.put("services", service("idle", "10.96.0.200"))
        known.put("services", service('<i>"', "10.96.0.201"))
        await until(lambda: ("default", '<i>"') in server.clusters[0].state.services)
        status, text, _ = await fetched(server, "/status/services?filter=DEFAULT/S1")
        assert (status, text.count('<th scope="row">')) == (200, 11)
        assert '<a href="/status/service?namespace=default&amp;name=s10">default/s10</a></th><td>ClusterIP</td>' in text
        text = await shows(
            server, "default/idle</a></th>.*<td>it has no endpoints</td>", "/status/services?problems=only"
        )
        assert "<i>" not in text
        await shows(server, '<h2 id="problems">.*default/idle')
        _, text, _ = await fetched(server, "/status/service?namespace=default&name=s1")
        name = (
            r'<a href="/status/explain\?name=s1\.default\.svc\.cluster\.local\.&amp;type=A">s1\.default[^<]*</a></th>'
        )
        assert re.search(f"{name}<td>A</td><td>10.96.0.2</td><td>Service default/s1 has cluster IP", text)
        assert '<th scope="row">10.244.0.2</th><td>ready</td>' in text
        status, text, _ = await fetched(server, "/status/service?namespace=a&name=%3Ci%3E")
        assert (status, "There is no Service &#39;&lt;i&gt;&#39;" in text) == (404, True)
        assert (await fetched(server, "/status/services?cluster=7"))[0] == 404


async def test_the_age_of_a_cached_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_server() as upstream:
        more = f"{STATUS}\ncache 30\nforward . 127.0.0.1:{upstream.port}"
        async with served(monkeypatch, more) as (_, server):
            asked = "/status/explain?name=www.example.org.&output=text"
            assert f"127.0.0.1:{upstream.port} would be asked" in (await fetched(server, asked))[1]
            await queried(server, ("www.example.org.",), 1)
            assert re.search(r"`cache` has had this answer for \d+ s", (await fetched(server, asked))[1])
            await shows(server, rf'<th scope="row">127\.0\.0\.1:{upstream.port}</th><td>1</td>')
            assert len(upstream.received) == 1


async def test_explaining_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as (_, server):
        before = len(server.servers[0].table)
        for name in ("s1", "nothing", "10.96.0.2", "_http._tcp.s1"):
            await fetched(server, f"/status/explain?name={name}&output=text")
        assert len(server.servers[0].table) == before
        metrics = (await page(server, "/metrics"))[1]
        assert "coredns_dns_requests_total{" not in metrics


SITES: tuple[tuple[dict[str, str], int], ...] = (
    ({"Host": "127.0.0.1:1"}, 200),
    ({"Host": "localhost:8053"}, 200),
    ({"Host": "[::1]:8053"}, 200),
    ({"Host": "rebound.example"}, 403),
    ({"Sec-Fetch-Site": "same-origin"}, 200),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "same-site"}, 403),
)


async def test_other_sites_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as (_, server):
        for (headers, status), path in product(SITES, ("/status", "/status/explain?name=s1", "/status/status.js")):
            found, _, got = await fetched(server, path, **headers)
            assert found == status, (headers, path)
            assert "default-src 'none'" in got["Content-Security-Policy"]
            assert got["Cross-Origin-Resource-Policy"] == "same-origin"


async def test_the_terminal_asks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as (_, server):
        host, port = server.site_addresses["/status"]

        def asked(*words: str) -> tuple[int, str]:
            result = CliRunner().invoke(explain, ["--admin", f"{host}:{port}", *words])
            return result.exit_code, result.output

        code, text = await asyncio.to_thread(asked, "s1")
        assert (code, "Service default/s1 has cluster IP" in text) == (0, True)
        code, text = await asyncio.to_thread(asked, "s1x", "-o", "json")
        assert (code, json.loads(text)["verdict"]) == (1, "NXDOMAIN")
        code, text = await asyncio.to_thread(asked, "s1", "NONSENSE")
        assert (code, "got 'NONSENSE'" in text) == (2, True)
        assert (await asyncio.to_thread(asked, "--pod", "default/web", "s1"))[0] == 2
    code, text = await asyncio.to_thread(asked, "s1")
    assert code == 2
    assert "the address is that of the directive `status`" in text


ACTIVE = """
(({id, textContent, tagName, ariaLabel}) => id || ariaLabel || textContent.trim() || tagName)(document.activeElement)
"""


@pytest.mark.skipif(PROGRAM is None, reason="Debian's package chromium is not installed")
async def test_a_browser_renews_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with served(monkeypatch) as (_, server), browser(tmp_path) as tab:
        await tab.open(url_of(server))
        assert "s2.default" not in await tab.value("document.body.textContent")
        await queried(server, ("s2.default.svc.cluster.local.",), 300)
        await tab.until("document.body.textContent.includes('s2.default.svc.cluster.local.')")
        assert await tab.value("document.querySelectorAll('svg polyline').length") >= 3
        await tab.value("document.getElementById('pause').focus()")
        await tab.press(" ")
        assert await tab.value("document.getElementById('pause').getAttribute('aria-pressed')") == "true"


@pytest.mark.skipif(PROGRAM is None, reason="Debian's package chromium is not installed")
async def test_a_keyboard_and_a_screen_reader_suffice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with served(monkeypatch) as (_, server), browser(tmp_path) as tab:
        await queried(server, ("s2.default.svc.cluster.local.",), 200)
        await shows(server, r'<th scope="row">s2\.default')
        await tab.open(url_of(server))
        reached = []
        for _step in range(36):
            await tab.press("Tab")
            reached.append(await tab.value(ACTIVE))
        order = ["Skip to the content", "Status", "Services", "pause", "Served", "Reloads"]
        order += ["name", "type", "namespace", "Explain", "Names"]
        assert [name for name in reached if name in order][: len(order)] == order
        named = await read_aloud(tab)
        assert ("textbox", "Name or address") in named
        assert ("table", "Objects of the cluster") in named
        await tab.value("document.getElementById('name').focus()")
        await tab.type("s2x")
        await tab.press("Enter")
        await tab.until("document.querySelector('pre[role=status]') !== null")
        assert 'there is no Service "s2x"' in await tab.value("document.querySelector('pre').textContent")
        assert await tab.value("document.getElementById('name').value") == "s2x"


async def read_aloud(tab: Tab) -> list[tuple[str, str]]:
    """Roles and names of what a screen reader has; all that need a name have one."""
    nodes = (await tab.do("Accessibility.getFullAXTree"))["nodes"]
    named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
    unnamed = {"button", "textbox", "link", "table", "heading", "image", "region", "navigation"}
    assert [role for role, name in named if role in unnamed and not name] == []
    return named


@pytest.mark.skipif(PROGRAM is None, reason="Debian's package chromium is not installed")
async def test_a_service_is_found_by_keyboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (services, service_pages):
        monkeypatch.setattr(module, "PAGE_ROWS", 4)
    async with served(monkeypatch) as (_, server), browser(tmp_path) as tab:
        await tab.open(f"{url_of(server)}/services")
        await tab.value("document.getElementById('filter').focus()")
        await tab.type("default/s1")
        await tab.press("Enter")
        await tab.until("location.search === '?filter=default%2Fs1' && document.querySelector('.pages') !== null")
        assert await tab.value("document.querySelector('.pages [aria-current=page]').textContent") == "1"
        named = await read_aloud(tab)
        assert ("table", "Services 1 to 4 of 11") in named
        assert ("navigation", "Pages of the table") in named
        reached: list[str] = []
        while not reached or reached[-1] != "default/s10":
            assert len(reached) < 20
            await tab.press("Tab")
            reached.append(await tab.value(ACTIVE))
        await tab.press("Enter")
        await tab.until("document.title === 'kdns: default/s10' && document.readyState === 'complete'")
        assert ("table", "Names and their answers") in await read_aloud(tab)


@pytest.mark.skipif(PROGRAM is None, reason="Debian's package chromium is not installed")
async def test_a_lost_server_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with browser(tmp_path) as tab:
        async with served(monkeypatch) as (_, server):
            await tab.open(url_of(server))
        await tab.until("document.body.hasAttribute('data-lost')")
