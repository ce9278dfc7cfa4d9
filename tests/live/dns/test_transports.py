"""What a client gets over each transport: at once, after waiting, from a defect, of a zone, and at the last query."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import dns.edns
import dns.message
import dns.tsigkeyring
import h2.connection
import h2.events
import h11
import pytest
from dns_client import Udp, framed, packet, rcode, with_options
from encrypted_server import Encrypted, doq_client, encrypted
from fake_api import until
from fake_upstream import fake_server

from kdns.answers.padding import BLOCK_BYTES
from kdns.corefile.parse import parse
from kdns.dns.query import HEADER_BYTES
from kdns.dns.types import PADDING
from kdns.dns.wire import records
from kdns.dnsserver.doh.exchange import MEDIA_TYPE
from kdns.dnsserver.io.server import DnsServer
from kdns.plugins.directives import configure
from kdns.plugins.sources.forward.plugin import Forwarder
from kdns.plugins.sources.whoami import Whoami

Got: TypeAlias = list[str]
"""The rcodes of the messages that came before the end, and for an error of HTTP its status."""
Messages: TypeAlias = list[bytes]
"""The messages themselves, and for an error of HTTP its status."""
QUESTIONS: Final = 3
HEADERS: Final = [("content-type", MEDIA_TYPE), ("accept", MEDIA_TYPE)]


async def connected(port: int, made: Encrypted | None = None, *alpn: str) -> tuple[StreamReader, StreamWriter]:
    tls = None
    if made:
        tls = ssl.create_default_context(cafile=str(made.ca))
        tls.set_alpn_protocols(alpn)
    return await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname="localhost" if tls else None)


async def over_udp(plain: int, made: Encrypted, questions: Sequence[bytes]) -> Messages:
    del made
    with Udp(plain) as client:
        return [await client.ask(question) for question in questions]


async def over_stream(reader: StreamReader, writer: StreamWriter, questions: Sequence[bytes]) -> Messages:
    writer.write(b"".join(map(framed, questions)))
    got: Messages = []
    try:
        while len(got) < len(questions):
            got.append(await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big")))
    except asyncio.IncompleteReadError:
        pass
    writer.close()
    return got


async def over_tcp(plain: int, made: Encrypted, questions: Sequence[bytes]) -> Messages:
    del made
    return await over_stream(*await connected(plain), questions)


async def over_tls(plain: int, made: Encrypted, questions: Sequence[bytes]) -> Messages:
    del plain
    return await over_stream(*await connected(made.port("tls"), made), questions)


async def over_http1(plain: int, made: Encrypted, questions: Sequence[bytes]) -> Messages:
    del plain
    reader, writer = await connected(made.port("https"), made, "http/1.1")
    http, got = h11.Connection(h11.CLIENT), list[bytes]()
    for question in questions:
        headers = [("host", "localhost"), ("content-length", str(len(question))), *HEADERS]
        request = h11.Request(method="POST", target="/dns-query", headers=headers)
        for part in (request, h11.Data(data=question), h11.EndOfMessage()):
            writer.write(http.send(part) or b"")
        status, body = 0, b""
        while not isinstance(event := http.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                received = await reader.read(65536)
                if not received:
                    writer.close()
                    return got
                http.receive_data(received)
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
        got.append(body if status == 200 else b"%d" % status)
        http.start_next_cycle()
    writer.close()
    return got


async def over_http2(plain: int, made: Encrypted, questions: Sequence[bytes]) -> Messages:
    del plain
    reader, writer = await connected(made.port("https"), made, "h2")
    http = h2.connection.H2Connection()
    http.initiate_connection()
    pseudo = [(":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", "/dns-query")]
    for number, question in enumerate(questions):
        http.send_headers(2 * number + 1, [*pseudo, *HEADERS])
        http.send_data(2 * number + 1, question, end_stream=True)
    writer.write(http.data_to_send())
    statuses, bodies, ended = dict[int, bytes](), dict[int, bytes](), list[int]()
    while len(ended) < len(questions) and (data := await reader.read(65536)):
        for event in http.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                statuses[event.stream_id or 0] = bytes(dict(event.headers or ())[b":status"])
            elif isinstance(event, h2.events.DataReceived):
                bodies[event.stream_id or 0] = bodies.get(event.stream_id or 0, b"") + (event.data or b"")
            elif isinstance(event, h2.events.StreamEnded):
                ended.append(event.stream_id or 0)
    writer.close()
    return [bodies[stream] if statuses[stream] == b"200" else statuses[stream] for stream in ended]


async def over_quic(plain: int, made: Encrypted, questions: Sequence[bytes]) -> Messages:
    del plain
    async with doq_client(made) as client:
        for number, question in enumerate(questions):
            client.ask(4 * number, question)
        closed = asyncio.ensure_future(client.wait_closed())
        await until(lambda: len(client.ended) == len(questions) or closed.done())
        closed.cancel()
        return [client.received[stream][2:] for stream in sorted(client.ended)]


TRANSPORTS: Final[dict[str, Callable[[int, Encrypted, Sequence[bytes]], Awaitable[Messages]]]] = {
    "udp": over_udp,
    "tcp": over_tcp,
    "tls": over_tls,
    "https/1": over_http1,
    "https/2": over_http2,
    "quic": over_quic,
}


async def messages_over(
    transport: str, folder: Path, options: str, directives: str, questions: Sequence[bytes]
) -> Messages:
    """What a server with these directives sends; UPSTREAM is one that answers everything."""
    async with asyncio.timeout(60), fake_server() as upstream:
        directives = directives.replace("UPSTREAM", str(upstream.spec.address))
        plain = DnsServer(configure(parse(f".:0 {{\nbind 127.0.0.1\n{options}\n{directives}\n}}")))
        async with encrypted(folder, options, directives) as made:
            await plain.start()
            try:
                return await TRANSPORTS[transport](plain.listened[0][2], made, questions)
            finally:
                await plain.stop()


ANSWERED: Final = ["NOERROR"] * QUESTIONS
FAILED: Final = ["SERVFAIL"] * QUESTIONS
ZONE: Final = "@ 60 IN SOA ns hostmaster 1 3600 600 86400 60\n@ IN NS ns\n"
# options of the block, its directives, the type of the questions, what each transport gets, and those that get another
CASES: Final[dict[str, tuple[str, str, str, Got, dict[str, Got]]]] = {
    "sync": ("", "whoami", "A", ANSWERED, {}),
    "waiting": ("", "forward . UPSTREAM", "A", ANSWERED, {}),
    "failing": ("", "whoami", "A", FAILED, {}),
    "failing later": ("", "forward . UPSTREAM", "A", FAILED, {}),
    "transfer": (
        "", "file ZONE .\ntransfer {\nto *\n}", "AXFR", ANSWERED,
        {"udp": ["REFUSED"] * QUESTIONS, "https/1": ["501"] * QUESTIONS, "https/2": ["501"] * QUESTIONS},
    ),
    "last query": (
        "timeouts {\nmaxtcpqueries 2\n}", "forward . UPSTREAM", "A", ["NOERROR"] * 2,
        {"udp": ANSWERED, "https/2": ANSWERED},  # of HTTP/2 all requests are answered that came in one piece
    ),
}  # fmt: skip


def fail(*_: object) -> None:
    raise RuntimeError("a defect")


async def fail_later(*_: object) -> None:
    await asyncio.sleep(0)
    fail()


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("case", CASES)
async def test_what_clients_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, transport: str) -> None:
    options, directives, qtype, expected, others = CASES[case]
    zone = tmp_path / "zone"
    zone.write_text("$ORIGIN .\n" + ZONE)
    if case.startswith("failing"):
        monkeypatch.setattr(Whoami, "serve", fail)
        monkeypatch.setattr(Forwarder, "ask", fail_later)
    names = [f"{number}.test" if qtype == "A" else "." for number in range(QUESTIONS)]
    questions = [packet(name, qtype=qtype, number=0) for name in names]
    messages = await messages_over(transport, tmp_path, options, directives.replace("ZONE", str(zone)), questions)
    got = [rcode(message) if len(message) >= HEADER_BYTES else message.decode() for message in messages]
    assert got == others.get(transport, expected)


PAD: Final = (PADDING, bytes(20))
SECRET: Final = "NoTCJU+DMqFWywaPyxSijrDEA/eC3nK0xi3AMEZuPVk="  # noqa: S105 - of this test only
# directives, the options of the query, whether it is padded on encrypted transports
PADDED: Final[dict[str, tuple[str, list[tuple[int, bytes]], bool]]] = {
    "padded": ("whoami", [PAD], True),
    "no octets": ("whoami", [(PADDING, b"")], True),
    "with another option": ("nsid server\nwhoami", [(3, b""), PAD], True),
    "another option": ("nsid server\nwhoami", [(3, b"")], False),
    "forwarded": ("forward . UPSTREAM", [PAD], True),
    "kept": ("cache\nforward . UPSTREAM", [PAD], True),
    "an error": ("acl {\nblock\n}\nwhoami", [PAD], True),
}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("case", PADDED)
async def test_padded_queries_get_padded_responses_if_encrypted(tmp_path: Path, case: str, transport: str) -> None:
    """RFC 7830 §4 and RFC 8467 §4.1; the second question is answered from the table."""
    directives, options, is_padded = PADDED[case]
    questions = [with_options(packet("a.test", number=0, payload_bytes=1232), *options)] * QUESTIONS
    messages = await messages_over(transport, tmp_path, "", directives, questions)
    assert len(messages) == QUESTIONS
    for message in messages:
        codes = [option.otype for option in dns.message.from_wire(message).options]
        if is_padded and transport not in {"udp", "tcp"}:
            assert (len(message) % BLOCK_BYTES, codes.count(PADDING)) == (0, 1)
        else:
            assert PADDING not in codes
            assert len(message) % BLOCK_BYTES


@pytest.mark.parametrize("transport", ["tcp", "tls", "https/2", "quic"])
async def test_a_response_is_padded_before_it_is_signed(tmp_path: Path, transport: str) -> None:
    keyring = dns.tsigkeyring.from_text({"key.test.": SECRET})
    question = dns.message.make_query(
        "a.test", "A", use_edns=0, options=[dns.edns.GenericOption(dns.edns.OptionType.PADDING, b"")]
    )
    question.id = 0
    question.use_tsig(keyring)
    directives = f"tsig {{\nsecret key.test. {SECRET}\nrequire all\n}}\nwhoami"
    (wire,) = await messages_over(transport, tmp_path, "", directives, [question.to_wire()])
    message = dns.message.from_wire(wire, keyring=keyring, request_mac=question.mac)  # verifies the signature
    assert message.tsig is not None
    signed_at = records(wire)[-1].owner_at
    assert (signed_at % BLOCK_BYTES == 0) == (transport != "tcp")
