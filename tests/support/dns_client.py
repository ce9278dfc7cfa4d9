"""Queries over UDP and TCP as bytes, for tests of a live server."""

import asyncio
import socket
from typing import Self

import dnslib


def packet(
    name: str, qtype: str = "A", *, number: int = 1, payload_bytes: int = 0, do: bool = False, version: int = 0
) -> bytes:
    """A query; with an OPT where `payload_bytes` is not 0."""
    record = dnslib.DNSRecord(
        dnslib.DNSHeader(id=number, rd=1), q=dnslib.DNSQuestion(name, getattr(dnslib.QTYPE, qtype))
    )
    if payload_bytes:
        record.add_ar(dnslib.EDNS0(flags="do" if do else "", udp_len=payload_bytes, version=version))
    return bytes(record.pack())


def with_options(query: bytes, *options: tuple[int, bytes]) -> bytes:
    """The same query, which ends in a bare OPT, with these options."""
    rdata = b"".join(code.to_bytes(2, "big") + len(data).to_bytes(2, "big") + data for code, data in options)
    return query[:-2] + len(rdata).to_bytes(2, "big") + rdata


def read(response: bytes) -> dnslib.DNSRecord:
    return dnslib.DNSRecord.parse(response)


def rcode(response: bytes) -> str:
    return str(dnslib.RCODE[read(response).header.rcode])


def answers(response: bytes) -> list[str]:
    """The rdata of the answer section, sorted."""
    return sorted(str(record.rdata) for record in read(response).rr)


class Udp:
    """A socket to one server."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.connect((host, port))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    async def receive(self, within_s: float = 60.0) -> bytes:
        async with asyncio.timeout(within_s):
            return await asyncio.get_running_loop().sock_recv(self.socket, 65535)

    async def ask(self, query: bytes) -> bytes:
        self.socket.send(query)
        return await self.receive()

    async def is_silent_about(self, query: bytes) -> bool:
        """Whether a query gets no answer: one that does is sent behind it, and its answer comes first."""
        probe = packet("probe.invalid", number=65535)
        self.socket.send(query)
        self.socket.send(probe)
        return (await self.receive())[:2] == probe[:2]


class Tcp:
    """A connection to one server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1") -> Self:
        return cls(*await asyncio.open_connection(host, port))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def send(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    async def receive(self, within_s: float = 60.0) -> bytes:
        """The next message; IncompleteReadError or ConnectionResetError when the server has closed."""
        async with asyncio.timeout(within_s):
            return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(2), "big"))

    async def ask(self, query: bytes) -> bytes:
        await self.send(framed(query))
        return await self.receive()

    async def is_closed(self, within_s: float = 60.0) -> bool:
        """Whether the server closes the connection, without another byte, within the time."""
        try:
            async with asyncio.timeout(within_s):
                return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True


def framed(query: bytes) -> bytes:
    """The message with its length in front (RFC 1035 §4.2.2)."""
    return len(query).to_bytes(2, "big") + query
