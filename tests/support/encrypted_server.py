"""A server of DNS over TLS, HTTPS and QUIC, with a certificate of its own, and a client over QUIC."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent, StreamDataReceived
from dns_live import dns_server
from fake_api_certs import authority, issue

from kdns.dnsserver.io.server import DnsServer

PATIENT = "timeouts {\nread 5m\nwrite 5m\nidle 5m\n}"
"""Options of a server that keeps a client which reads nothing, also if a busy machine takes its time."""


class Encrypted:
    """A server with every scheme but plain DNS, and its certificate; `directives` say what is answered."""

    def __init__(self, folder: Path, directives: str) -> None:
        self.folder, self.directives = folder, directives
        ca = authority("ca")
        self.ca = folder / "ca.crt"
        self.ca.write_bytes(ca.pem)
        self.cert, self.key = issue(ca, "server", folder, ("localhost", "127.0.0.1"))
        self.server: DnsServer

    def corefile(self, options: str = "") -> str:
        schemes = " ".join(f"{scheme}://.:0" for scheme in ("tls", "https", "quic"))
        tls = f"bind 127.0.0.1\ntls {self.cert} {self.key}"
        return f"{schemes} {{\n{tls}\n{options}\n{self.directives}\n}}\n"

    def port(self, scheme: str) -> int:
        return next(port for name, _, port in self.server.listened if name == scheme)

    def seen(self, kind: str) -> dict[int, int]:
        counted = [getattr(listener, kind) for listeners in self.server.requests.values() for listener in listeners]
        return {status: count for each in counted for status, count in each.items()}


@asynccontextmanager
async def encrypted(folder: Path, options: str = "", directives: str = "whoami") -> AsyncIterator[Encrypted]:
    made = Encrypted(folder, directives)
    async with dns_server(made.corefile(options)) as made.server:
        yield made


class DoqClient(QuicConnectionProtocol):
    """Sends messages on streams of its choice."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.received: dict[int, bytes] = {}
        self.ended: set[int] = set()

    def ask(self, stream: int, message: bytes) -> None:
        self._quic.send_stream_data(stream, len(message).to_bytes(2, "big") + message, end_stream=True)
        self.transmit()

    def begin(self, stream: int) -> None:
        self._quic.send_stream_data(stream, b"\0\x20begun")
        self.transmit()

    def scatter(self, stream: int, pieces: int) -> None:
        """Send bytes of a message with gaps between them."""
        sender = self._quic._get_or_create_stream_for_send(stream).sender  # noqa: SLF001 - clients send no gaps
        sender.write(bytes(2 * pieces))
        for start in range(0, 2 * pieces, 2):
            sender._pending.subtract(start, start + 1)  # noqa: SLF001 - see above
        self.transmit()

    def read_no_more(self) -> None:
        """Allow the server no more data than it may send already."""
        self._quic._write_connection_limits = lambda *_args, **_kwargs: None  # type: ignore[method-assign] # noqa: SLF001 - see above

    def retried(self) -> bool:
        """Whether the server wanted a token."""
        return self._quic._retry_count == 1  # noqa: SLF001 - nothing public tells

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, StreamDataReceived):
            self.received[event.stream_id] = self.received.get(event.stream_id, b"") + event.data
            if event.end_stream:
                self.ended.add(event.stream_id)


@asynccontextmanager
async def doq_client(made: Encrypted, **options: Any) -> AsyncIterator[DoqClient]:
    """A connection; `options` are those of aioquic's configuration, such as max_data."""
    configuration = QuicConfiguration(alpn_protocols=["doq"], cafile=str(made.ca), server_name="localhost", **options)
    port = made.port("quic")
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=DoqClient) as client:
        assert isinstance(client, DoqClient)
        yield client
