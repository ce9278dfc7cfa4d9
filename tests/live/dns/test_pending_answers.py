"""Answers that wait for a client to read those before: over each transport of streams."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dns_client import Tcp, framed, packet
from dns_live import dns_server
from encrypted_server import PATIENT, Encrypted, doq_client, encrypted
from fake_api import until

from kdns.dnsserver.blocks import Server
from kdns.dnsserver.io import fair_scheduler
from kdns.dnsserver.io.encrypted import quic

LARGE = "txt 60 IN TXT" + "".join(f' "{letter * 250}"' for letter in "abcdefgh" * 24)
"""A record of 48 kB."""


def messages_of(received: bytes) -> list[bytes]:
    messages = []
    while received:
        end = 2 + int.from_bytes(received[:2], "big")
        messages.append(received[2:end])
        received = received[end:]
    return messages


def zone_of(folder: Path, *records: str) -> Path:
    path = folder / "db.big"
    lines = ("@ 60 IN SOA ns hostmaster 1 3600 600 86400 60", "@ IN NS ns", *records)
    path.write_text("$ORIGIN big.\n" + "\n".join(lines) + "\n")
    return path


def held_bytes(made: Encrypted) -> int:
    return made.server._listeners.clients.memory.held_bytes  # noqa: SLF001 - what the metrics are made of


async def test_over_quic_requests_wait_for_a_client_that_does_not_read(tmp_path: Path) -> None:
    """A client that asks for much and reads nothing has one answer more than 64 KiB here, not one for each request."""
    path = zone_of(tmp_path, LARGE)
    async with asyncio.timeout(60), encrypted(tmp_path, PATIENT, f"file {path} big") as made:
        async with doq_client(made, max_data=1000) as unread:
            unread.read_no_more()
            for number in range(40):
                unread.ask(4 * number, packet("txt.big", qtype="TXT", number=0))
            await until(lambda: held_bytes(made) > quic.MAX_UNSENT_BYTES)
            async with doq_client(made) as other:
                other.ask(0, packet("txt.big", qtype="TXT", number=0))
                await until(lambda: bool(other.ended))
                await until(lambda: held_bytes(made) < 2 * quic.MAX_UNSENT_BYTES)
                assert held_bytes(made) > quic.MAX_UNSENT_BYTES
            assert not unread.ended
        await until(lambda: held_bytes(made) == 0)


async def test_over_quic_requests_that_have_waited_are_answered(tmp_path: Path) -> None:
    path = zone_of(tmp_path, LARGE)
    async with (
        asyncio.timeout(60),
        encrypted(tmp_path, PATIENT, f"file {path} big") as made,
        doq_client(made) as client,
    ):
        for number in range(40):
            client.ask(4 * number, packet("txt.big", qtype="TXT", number=0))
        await until(lambda: len(client.ended) == 40)
        assert {len(received) for received in client.received.values()} == {len(client.received[0])}


@pytest.mark.parametrize("scheme", ["dns", "quic"])
async def test_a_transfer_sends_one_message_in_a_turn(
    tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many transfers there are, an iteration of the loop makes one message, where a slice has room for one."""
    monkeypatch.setattr(fair_scheduler, "SLICE_S", 0.0)
    loop, iterations, made_in = asyncio.get_running_loop(), 0, list[int]()
    more_messages = Server._more_messages  # noqa: SLF001 - where further messages are made

    def counted(*args: Any) -> Iterator[bytes]:
        for message in more_messages(*args):
            made_in.append(iterations)
            yield message

    def tick() -> None:
        nonlocal iterations
        iterations += 1
        loop.call_soon(tick)

    monkeypatch.setattr(Server, "_more_messages", counted)
    path = zone_of(tmp_path, *(f"host{number} 60 IN A 192.0.2.1" for number in range(1500)))
    directives = f"file {path} big\ntransfer {{\nto *\n}}"
    async with asyncio.timeout(60), encrypted(tmp_path, PATIENT, directives) as made:
        loop.call_soon(tick)
        if scheme == "quic":
            async with doq_client(made) as client:
                for number in range(10):
                    client.ask(4 * number, packet("big", qtype="AXFR", number=0))
                await until(lambda: len(client.ended) == 10)
        else:
            async with dns_server(f".:0 {{\nbind 127.0.0.1\n{directives}\n}}") as plain:
                clients = [await Tcp.connect(plain.listened[0][2]) for _ in range(10)]
                for each in clients:
                    await each.send(framed(packet("big", qtype="AXFR", number=0)))
                    each.writer.write_eof()
                received = await asyncio.gather(*(each.reader.read(-1) for each in clients))
                assert len({*received}) == 1
                assert max(map(len, messages_of(received[0]))) <= 4096, "a message is made in one go"
                for each in clients:
                    each.writer.close()
    assert len(made_in) > 10
    assert max(Counter(made_in).values()) == 1
