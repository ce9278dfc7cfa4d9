"""Small versions of attacks on memory: what they make a server hold is counted and bounded over every transport."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from configured import configured
from dns_client import Tcp, packet, rcode
from encrypted_server import Encrypted
from fake_api import until
from memory_attacks import ATTACKS, MANY, Silent, Target

from kdns.dnsserver.io.server import DnsServer
from kdns.plugins.sources.forward import plugin as forward
from kdns.runtime.client_memory import MAX_CONNECTION_BYTES, Client, ClientMemory
from kdns.serverblocks.listener_options import DEFAULTS

LARGEST_BYTES = 5 * 65536
"""A message that is complete after its connection has no room, with the copies of a pending query."""


class Bounds:
    """The most that clients held, looked at after every change of what they hold."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connection_bytes = self.held_bytes = 0
        add = ClientMemory.add

        def added(memory: ClientMemory, client: Client, change_bytes: int) -> None:
            add(memory, client, change_bytes)
            self.connection_bytes = max(self.connection_bytes, *(held.size_bytes for held in client.accounts), 0)
            self.held_bytes = max(self.held_bytes, memory.held_bytes)

        monkeypatch.setattr(ClientMemory, "add", added)


@pytest.mark.parametrize("name", ATTACKS)
async def test_what_an_attack_makes_a_server_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    bounds = Bounds(monkeypatch)
    monkeypatch.setattr(forward, "TIMEOUT_S", 0.5)  # until pending queries are given up
    patient = replace(DEFAULTS, idle_s=3.0, read_s=3.0, write_s=3.0)  # with who has left unnoticed, as nothing is read
    monkeypatch.setattr("kdns.serverblocks.listener_options.DEFAULTS", patient)
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"10.1.{number >> 8}.{number & 255} {MANY}\n" for number in range(3900)))
    async with asyncio.timeout(120):
        silent, made = Silent(), Encrypted(tmp_path, "")
        async with AsyncExitStack() as stack:
            await silent.start(stack)
            block = f"bind 127.0.0.1\nhosts {hosts} test {{\nfallthrough\n}}\nforward . 127.0.0.1:{silent.port}"
            encrypted = f"tls://.:0 https://.:0 quic://.:0 {{\ntls {made.cert} {made.key}\n{block}\n}}"
            server = DnsServer(configured(f".:0 {{\n{block}\n}}\n{encrypted}\n"))
            await server.start()
            memory = server._listeners.clients.memory  # noqa: SLF001 - what bounds are about
            target = Target({scheme: port for scheme, _, port in server.listened}, made.ca)
            async with target.stack:
                await ATTACKS[name](target)
                if name != "h2_resets":
                    await until(lambda: bounds.held_bytes > 0)
                async with await Tcp.connect(target.ports["dns"]) as other:
                    assert rcode(await other.ask(packet(MANY, payload_bytes=1232))) == "NOERROR"
            await until(lambda: not memory.held_bytes)
            await server.stop()
    assert bounds.connection_bytes <= MAX_CONNECTION_BYTES + LARGEST_BYTES
    assert memory.held_bytes == 0
