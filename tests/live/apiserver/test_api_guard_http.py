"""Who may talk to the REST server, where it may listen, and what it shows of what is not yet kept."""

import asyncio
import json
import re
import ssl

import pytest
from rest_client import SERVICES, Client, new_api, service, serving
from structlog.testing import capture_logs

from kdns.controlplane.apimachinery.errors import internal
from kdns.controlplane.server.access import ADMIN
from kdns.controlplane.server.io import server as rest
from kdns.controlplane.server.io.authentication import RestConfig
from kdns.errors import InputError, ListenError


async def test_tokens() -> None:
    rows: list[tuple[str, dict[str, str], int]] = [
        ("/api/v1/namespaces", {}, 401),
        ("/api/v1/namespaces", {"Authorization": "Bearer third"}, 401),
        ("/api/v1/namespaces", {"Authorization": "Bearer \xe9"}, 401),
        ("/api/v1/namespaces", {"Authorization": "Bearer "}, 401),
        ("/api/v1/namespaces", {"Authorization": "Basic second"}, 401),
        ("/api/v1/namespaces", {"Authorization": "Bearer second"}, 200),
        ("/api/v1/namespaces", {"Authorization": "bearer first", "Origin": "http://a"}, 200),
        ("/healthz", {}, 200),
    ]
    async with serving(tokens={"first": ADMIN, "second": ADMIN}) as client:
        for path, headers, code in rows:
            assert (await client("GET", path, **headers))[0] == code, (path, headers)


@pytest.mark.parametrize(
    ("config", "missing"),
    [
        (RestConfig("0.0.0.0", 0), "set --token-file or --client-ca-file and --tls-cert"),
        (RestConfig("0.0.0.0", 0, tokens={"t": ADMIN}), "--api 0.0.0.0: set --tls-cert too"),
        (RestConfig("::", 0, ssl_context=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)), "set --token-file or --client-ca"),
        (RestConfig(port=0, tokens={"good": ADMIN, "": ADMIN}), "empty token"),
    ],
)
async def test_open_addresses_need_tokens_and_tls(config: RestConfig, missing: str) -> None:
    with pytest.raises(InputError, match=missing):
        await rest.start(new_api(), config)


async def test_a_taken_port_is_named(client: Client) -> None:
    host, port = client.server.address
    with pytest.raises(ListenError, match=f"{host}:{port}"):
        await rest.start(new_api(), RestConfig(port=port))


async def test_what_is_shown_is_durable() -> None:
    gate, written = asyncio.Event(), asyncio.Event()

    async def durable() -> None:
        written.set()
        await gate.wait()

    async with asyncio.timeout(60), serving(durable) as client, client.session.get(f"{SERVICES}?watch=1") as watch:
        replies = [asyncio.create_task(client("POST", SERVICES, service()))]
        await written.wait()
        paths = (f"{SERVICES}/web", SERVICES, f"{SERVICES}/none")
        replies += [asyncio.create_task(client("GET", path)) for path in paths]
        line = asyncio.create_task(watch.content.readline())
        assert (await client("GET", "/version"))[0] == 200
        assert not line.done()
        assert not any(reply.done() for reply in replies[:3])
        gate.set()
        assert [(await reply)[0] for reply in replies] == [201, 200, 200, 404]
        assert json.loads(await line)["type"] == "ADDED"


FULL = "Internal error occurred: disk full"
EXCLUDED = """[+]ping ok
[+]storage excluded: ok
warn: some health checks cannot be excluded: no matches for "a","b"
readyz check passed
"""


async def test_what_cannot_be_kept_is_not_shown() -> None:
    failing = False

    async def durable() -> None:
        if failing:
            raise internal("disk full")

    async with asyncio.timeout(60), serving(durable) as client, client.session.get(f"{SERVICES}?watch=1") as watch:
        assert (await client("GET", "/readyz"))[0] == 200
        failing = True
        for method, path in (("POST", SERVICES), ("GET", f"{SERVICES}/web"), ("GET", SERVICES), ("GET", "/readyz")):
            status, _, response = await client(method, path, service() if method == "POST" else None)
            assert (status, "disk full" in await response.text()) == (500, True), (method, path)
        rows = [
            ("/livez", 200, "ok"),
            ("/readyz", 500, f"[+]ping ok\n[-]storage failed: {FULL}\nreadyz check failed\n"),
            ("/readyz?exclude=storage", 200, "ok"),
            ("/readyz?verbose&exclude=storage&exclude=b&exclude=a", 200, EXCLUDED),
            ("/readyz/ping", 200, "ok"),
            ("/readyz/storage", 500, f"internal server error: {FULL}\n"),
            ("/readyz/nothing", 404, "404 page not found\n"),
            ("/readyz/ping/nothing", 404, "404 page not found\n"),
            ("/livez?verbose", 200, "[+]ping ok\nlivez check passed\n"),
        ]
        for path, status, text in rows:
            assert (await client("GET", path))[:2] == (status, text), path
        lines = (await client("GET", "/metrics/slis"))[1].splitlines()
        assert 'kubernetes_healthcheck{name="storage",type="readyz"} 0.0' in lines
        assert 'kubernetes_healthcheck{name="ping",type="livez"} 1.0' in lines
        assert 'kubernetes_healthchecks_total{name="storage",status="success",type="readyz"} 1.0' in lines
        assert 'kubernetes_healthchecks_total{name="storage",status="error",type="readyz"} 3.0' in lines
        (line,) = [json.loads(line) async for line in watch.content]
        assert (line["type"], line["object"]["code"]) == ("ERROR", 500)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\nContent-Type: a/b\r\nContent-Type: c/d\r\n\r\n", "Duplicate 'Content-Type' header found."),
        (b"GET / HTTP/9.9 x\r\n\r\n", "Bad status line"),
    ],
)
async def test_what_is_no_http_is_a_line_in_the_log(
    sent: bytes, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    server = await rest.start(new_api(), RestConfig(port=0))
    with capture_logs() as logs:
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(sent)
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()
        await server.close()
    assert [(log["event"], log["log_level"]) for log in logs] == [("malformed request", "info")]
    assert reason in logs[0]["reason"]
    assert capfd.readouterr().err == ""


BEHIND = b"GET /api/v1/nodes HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
# what is sent, with another request behind it; the statuses that come before the connection ends, None if it does not
FRAMINGS = {
    "chunks": ("HTTP/1.1", b"Transfer-Encoding: chunked\r\n", None),
    "chunks in capitals": ("HTTP/1.1", b"Transfer-Encoding: Chunked\r\n", None),
    "chunks of HTTP/1.0": ("HTTP/1.0", b"Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n", [501]),
    "two codings": ("HTTP/1.1", b"Transfer-Encoding: gzip, chunked\r\n", [501]),
    "chunks and a length": ("HTTP/1.1", b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", [400]),
    "a length as a name with a blank": ("HTTP/1.1", b"Transfer-Encoding : chunked\r\n", [400]),
    "two lengths": ("HTTP/1.1", b"Content-Length: 5\r\nContent-Length: 0\r\n", [400]),
}


@pytest.mark.parametrize("about", FRAMINGS)
async def test_what_is_behind_an_ambiguous_body_is_no_request(about: str) -> None:
    version, fields, ended = FRAMINGS[about]
    server = await rest.start(new_api(), RestConfig(port=0))
    reader, writer = await asyncio.open_connection(*server.address)
    head = b"POST /api/v1/nodes " + version.encode() + b"\r\nHost: 127.0.0.1\r\n" + fields
    writer.write(head + b"\r\n0\r\n\r\n" + BEHIND)
    async with asyncio.timeout(60):
        if ended is None:
            await reader.readuntil(b"HTTP/1.1 ")
            await reader.readuntil(b"HTTP/1.1 200 ")
        else:
            received = await reader.read(-1)
            assert [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d+)", received)] == ended
    writer.close()
    await server.close()
