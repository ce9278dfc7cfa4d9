"""DNS over TLS, HTTPS and QUIC, asked by kdig, curl and by clients that break the rules."""

import asyncio
import shutil
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import h2.connection
import h2.events
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from dns_client import framed, packet, rcode
from dns_live import dns_server
from encrypted_server import Encrypted, doq_client, encrypted
from fake_api import until
from fake_upstream import fake_server

from kdns.dnsserver.doh.exchange import MEDIA_TYPE
from kdns.dnsserver.io.encrypted import quic
from kdns.errors import CorefileError
from kdns.runtime.connections import ConnectionKind, Connections, PartOfConnections
from kdns.serverblocks.listener_options import DEFAULTS

QUERY = packet("a.test", number=0)


async def output(*argv: str) -> str:
    if not shutil.which(argv[0]):
        pytest.skip(f"{argv[0]} is not here: tests/install-debian-packages says how to get it")
    program = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(60):
        out, _ = await program.communicate()
    return out.decode(errors="replace")


@pytest.mark.parametrize(
    ("scheme", "option", "session"),
    [
        ("tls", "+tls", "TLS session (TLS1.3)"),
        ("https", "+https", "HTTP session (HTTP/2-POST)"),
        ("https", "+https-get", "HTTP session (HTTP/2-GET)"),
        ("quic", "+quic", "QUIC session (QUICv1)"),
    ],
)
async def test_kdig(tmp_path: Path, scheme: str, option: str, session: str) -> None:
    async with encrypted(tmp_path) as made:
        at = ("kdig", "@127.0.0.1", "-p", str(made.port(scheme)), f"+tls-ca={made.ca}", "+retry=0")
        text = await output(*at, "+tls-hostname=localhost", option, "a.test", "A")
        assert session in text, text
        assert "status: NOERROR" in text
        assert "127.0.0.1" in text
        refused = await output(*at, "+tls-hostname=elsewhere.test", option, "a.test", "A")
        assert "status: NOERROR" not in refused
        server = next(server for server in made.server.servers if server.label.startswith(scheme))
        partitions = [
            (partition.transport, sum(times for _, times in partition.totals()))
            for partition in server.table.partitions.values()
        ]
        assert partitions == [("quic" if scheme == "quic" else "tcp", 1)]


@pytest.mark.parametrize("version", ["--http2", "--http1.1"])
async def test_curl(tmp_path: Path, version: str) -> None:
    query, long = tmp_path / "query", tmp_path / "long"
    query.write_bytes(QUERY)
    long.write_bytes(bytes(70_000))
    async with encrypted(tmp_path) as made:
        url = f"https://localhost:{made.port('https')}/dns-query"

        async def status(*options: str, path: str = "") -> str:
            base = (
                "curl",
                "-s",
                version,
                "--cacert",
                str(made.cert),
                "--max-time",
                "30",
                "-o",
                str(tmp_path / "answer"),
            )
            return (await output(*base, "-w", "\n%{http_code} %{content_type}", *options, url + path)).strip()

        typed = ("-H", f"content-type: {MEDIA_TYPE}")
        assert await status(*typed, "--data-binary", f"@{query}") == f"200 {MEDIA_TYPE}"
        assert rcode((tmp_path / "answer").read_bytes()) == "NOERROR"
        assert await status(path="?dns=AAABAAABAAAAAAAAAWEEdGVzdAAAAQAB") == f"200 {MEDIA_TYPE}"
        for expected, options in (
            ("415", ("-H", "content-type: text/plain", "--data-binary", f"@{query}")),
            ("413", (*typed, "--data-binary", f"@{long}")),
            ("405", ("-X", "DELETE")),
            ("405", ("--head",)),
            ("400", (*typed, "--data-binary", "short")),
            ("400", ()),
        ):
            assert (await status(*options)).split()[0] == expected, options
        assert (await status(path="/x")).split()[0] == "404"
        assert made.seen("https_responses") == {200: 2, 415: 1, 413: 1, 405: 2, 400: 2, 404: 1}


def client_context(made: Encrypted, *alpn: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(made.ca))
    context.set_alpn_protocols(list(alpn))
    return context


@asynccontextmanager
async def stream(made: Encrypted, alpn: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection of TLS; what is waited for in it comes within a minute."""
    port = made.port("tls" if alpn == "dot" else "https")
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(made, alpn))
    async with asyncio.timeout(60):
        yield reader, writer
    writer.close()


async def ends(reader: asyncio.StreamReader) -> None:
    """Waits until the server closes the connection."""
    with suppress(ConnectionResetError):
        while await reader.read(65536):
            pass


def h2_client(queries: int = 0) -> tuple[h2.connection.H2Connection, bytes]:
    """A client of HTTP/2, and its first bytes: the preface and so many requests."""
    client = h2.connection.H2Connection()
    client.initiate_connection()
    for _ in range(queries):
        h2_ask(client)
    return client, client.data_to_send()


def h2_ask(client: h2.connection.H2Connection) -> None:
    number = client.get_next_available_stream_id()
    fields = [(":method", "POST"), (":path", "/dns-query"), (":scheme", "https"), (":authority", "x")]
    client.send_headers(number, [*fields, ("content-type", MEDIA_TYPE)])
    client.send_data(number, QUERY, end_stream=True)


async def test_requests_are_answered_beside_each_other_over_http2(tmp_path: Path) -> None:
    """More answers than the client has room for wait until it has read some."""
    client, greeting = h2_client()
    count, asked, answered = 300, 0, 0
    async with encrypted(tmp_path) as made, stream(made, "h2") as (reader, writer):
        writer.write(greeting)
        while answered < count:
            while asked < count and client.open_outbound_streams < 50:
                h2_ask(client)
                asked += 1
            writer.write(client.data_to_send())
            for event in client.receive_data(await reader.read(65536)):
                if isinstance(event, h2.events.DataReceived):
                    client.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
                answered += isinstance(event, h2.events.StreamEnded)
        assert made.seen("https_responses") == {200: count}


async def test_the_last_answers_over_http2_come_before_the_goodbye(tmp_path: Path) -> None:
    """Of a connection whose `maxtcpqueries` are asked, although the answers wait for an upstream."""
    options = "timeouts {\nmaxtcpqueries 2\n}"
    async with (
        fake_server() as upstream,
        encrypted(tmp_path, options, f"forward . {upstream.spec.address}") as made,
        stream(made, "h2") as (reader, writer),
    ):
        client, sent = h2_client(2)
        writer.write(sent)
        events = client.receive_data(await reader.read(-1))
        assert {event.stream_id for event in events if isinstance(event, h2.events.StreamEnded)} == {1, 3}
        assert isinstance(events[-1], h2.events.ConnectionTerminated)
        assert (events[-1].error_code, events[-1].last_stream_id) == (0, 3)


async def test_a_server_that_stops_says_goodbye_over_http2(tmp_path: Path) -> None:
    client, sent = h2_client(1)
    async with encrypted(tmp_path) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port("https"), ssl=client_context(made, "h2"))
        writer.write(sent)
        while not any(isinstance(event, h2.events.StreamEnded) for event in client.receive_data(await reader.read(1))):
            pass
    (goodbye,) = client.receive_data(await reader.read(-1))
    writer.close()
    assert isinstance(goodbye, h2.events.ConnectionTerminated)
    assert (goodbye.error_code, goodbye.last_stream_id) == (0, 1)


def responses_by_record(made: Encrypted, count: int) -> list[int]:
    """How many responses of HTTP/2 end in each record of TLS, where all are asked for at once."""
    with (
        socket.create_connection(("127.0.0.1", made.port("https")), timeout=60) as plain,
        client_context(made, "h2").wrap_socket(plain, server_hostname="localhost") as sock,
    ):
        client, sent = h2_client(count)
        sock.sendall(sent)
        ended: list[int] = []
        while sum(ended) < count:  # each call of recv() returns one record at most
            events = client.receive_data(sock.recv(65536))
            ended.append(sum(isinstance(event, h2.events.StreamEnded) for event in events))
        return ended


@pytest.mark.parametrize("alpn", ["h2", "dot"])
async def test_who_leaves_before_the_answers_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, alpn: str
) -> None:
    count = 50
    sent = h2_client(count)[1] if alpn == "h2" else framed(QUERY) * count
    async with encrypted(tmp_path) as made:
        port = made.port("https" if alpn == "h2" else "tls")
        with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
            context = client_context(made, alpn)
            sock = await asyncio.to_thread(context.wrap_socket, plain, server_hostname="localhost")
            sock.sendall(sent)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        server = next(server for server in made.server.servers if server.label.endswith(f":{port}"))
        await until(
            lambda: any(times for partition in server.table.partitions.values() for _, times in partition.totals())
        )
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_each_response_over_http2_is_a_record_of_tls(tmp_path: Path) -> None:
    """dnsperf loses the body of every second response that comes in one read."""
    async with encrypted(tmp_path) as made:
        ended = await asyncio.to_thread(responses_by_record, made, 20)
        assert max(ended) == 1


@pytest.mark.parametrize(
    ("alpn", "sent"),
    [
        ("http/1.1", b"POST /dns-query HTTP/1.1\r\nhost: x\r\n"),
        ("http/1.1", b"POST /dns-query HTTP/1.1\r\nhost: x\r\ncontent-length: 30\r\n\r\nshort"),
        ("h2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0" + b"\0\0\1\0"),
        ("h2", b""),
        ("dot", b"\0\x20incomplete"),
    ],
)
async def test_who_is_slow_loses_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alpn: str, sent: bytes
) -> None:
    slow = replace(DEFAULTS, idle_s=0.2, read_s=0.2, write_s=0.2)
    monkeypatch.setattr("kdns.serverblocks.listener_options.DEFAULTS", slow)
    async with encrypted(tmp_path) as made, stream(made, alpn) as (reader, writer):
        writer.write(sent)
        await ends(reader)


@pytest.mark.parametrize(
    ("alpn", "sent"),
    [
        ("http/1.1", b"nonsense\r\n\r\n"),
        ("http/1.1", b"GET /dns-query HTTP/1.1\r\nx: " + bytes(200_000) + b"\r\n\r\n"),
        ("h2", b"nonsense" * 10),
        ("h2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0" + b"\0\0\1\0\0\0\0\0\1\0"),
    ],
)
async def test_what_is_no_http_ends_the_connection(tmp_path: Path, alpn: str, sent: bytes) -> None:
    async with encrypted(tmp_path) as made:
        async with stream(made, alpn) as (reader, writer):
            writer.write(sent)
            await ends(reader)
        assert made.seen("https_responses") == {}


async def test_a_connection_too_many_takes_the_place_of_an_idle_one(tmp_path: Path) -> None:
    async with (
        encrypted(tmp_path, "https {\n max_connections 2\n}") as made,
        stream(made, "h2") as (reader, _),
        stream(made, "h2"),
        stream(made, "h2"),
    ):
        await ends(reader)


async def test_certificates_are_checked_when_the_server_starts(tmp_path: Path) -> None:
    """None asks a terminal for the password of a key."""
    made = Encrypted(tmp_path, "whoami")
    key = load_pem_private_key(made.key.read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    whole, locked_away = (
        made.corefile(),
        r"no certificate and key in .* and .*locked.pem: expected .* without a password",
    )
    for text, message in (
        (whole.replace(str(made.key), "none.pem"), "no certificate and key in .* and none.pem: No such file"),
        (whole.replace(str(made.key), str(locked)), locked_away),
        (whole.replace("tls://.:0 https://.:0 ", "").replace(str(made.key), str(locked)), locked_away),
        (whole.replace(f"{made.key}\n", f"{made.key} none.pem\n"), "no certificates in none.pem: No such file"),
        (
            whole.replace(f"{made.key}\n", f"{made.key} {made.key}\n"),
            r"no certificates in .*: expected certificates \(PEM\)",
        ),
        (
            whole.replace(f"{made.key}\n", f"{made.key} {made.cert} {{\nclient_auth require\n}}\n"),
            "client_auth with certificates: clients have no certificates over QUIC",
        ),
    ):
        with pytest.raises(CorefileError, match=f"Corefile:3: tls: {message}"):
            async with dns_server(text):
                pass


def test_one_connection_counts_in_two_places_or_in_none() -> None:
    process = Connections(ConnectionKind.DNS, 3)
    first, second = PartOfConnections(process, 2, "a"), PartOfConnections(process, 2, "b")
    gone: list[str] = []
    for place, name in ((first, "a"), (first, "b"), (first, "c"), (second, "d"), (second, "e")):
        assert place.add(name, "127.0.0.1", partial(gone.append, name))
    assert gone == ["a", "b"]
    assert (len(process), len(first), len(second)) == (3, 2, 2)
    for place, name in ((first, "b"), (first, "c"), (second, "d"), (second, "e")):
        place.remove(name)
    assert (len(process), len(first), len(second)) == (0, 0, 0)


@pytest.mark.parametrize("message", [packet("a.test", number=7), b"\0\0nonsense"])
async def test_what_is_no_doq_ends_the_connection(tmp_path: Path, message: bytes) -> None:
    async with encrypted(tmp_path) as made:
        async with asyncio.timeout(60), doq_client(made) as client:
            client.ask(0, QUERY)
            await until(lambda: 0 in client.ended)
            assert rcode(client.received[0][2:]) == "NOERROR"
            client.ask(4, message)
            await client.wait_closed()
            assert client.received == {0: client.received[0]}
        await until(lambda: made.seen("quic_responses") == {0: 1})


async def test_a_client_proves_its_address_where_many_handshakes_are_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quic, "MAX_UNVERIFIED", 0)
    async with encrypted(tmp_path) as made:
        async with asyncio.timeout(60), doq_client(made) as client:
            client.ask(0, QUERY)
            await until(lambda: 0 in client.ended)
            assert client.retried()
        await until(lambda: made.seen("quic_responses") == {0: 1})


async def test_a_connection_that_begins_too_many_queries_is_ended(tmp_path: Path) -> None:
    async with encrypted(tmp_path, "quic {\n max_streams 10\n}") as made:
        async with asyncio.timeout(60), doq_client(made) as client:
            for stream in range(0, 4 * 11, 4):
                client.begin(stream)
            await client.wait_closed()
        assert made.seen("quic_responses") == {}


async def test_a_connection_has_query_after_query_with_one_stream_at_a_time(tmp_path: Path) -> None:
    async with encrypted(tmp_path, "quic {\n max_streams 1\n}") as made, doq_client(made) as client:
        for stream in range(0, 4 * 20, 4):
            client.ask(stream, QUERY)
            await until(lambda: len(client.ended) == 1 + stream // 4)  # noqa: B023 - awaited at once
        assert made.seen("quic_responses") == {0: 20}


async def test_a_query_that_arrives_too_slowly_ends_its_connection(tmp_path: Path) -> None:
    """Also one whose other streams are in use, so that it is never idle."""
    options = "timeouts {\n read 1s\n}"
    async with encrypted(tmp_path, options) as made, asyncio.timeout(60), doq_client(made) as client:
        client.begin(0)
        closed = asyncio.create_task(client.wait_closed())
        for stream in count(4, 4):
            client.ask(stream, QUERY)
            await until(lambda: closed.done() or stream in client.ended)  # noqa: B023 - awaited at once
            if closed.done():
                break


@pytest.mark.parametrize(("pieces", "is_ended"), [(quic.MAX_GAPS // 2, False), (2 * quic.MAX_GAPS, True)])
async def test_a_connection_with_too_many_gaps_is_ended(tmp_path: Path, pieces: int, is_ended: bool) -> None:
    async with encrypted(tmp_path) as made:
        async with asyncio.timeout(60), doq_client(made) as client:
            client.scatter(0, pieces)
            if is_ended:
                await client.wait_closed()
            else:
                client.ask(4, QUERY)
                await until(lambda: 4 in client.ended)
        assert made.seen("quic_responses") == ({} if is_ended else {0: 1})
