"""What a client gets over each transport: at once, after waiting, from a defect, of a zone, and at the last query."""

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import dns.edns
import dns.message
import dns.tsigkeyring
import pytest
from dns_client import Udp, framed, packet, rcode, with_options
from dns_live import dns_server
from encrypted_server import Encrypted, doq_client, encrypted
from fake_api import until
from fake_upstream import fake_server

from kdns.answers.padding import BLOCK_BYTES
from kdns.dns.query import HEADER_BYTES
from kdns.dns.types import PADDING
from kdns.dns.wire import records
from kdns.net import HostPort
from kdns.plugins.sources.forward.plugin import Forwarder
from kdns.plugins.sources.whoami import Whoami
from kdns.upstream.io.http import Http1, Http2
from kdns.upstream.upstream import UpstreamSpec

Got: TypeAlias = list[str]
"""The rcodes of the messages that came before the end, and for an error of HTTP its status."""
Messages: TypeAlias = list[bytes]
"""The messages themselves, and for an error of HTTP its status."""
QUESTIONS: Final = 3


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


async def over_https(
    alpn: str, version: type[Http1 | Http2], plain: int, made: Encrypted, questions: Sequence[bytes]
) -> Messages:
    """As many requests at once as the version of HTTP allows."""
    del plain
    reader, writer = await connected(made.port("https"), made, alpn)
    framing = version(UpstreamSpec(HostPort("localhost", 443), "https"))
    unsent, pending, got = [*questions], 0, list[bytes]()
    while len(got) < len(questions):
        wires = [framing.unsent()]
        while unsent and pending < framing.max_pending:
            wires.append(framing.query(unsent.pop(0)[2:], ())[1])
            pending += 1
        writer.write(b"".join(wires))
        if not (received := await reader.read(65536)):
            break
        for _, message in framing.received(received):
            pending -= 1
            got.append(message if isinstance(message, bytes) else str(message).split()[5].encode())
    writer.close()
    return got


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
    "https/1": partial(over_https, "http/1.1", Http1),
    "https/2": partial(over_https, "h2", Http2),
    "quic": over_quic,
}


async def messages_over(
    transport: str, folder: Path, options: str, directives: str, questions: Sequence[bytes]
) -> Messages:
    """What a server with these directives sends; UPSTREAM is one that answers everything."""
    async with asyncio.timeout(60), fake_server() as upstream:
        directives = directives.replace("UPSTREAM", str(upstream.spec.address))
        corefile = f".:0 {{\nbind 127.0.0.1\n{options}\n{directives}\n}}"
        async with encrypted(folder, options, directives) as made, dns_server(corefile) as plain:
            return await TRANSPORTS[transport](plain.listened[0][2], made, questions)


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
        monkeypatch.setattr(Forwarder, "forward", fail_later)
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
