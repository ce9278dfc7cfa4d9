"""A server that was told to stop: /ready says so at once, and every query is answered until `lameduck` is over."""

import asyncio
import ssl
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from dns_client import Tcp, Udp, answers, packet
from fake_api_certs import authority, issue
from kdns_process import DEADLINE_S
from real_servers import free_ports

LAMEDUCK_S = 4
ROUNDS = 5
COREFILE = """
.:{dns} {{
    bind 127.0.0.1
    health 127.0.0.1:{health} {{
        lameduck {lameduck}s
    }}
    ready 127.0.0.1:{ready} {{
        monitor {monitor}
    }}
    hosts {{
        192.0.2.1 a.test
    }}
}}
tls://.:{tls} {{
    bind 127.0.0.1
    tls {cert} {key}
    hosts {{
        192.0.2.1 a.test
    }}
}}
"""


async def status(port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


@pytest.mark.parametrize(("monitor", "workers"), [("until-ready", 1), ("continuously", 1), ("until-ready", 2)])
async def test_ready_ends_at_once_and_answers_do_not(tmp_path: Path, monitor: str, workers: int) -> None:
    ca = authority("ca")
    (tmp_path / "ca.crt").write_bytes(ca.pem)
    cert, key = issue(ca, "server", tmp_path, ("localhost", "127.0.0.1"))
    corefile = tmp_path / "Corefile"
    ports = dict(zip(("dns", "tls", "health", "ready"), free_ports(), strict=False))  # several processes share them
    corefile.write_text(COREFILE.format(lameduck=LAMEDUCK_S, monitor=monitor, cert=cert, key=key, **ports))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kdns", "serve", "--conf", str(corefile), "--workers", str(workers)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    try:
        async with asyncio.timeout(DEADLINE_S):
            assert b"\nready\n" in await process.stdout.readuntil(b"\nready\n")
        assert await status(ports["ready"], "/ready") == 200
        async with asyncio.timeout(DEADLINE_S):
            await stopped(process, ports, ssl.create_default_context(cafile=str(tmp_path / "ca.crt")))
            assert await process.wait() == 0
        with pytest.raises(OSError, match="Connect"):
            await asyncio.open_connection("127.0.0.1", ports["dns"])
    finally:
        if process.returncode is None:
            process.kill()


async def stopped(process: asyncio.subprocess.Process, ports: dict[str, int], tls: ssl.SSLContext) -> None:
    """Tell the process to stop, and query it from ports and connections that are old, and from new ones."""

    async def over_tls() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", ports["tls"], ssl=tls, server_hostname="localhost")
        async with Tcp(reader, writer) as client:
            return await client.ask(packet("a.test"))

    async def over_tcp() -> bytes:
        async with await Tcp.connect(ports["dns"]) as client:
            return await client.ask(packet("a.test"))

    async def over_udp() -> bytes:
        with Udp(ports["dns"]) as client:
            return await client.ask(packet("a.test"))

    async with await Tcp.connect(ports["dns"]) as tcp:
        with Udp(ports["dns"]) as udp:
            asked: tuple[Callable[[], Awaitable[bytes]], ...] = (
                *(over_udp, over_tcp, over_tls),
                *(lambda: udp.ask(packet("a.test")), lambda: tcp.ask(packet("a.test"))),
            )
            for ask in asked:
                assert answers(await ask()) == ["192.0.2.1"]
            process.terminate()
            while await status(ports["ready"], "/ready") != 503:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.01)
            for _ in range(ROUNDS):
                for ask in asked:
                    assert answers(await ask()) == ["192.0.2.1"]
                assert await status(ports["health"], "/health") == 200
                assert await status(ports["ready"], "/ready") == 503
            assert process.returncode is None
