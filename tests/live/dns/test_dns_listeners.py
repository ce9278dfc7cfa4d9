"""Real sockets, real packets: a whole DNS server over a fake API."""

import asyncio
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace

import dnslib
import pytest
from configured import configured
from dns_client import Tcp, Udp, answers, framed, packet, rcode, read
from dns_live import MANY, api_of, cluster, dns_server, page, port_of, serving
from fake_api import FakeApi

from kdns.dnsserver.io.server import DnsServer
from kdns.errors import ListenError
from kdns.serverblocks.listener_options import DEFAULTS

NAME = "s1.default.svc.cluster.local"
SOONER_S = 8.0
"""Before a connection would be closed without what a test says: that is after 10 s."""
MANY_NAME = "many.default.svc.cluster.local"


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with api_of(cluster()) as api:
        yield api


@pytest.fixture
async def server(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DnsServer]:
    async with serving(api.url, monkeypatch) as server:
        yield server


QUESTIONS: dict[str, tuple[str, str, str, list[str]]] = {
    "cluster IP": (NAME, "A", "NOERROR", ["10.96.0.2"]),
    "no IPv6": (NAME, "AAAA", "NOERROR", []),
    "search path": (f"{NAME}.default.svc.cluster.local", "A", "NXDOMAIN", []),
    "endpoint": (f"10-244-0-2.{NAME}", "A", "NOERROR", ["10.244.0.2"]),
    "reverse": ("2.0.96.10.in-addr.arpa", "PTR", "NOERROR", [f"{NAME}."]),
    "version": ("dns-version.cluster.local", "TXT", "NOERROR", ['"1.1.0"']),
    "another zone": ("example.org", "A", "SERVFAIL", []),
}


@pytest.mark.parametrize("case", QUESTIONS)
async def test_answers_are_the_same_on_every_transport_and_from_the_table(server: DnsServer, case: str) -> None:
    name, qtype, code, rdata = QUESTIONS[case]
    with Udp(port_of(server)) as udp:
        async with await Tcp.connect(port_of(server)) as stream:
            for payload_bytes in (0, 1232):
                for number in (1, 2, 3):  # the first one is compiled, the others come from the table
                    query = packet(name, qtype, number=number, payload_bytes=payload_bytes)
                    for response in (await udp.ask(query), await stream.ask(query)):
                        assert (rcode(response), answers(response)) == (code, rdata)
                        assert response[:2] == query[:2]
                        assert bool(read(response).ar) == bool(payload_bytes)


async def test_the_case_of_the_question_comes_back(server: DnsServer) -> None:
    with Udp(port_of(server)) as udp:
        for spelled in (NAME, NAME.upper(), "S1.deFAULT.sVc.CLUSTER.local", NAME.title()):
            message = read(await udp.ask(packet(spelled)))
            assert str(message.q.qname) == f"{spelled}."
            assert str(message.rr[0].rname) == f"{spelled}."


HEADER = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
QUESTION = packet(NAME)[12:]
ODD: dict[str, tuple[bytes, str]] = {
    "only a header": (HEADER, "FORMERR"),
    "no message": (HEADER[:5] + b"\x00" + HEADER[6:], "FORMERR"),
    "a pointer as a message": (HEADER + b"\xc0\x0c\x00\x01\x00\x01", "FORMERR"),
    "NOTIFY": (HEADER[:2] + b"\x20\x00" + HEADER[4:] + QUESTION, "NOTIMP"),
    "UPDATE": (HEADER[:2] + b"\x28\x00" + HEADER[4:] + QUESTION, "NOTIMP"),
    "class CH": (HEADER + QUESTION[:-1] + b"\x03", "REFUSED"),
    "AXFR": (packet("cluster.local", "AXFR"), "REFUSED"),
    "EDNS version 1": (packet(NAME, payload_bytes=1232, version=1), "BADVERS"),
    "EDNS version 0": (packet(NAME, payload_bytes=1232), "NOERROR"),
    "EDNS, DNSSEC OK": (packet(NAME, payload_bytes=1232, do=True), "NOERROR"),
}


@pytest.mark.parametrize("case", ODD)
async def test_odd_queries(server: DnsServer, case: str) -> None:
    query, wanted = ODD[case]
    with Udp(port_of(server)) as udp:
        response = await udp.ask(query)
    message = read(response)
    opt = next((record for record in message.ar if record.rtype == dnslib.QTYPE.OPT), None)
    extended = opt.ttl >> 24 if opt else 0
    code = "BADVERS" if (extended, message.header.rcode) == (1, 0) else rcode(response)
    assert code == wanted
    assert response[:2] == query[:2]
    assert (opt is not None) == ("EDNS" in case)
    if opt:
        assert opt.rclass == 1232
        assert bool(opt.ttl & 0x8000) == ("DNSSEC" in case)


@pytest.mark.parametrize(
    "query", [b"", b"\x12", HEADER[:11], HEADER[:2] + b"\x81\x80" + HEADER[4:] + QUESTION, HEADER[:2] + b"\xff" * 40]
)
async def test_silence_for_answers_and_fragments(server: DnsServer, query: bytes) -> None:
    with Udp(port_of(server)) as udp:
        assert await udp.is_silent_about(query)


async def test_two_servers_cannot_be_made_to_talk_to_each_other(server: DnsServer) -> None:
    with Udp(port_of(server)) as udp:
        for query in (packet(NAME), packet("example.org"), HEADER, packet(NAME, payload_bytes=512, version=9)):
            assert await udp.is_silent_about(await udp.ask(query))


async def test_what_does_not_fit_is_cut_and_whole_over_tcp(server: DnsServer) -> None:
    with Udp(port_of(server)) as udp:
        for payload_bytes, limit in ((0, 512), (512, 512), (700, 700), (4096, 1232), (65535, 1232)):
            response = await udp.ask(packet(MANY_NAME, payload_bytes=payload_bytes))
            assert len(response) <= limit
            whole = limit == 1232
            assert read(response).header.tc == (not whole)
            assert (len(answers(response)) == MANY) == whole
    async with await Tcp.connect(port_of(server)) as stream:
        response = await stream.ask(packet(MANY_NAME))
    assert len(answers(response)) == MANY
    assert not read(response).header.tc


async def test_bufsize_is_the_limit_of_answers_over_udp(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(api.url, monkeypatch, more="bufsize 600") as server:
        with Udp(port_of(server)) as udp:
            response = await udp.ask(packet(MANY_NAME, payload_bytes=4096))
    assert 512 < len(response) <= 600
    assert read(response).header.tc


async def test_dig_asks_again_over_tcp(server: DnsServer) -> None:
    if not shutil.which("dig"):
        pytest.skip("dig is not installed (Debian package bind9-dnsutils)")
    argv = ["dig", "@127.0.0.1", "-p", str(port_of(server)), "+noedns", "+norecurse", "+tries=1", MANY_NAME, "A"]
    result = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=True, timeout=90)
    assert "Truncated, retrying in TCP mode" in result.stdout
    assert len(re.findall(r"\sIN\s+A\s+10\.245\.", result.stdout)) == MANY
    assert "status: NOERROR" in result.stdout
    warnings = re.findall(r"WARNING: (.*)", result.stdout)
    assert all(".local is reserved" in warning for warning in warnings), warnings


async def test_pipelined_queries_each_get_their_answer(server: DnsServer) -> None:
    async with await Tcp.connect(port_of(server)) as stream:
        await stream.send(b"".join(framed(packet(f"s{n}.default.svc.cluster.local", number=n)) for n in range(30)))
        got = {read(response).header.id: answers(response) for response in [await stream.receive() for _ in range(30)]}
    assert got == {number: [f"10.96.0.{number + 1}"] for number in range(30)}


@pytest.mark.parametrize("size", [1, 2, 3, 11])
async def test_a_message_may_arrive_in_any_pieces(server: DnsServer, size: int) -> None:
    raw = framed(packet(NAME, number=1)) + framed(packet(MANY_NAME, number=2))
    async with await Tcp.connect(port_of(server)) as stream:
        for start in range(0, len(raw), size):
            await stream.send(raw[start : start + size])
            await asyncio.sleep(0)
        assert answers(await stream.receive()) == ["10.96.0.2"]
        assert len(answers(await stream.receive())) == MANY


async def test_an_idle_connection_is_closed_and_a_used_one_is_not(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = replace(DEFAULTS, idle_s=2.0, read_s=2.0, write_s=2.0)
    monkeypatch.setattr("kdns.serverblocks.listener_options.DEFAULTS", limits)
    async with (
        serving(api.url, monkeypatch) as server,
        await Tcp.connect(port_of(server)) as used,
        await Tcp.connect(port_of(server)) as idle,
        asyncio.timeout(SOONER_S),
    ):
        closing = asyncio.create_task(idle.is_closed())
        while not closing.done():
            assert answers(await used.ask(packet(NAME))) == ["10.96.0.2"]
            await asyncio.sleep(0.02)
        assert await closing
        assert answers(await used.ask(packet(NAME))) == ["10.96.0.2"]


async def test_a_message_that_is_no_query_ends_the_connection(server: DnsServer) -> None:
    for junk in (b"\x12\x34", HEADER[:2] + b"\x80" + HEADER[3:] + QUESTION):
        async with await Tcp.connect(port_of(server)) as stream:
            await stream.send(framed(packet(NAME)) + framed(junk))
            assert answers(await stream.receive()) == ["10.96.0.2"]
            assert await stream.is_closed()


WITH_LABELS = {
    "coredns_build_info": {"version", "revision", "goversion"},
    "coredns_panics_total": set[str](),
    "coredns_plugin_enabled": {"server", "zone", "view", "name"},
    "coredns_dns_requests_total": {"server", "zone", "view", "proto", "family", "type"},
    "coredns_dns_responses_total": {"server", "zone", "view", "rcode", "plugin"},
    "coredns_dns_do_requests_total": {"server", "zone", "view"},
    "coredns_dns_request_duration_seconds_bucket": {"server", "zone", "view", "le"},
    "coredns_dns_request_duration_seconds_sum": {"server", "zone", "view"},
    "coredns_dns_request_size_bytes_bucket": {"server", "zone", "view", "proto", "le"},
    "coredns_dns_response_size_bytes_bucket": {"server", "zone", "view", "proto", "le"},
    "coredns_kubernetes_rest_client_request_duration_seconds_bucket": {"verb", "host", "le"},
    "coredns_kubernetes_rest_client_requests_total": {"code", "method", "host"},
}
"""CoreDNS's names and labels (plugin/metrics, plugin/kubernetes); of histograms one series is looked at."""
BUCKETS = {
    "coredns_dns_request_duration_seconds": [0.00025 * 2**k for k in range(16)],
    "coredns_dns_request_size_bytes": [0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16e3, 32e3, 48e3, 64e3],
}


def samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    """The lines of an exposition: name, labels, value."""
    matches = re.findall(r"^(\w+)(?:\{(.*)\})? ([^ ]+)$", text, re.MULTILINE)
    return [(name, dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)) for name, labels, value in matches]


async def test_metrics_have_the_names_and_labels_of_coredns(server: DnsServer) -> None:
    with Udp(port_of(server)) as udp:
        for _ in range(5):
            await udp.ask(packet(NAME))
        await udp.ask(packet(NAME, payload_bytes=1232, do=True))
        await udp.ask(packet(f"no.{NAME}"))
        await udp.ask(packet(NAME, "HTTPS"))
    async with await Tcp.connect(port_of(server)) as stream:
        await stream.ask(packet(NAME, "SRV"))
    found = samples((await page(server, "/metrics"))[1])
    for name, labels in WITH_LABELS.items():
        assert {frozenset(one) for known, one, _ in found if known == name} == {frozenset(labels)}, name
    for name, bounds in BUCKETS.items():
        rows = [(one, value) for known, one, value in found if known == f"{name}_bucket"]
        assert {float(one["le"]) for one, _ in rows} == {*bounds, float("inf")}, name
    label = f"dns://127.0.0.1:{port_of(server)}"
    base = {"server": label, "zone": ".", "view": ""}
    asked = {(one["proto"], one["type"]): value for name, one, value in found if name == "coredns_dns_requests_total"}
    assert asked == {("udp", "A"): 7, ("udp", "HTTPS"): 1, ("tcp", "SRV"): 1}
    given = {one["rcode"]: value for name, one, value in found if name == "coredns_dns_responses_total"}
    assert given == {"NOERROR": 8, "NXDOMAIN": 1}
    assert [value for name, one, value in found if name == "coredns_dns_do_requests_total" and one == base] == [1]
    assert {one["name"] for name, one, _ in found if name == "coredns_plugin_enabled"} == {
        "errors", "health", "kubernetes", "prometheus", "ready",
    }  # fmt: skip
    families = {one["family"] for name, one, _ in found if name == "coredns_dns_requests_total"}
    assert families == {"1"}


async def test_the_log_directive_writes_corednss_line(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(api.url, monkeypatch, more="log . {\nclass denial success\n}") as server:
        with Udp(port_of(server)) as udp:
            query = packet("S1.default.svc.cluster.local", number=16432, payload_bytes=4096)
            for _ in range(2):
                await udp.ask(query)
            await udp.ask(packet("no.default.svc.cluster.local", "AAAA", number=7))
            await udp.ask(packet("example.org", number=8))
            port = udp.socket.getsockname()[1]
    written = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
    lines = [line for line in written if line.startswith("[INFO] ")]
    one = re.escape(
        f'[INFO] 127.0.0.1:{port} - 16432 "A IN s1.default.svc.cluster.local. udp 57 false 4096" '
        "NOERROR qr,aa,rd 73 "  # the size as it was sent, with the OPT
    )
    other = re.escape(
        f'[INFO] 127.0.0.1:{port} - 7 "AAAA IN no.default.svc.cluster.local. udp 46 false 512" NXDOMAIN qr,aa,rd '
    )
    assert len(lines) == 3, lines  # names are in lower case, as CoreDNS writes them
    assert all(re.fullmatch(one + r"\d+\.\d+s", line) for line in lines[:2]), lines
    assert re.fullmatch(other + r"\d+ \d+\.\d+s", lines[2]), lines
    assert [line for line in written if line not in lines] == [
        "[ERROR] plugin/errors: 2 example.org. A: no directive has the answer"
    ]


async def test_other_server_blocks_answer_on_the_sockets_that_are_bound(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def corefile(options: str, zone: str = ".") -> str:
        stanza = f"kubernetes cluster.local {{\nendpoint {api.url}\n{options}\n}}"
        return f"{zone}:0 {{\nbind 127.0.0.1\nerrors\nprometheus 127.0.0.1:0\n{stanza}\n}}\n"

    async with serving(api.url, monkeypatch) as other:
        del other  # it shortens the waits of a follower
        async with dns_server(corefile("ttl 5")) as server:
            async with await Tcp.connect(port_of(server)) as stream:
                with Udp(port_of(server)) as udp:

                    async def ttls() -> set[int]:
                        packets = [await udp.ask(packet(NAME)) for _ in range(2)]
                        packets += [await stream.ask(packet(NAME)) for _ in range(2)]
                        return {record.ttl for response in packets for record in read(response).rr}

                    assert await ttls() == {5}
                    followed = server.clusters
                    await server.swap(configured(corefile("ttl 7")))
                    assert await ttls() == {7}
                    assert server.clusters == followed
                    await server.swap(configured(corefile("ttl 9\nnamespaces elsewhere")))
                    assert rcode(await udp.ask(packet(NAME))) == "NXDOMAIN"
                    with pytest.raises(ListenError, match=r"cannot listen on 192\.0\.2\.1:0"):
                        await server.swap(configured(corefile("ttl 1").replace("127.0.0.1", "192.0.2.1", 1)))
                    assert rcode(await udp.ask(packet(NAME))) == "NXDOMAIN"
                    await server.swap(configured(corefile("ttl 11\nlabels a=b")))
                    assert len(server.clusters) == 1
                    assert server.clusters != followed
            found = samples((await page(server, "/metrics"))[1])
            sent = sum(value for name, _, value in found if name == "coredns_dns_requests_total")
            assert sent == 10
