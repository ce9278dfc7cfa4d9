"""`loadbalance weighted`, `errors` and `log` of a running server: files that change, and lines that are written."""

import socket
from collections import Counter
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from decoded_message import Decoded, decode
from dns_client import Tcp, Udp
from dns_live import api_of, dns_server
from fake_api import Cluster, meta, until
from wholefiles import replace

from kdns.cluster.source import Source
from kdns.dns.message import query
from kdns.dnsserver.io.server import DnsServer
from kdns.errors import CorefileError
from kdns.plugins.sources.kubernetes.records import ClusterNames

NAME = "web.shop.svc.cluster.local."
A = 1


@asynccontextmanager
async def served(*blocks: str) -> AsyncIterator[DnsServer]:
    """A server with these blocks, the first of them with the cluster's zone."""
    cluster = Cluster()
    cluster.put("namespaces", meta("shop"))
    ips = ["10.96.0.1", "10.96.0.2", "10.96.0.3"]
    cluster.put("services", meta("web", "shop") | {"spec": {"clusterIP": ips[0], "clusterIPs": ips}})
    async with api_of(cluster) as api, dns_server("\n".join(blocks), default_source=Source(endpoint=api.url)) as server:
        await until(lambda: server.is_synced)
        yield server


def block(directives: str) -> str:
    return f".:0 {{\nbind 127.0.0.1\nkubernetes cluster.local\n{directives}\n}}"


async def ask(server: DnsServer, name: str = NAME, *, times: int = 1, tcp: bool = False) -> list[Decoded]:
    host, port = server.addresses[0]
    if tcp:
        async with await Tcp.connect(port, host) as stream:
            return [decode(await stream.ask(query(name, A))) for _ in range(times)]
    with Udp(port, host) as udp:
        return [decode(await udp.ask(query(name, A))) for _ in range(times)]


def firsts(answers: list[Decoded]) -> Counter[str]:
    addresses = [answer.answer[0].rdata[0] for answer in answers]
    return Counter(str(ip_address(address)) for address in addresses if isinstance(address, bytes))


async def test_weights_follow_the_file(tmp_path: Path, logs: list[MutableMapping[str, Any]]) -> None:
    path = tmp_path / "weights"
    path.write_text(f"{NAME}\n10.96.0.1 4\n10.96.0.2 2\n")
    async with served(block(f"loadbalance weighted {path} {{\nreload 10ms\n}}")) as server:
        assert firsts(await ask(server, times=14)) == {"10.96.0.1": 8, "10.96.0.2": 4, "10.96.0.3": 2}

        replace(path, f"{NAME}\n10.96.0.3 8\n")
        await until(lambda: any(line["event"] == "watched file read" for line in logs))
        assert firsts(await ask(server, times=10)) == {"10.96.0.3": 8, "10.96.0.1": 1, "10.96.0.2": 1}

        replace(path, f"{NAME}\n10.96.0.3 many\n")
        await until(lambda: any(line["event"] == "watched file unusable" for line in logs))
        path.unlink()
        await until(lambda: sum(line["event"] == "watched file unusable" for line in logs) == 2)
        assert firsts(await ask(server, times=10)) == {"10.96.0.3": 8, "10.96.0.1": 1, "10.96.0.2": 1}
        problems = [line["error"] for line in logs if line["event"] == "watched file unusable"]
        assert problems == [
            f"{path}:2: expected a whole number from 1 to 255, got 'many'",
            f"{path}: the weight file cannot be read: No such file or directory",
        ]

        replace(path, "")
        await until(lambda: sum(line["event"] == "watched file read" for line in logs) == 2)
        assert firsts(await ask(server, times=9)) == {"10.96.0.1": 3, "10.96.0.2": 3, "10.96.0.3": 3}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "Corefile:4: loadbalance: {path}: the weight file cannot be read: No such file or directory"),
        (
            b"\xff",
            "Corefile:4: loadbalance: {path}: the weight file cannot be read: 'utf-8' codec can't decode byte 0xff",
        ),
        (b"10.0.0.1 1\n", "{path}:1: expected a name before the first address (at '10.0.0.1')"),
    ],
)
async def test_a_broken_weight_file_ends_the_start(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "weights"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CorefileError) as caught:
        async with served(block(f"loadbalance weighted {path}")):
            pass
    assert str(caught.value).startswith(said.format(path=path))


async def test_an_api_that_nothing_names_is_told_at_the_directive_that_follows_it() -> None:
    with pytest.raises(CorefileError, match=r"^Corefile:3: kubernetes: /none: "):
        async with dns_server(block(""), default_source=Source(service_account="/none")):
            pass


@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
@pytest.mark.parametrize(
    ("directives", "has_stack"), [("", False), ("errors", False), ("errors {\nstacktrace\n}", True)]
)
async def test_an_unexpected_failure_is_one_query_and_one_line(
    monkeypatch: pytest.MonkeyPatch, logs: list[MutableMapping[str, Any]], directives: str, has_stack: bool, tcp: bool
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    async with served(block(directives)) as server:
        with monkeypatch.context() as patched:
            patched.setattr(ClusterNames, "_response", broken)
            (answer,) = await ask(server, tcp=tcp)
        assert answer.rcode == "SERVFAIL"
        (line,) = [line for line in logs if line["event"] == "query failed unexpectedly"]
        assert (line["error"], "exc_info" in line) == ("RuntimeError: a defect", has_stack)
        assert "\n" not in "".join(str(value) for value in line.values())
        assert line["packet"].endswith("00010001")
        (answer,) = await ask(server, tcp=tcp)
        assert answer.rcode == "NOERROR"
        (requests,) = server.requests.values()
        assert sum(request.panics for request in requests) == 1


@pytest.mark.parametrize("tcp", [False, True])
async def test_an_answer_that_takes_too_long_is_cancelled(*, tcp: bool) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        async with served(block(f"cancel 20ms\nforward . 127.0.0.1:{port} {{\nprefer_udp\n}}")) as server:
            answers = await ask(server, "example.org.", times=2, tcp=tcp)
    assert [answer.rcode for answer in answers] == ["SERVFAIL"] * 2


async def test_errors_still_counted_are_written_when_the_server_stops(capsys: pytest.CaptureFixture[str]) -> None:
    async with served(block("errors {\nconsolidate 1h directive\n}")) as server:
        await ask(server, "example.org.", times=3)
        assert "[ERROR]" not in capsys.readouterr().out
    assert "[ERROR] plugin/errors: 3 errors like 'directive' occurred in last 1h0m0s\n" in capsys.readouterr().out


async def test_sites_say_how_it_is() -> None:
    sites = "health 127.0.0.1:0\nready 127.0.0.1:0\nprometheus 127.0.0.1:0 {\nruntime_metrics\n}"
    async with served(block(f"{sites}\nerrors\nloadbalance")) as server, aiohttp.ClientSession() as session:
        await ask(server, "example.org.")
        pages = {}
        for path, (host, port) in server.site_addresses.items():
            async with session.get(f"http://{host}:{port}{path}") as response:
                pages[path] = (response.status, await response.text())
    assert (pages["/health"], pages["/ready"]) == ((200, "OK"), (200, "OK"))
    for line in ('kdns_objects{kind="Service",', 'plugin="",rcode="SERVFAIL"', "python_gc_objects_collected_total{"):
        assert line in pages["/metrics"][1], line
