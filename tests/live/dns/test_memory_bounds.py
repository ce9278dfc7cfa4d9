"""Small versions of attacks on memory: what they make a server hold is counted and bounded over every transport."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from dns_client import Tcp, packet, rcode
from encrypted_server import Encrypted
from fake_api import until
from memory_attacks import ATTACKS, MANY, Silent, Target

from kdns.corefile.parse import parse
from kdns.dnsserver.io.server import DnsServer
from kdns.plugins.directives import configure
from kdns.runtime.client_memory import MAX_CONNECTION_BYTES, ClientMemory

LARGEST_BYTES = 5 * 65536
"""A message that is complete after its connection has no room, with the copies of a pending query."""
BLOCKED_ANSWERS = ("h2_blocked_answers", "quic_unread", "tcp_unread", "tls_unread", "h1_unread")


class Bounds:
    """A server over every transport, and the most that its clients held."""

    def __init__(self, made: Encrypted, server: DnsServer) -> None:
        self.server = server
        self.memory: ClientMemory = server._listeners.clients.memory  # noqa: SLF001 - what bounds are about
        self.target = Target({scheme: port for scheme, _, port in server.listened}, made.ca)
        self.connection_bytes = self.held_bytes = 0

    def look(self) -> bool:
        accounts = [account for client in self.memory._clients.values() for account in client.accounts]  # noqa: SLF001 - see above
        self.connection_bytes = max(self.connection_bytes, *(account.size_bytes for account in accounts), 0)
        self.held_bytes = max(self.held_bytes, self.memory.held_bytes)
        return False


async def watch(bounds: Bounds) -> None:
    while True:
        bounds.look()
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", ATTACKS)
async def test_what_an_attack_makes_a_server_hold(tmp_path: Path, name: str) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"10.1.{number >> 8}.{number & 255} {MANY}\n" for number in range(3900)))
    async with asyncio.timeout(120):
        silent, made = Silent(), Encrypted(tmp_path, "")
        target_stack = Target({}, made.ca).stack
        async with target_stack:
            await silent.start(target_stack)
            block = f"bind 127.0.0.1\nhosts {hosts} test {{\nfallthrough\n}}\nforward . 127.0.0.1:{silent.port}"
            encrypted = f"tls://.:0 https://.:0 quic://.:0 {{\ntls {made.cert} {made.key}\n{block}\n}}"
            server = DnsServer(configure(parse(f".:0 {{\n{block}\n}}\n{encrypted}\n")))
            await server.start()
            bounds = Bounds(made, server)
            watching = asyncio.create_task(watch(bounds))
            async with bounds.target.stack:
                await ATTACKS[name](bounds.target)
                if name != "h2_resets":
                    await until(lambda: bounds.held_bytes > 0)
                async with await Tcp.connect(bounds.target.ports["dns"]) as other:
                    assert rcode(await other.ask(packet(MANY, payload_bytes=1232))) == "NOERROR"
            await until(lambda: bounds.memory.held_bytes == 0 or not bounds.memory._clients)  # noqa: SLF001 - see above
            watching.cancel()
            await server.stop()
    assert bounds.connection_bytes <= MAX_CONNECTION_BYTES + LARGEST_BYTES
    assert bounds.memory.held_bytes == 0
