"""Frames over real sockets: the handshake, order, what is lost, another connection, and the end."""

import asyncio
import socket
import ssl
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from _process import free_port
from configured import configured
from dns_client import Udp
from dns_live import dns_server
from fake_api import until
from fake_api_certs import authority, issue
from frame_reader import FrameReader, decoded, message_of
from structlog.testing import capture_logs

from kdns.dns.message import query
from kdns.dns.types import A
from kdns.dnsserver.io import frame_streams as frame_stream
from kdns.dnsserver.io.frame_streams import ACCEPT, FrameListener, FrameStream, control_frame
from kdns.net import HostPort
from kdns.serverblocks.directive import FrameSpec
from kdns.serverblocks.listener_options import ClientAuth, TlsConfig
from kdns.tally import Tally


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_frames_arrive_in_order_and_the_rest_at_the_end(tmp_path: Path) -> None:
    path = str(tmp_path / "tap.sock")
    reader = FrameReader()
    lost = Tally()
    async with await asyncio.start_unix_server(reader.serve, path):
        stream = FrameStream(FrameSpec("unix", path), lost)
        task = asyncio.create_task(stream.run())
        expected = [b"%d" % number for number in range(2000)]
        for frame in expected[:1000]:
            stream.put(frame)
        await reader.wait_for(1000)
        for frame in expected[1000:]:
            stream.put(frame)
        await ended(task)
        assert await reader.wait_for(2000) == expected
        assert (reader.is_ended, lost.count, reader.connections) == (True, 0, 1)


async def test_a_reader_that_comes_later_gets_what_had_room() -> None:
    reader = FrameReader()
    lost = Tally()
    server = await asyncio.start_server(reader.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    stream = FrameStream(FrameSpec("tcp", address=HostPort("127.0.0.1", port), queued=10), lost)
    task = asyncio.create_task(stream.run())
    for number in range(25):
        stream.put(b"%d" % number)
    assert lost.count == 15
    async with await asyncio.start_server(reader.serve, "127.0.0.1", port):
        assert await reader.wait_for(10) == [b"%d" % number for number in range(10)]
        stream.put(b"more")
        assert (await reader.wait_for(11))[-1] == b"more"
        await ended(task)
    assert lost.count == 15


async def test_a_connection_that_ends_is_made_again() -> None:
    reader = FrameReader()
    first = asyncio.Event()

    async def once(incoming: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not first.is_set():
            first.set()
            writer.close()
            return
        await reader.serve(incoming, writer)

    async with await asyncio.start_server(once, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        stream = FrameStream(FrameSpec("tcp", address=HostPort("127.0.0.1", port)), Tally())
        task = asyncio.create_task(stream.run())
        stream.put(b"copy")
        assert await reader.wait_for(1) == [b"copy"]
        await ended(task)


async def test_a_reader_that_always_leaves_is_connected_to_after_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_stream, "RETRY_S", (0.0, 0.0, 3600.0))
    left = 0

    async def leave(incoming: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        await incoming.readexactly(8)
        writer.write(control_frame(ACCEPT))
        await incoming.readexactly(8)
        left += 1
        writer.close()

    async with asyncio.timeout(30), await asyncio.start_server(leave, "127.0.0.1", 0) as server:
        address = HostPort("127.0.0.1", server.sockets[0].getsockname()[1])
        task = asyncio.create_task(FrameStream(FrameSpec("tcp", address=address), Tally()).run())
        await until(lambda: left >= 3)
        for _ in range(20):  # as many round trips as connections would take
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.close()
            await writer.wait_closed()
        assert left == 3
        await ended(task)


def server_context(folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_trusted: bool) -> ssl.SSLContext:
    """A server's side of TLS, and as the system's roots those that its certificate is from, or others."""
    ca = authority("ca")
    roots = folder / "roots"
    roots.write_bytes((ca if is_trusted else authority("other")).pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(roots))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*issue(ca, "server", folder, ("localhost", "127.0.0.1")))
    return tls


@pytest.mark.parametrize(("is_trusted", "skip_verify"), [(True, False), (False, True)])
async def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_trusted: bool, skip_verify: bool) -> None:
    """The system's roots are read once for all connections, and not by the loop."""
    tls = server_context(tmp_path, monkeypatch, is_trusted=is_trusted)
    monkeypatch.setattr(frame_stream, "RETRY_S", (0.0,))
    made_by: list[threading.Thread] = []
    context = frame_stream._context  # noqa: SLF001 - what takes its time

    def recorded(spec: FrameSpec) -> ssl.SSLContext:
        made_by.append(threading.current_thread())
        return context(spec)

    monkeypatch.setattr(frame_stream, "_context", recorded)
    reader = FrameReader()

    async def serve_twice(incoming: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if reader.connections:
            await reader.serve(incoming, writer)
        else:
            reader.connections += 1
            writer.close()

    async with asyncio.timeout(30), await asyncio.start_server(serve_twice, "127.0.0.1", 0, ssl=tls) as server:
        address = HostPort("127.0.0.1", server.sockets[0].getsockname()[1])
        stream = FrameStream(FrameSpec("tls", address=address, skip_verify=skip_verify), Tally())
        task = asyncio.create_task(stream.run())
        stream.put(b"copy")
        assert await reader.wait_for(1) == [b"copy"]
        await ended(task)
    assert [thread is threading.main_thread() for thread in made_by] == [False]


async def test_a_certificate_that_is_not_trusted_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = server_context(tmp_path, monkeypatch, is_trusted=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)

        def accept() -> None:
            accepted, _ = listener.accept()
            accepted.settimeout(30)
            with accepted, tls.wrap_socket(accepted, server_side=True) as connection:
                connection.recv(1)

        stream = FrameStream(FrameSpec("tls", address=HostPort(*listener.getsockname())), Tally())
        with capture_logs() as lines:
            task = asyncio.create_task(stream.run())
            with suppress(OSError):  # an alert, or the end of the connection
                await asyncio.to_thread(accept)
            await until(lambda: bool(lines))
            await ended(task)
    assert "certificate verify failed" in lines[0]["error"]


async def test_the_end_does_not_wait_for_a_reader_that_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_stream, "FLUSH_S", 0.0)
    writers: list[asyncio.StreamWriter] = []
    connect = asyncio.open_connection

    async def recorded(host: str, port: int, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await connect(host, port, **options)
        writers.append(writer)
        return reader, writer

    monkeypatch.setattr(asyncio, "open_connection", recorded)
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        address = HostPort(*listener.getsockname())
        stream = FrameStream(FrameSpec("tcp", address=address, buffer_bytes=1 << 20), Tally())
        task = asyncio.create_task(stream.run())
        deaf, _ = await loop.sock_accept(listener)
        with deaf:
            deaf.setblocking(False)
            await loop.sock_sendall(deaf, control_frame(ACCEPT))
            await until(lambda: bool(writers))
            for _ in range(100):
                stream.put(bytes(1 << 20))
            await until(lambda: writers[0].transport.get_write_buffer_size() > 1 << 20)
            await ended(task)
            assert not writers[0].transport.get_write_buffer_size()


async def test_a_server_copies_what_clients_and_upstreams_say(tmp_path: Path) -> None:
    path = tmp_path / "tap.sock"
    reader = FrameReader()
    async with (
        await asyncio.start_unix_server(reader.serve, str(path)),
        dns_server(".:0 {\nbind 127.0.0.1\nwhoami\n}") as upstream,
    ):
        host, port = upstream.addresses[0]
        text = f".:0 {{\nbind 127.0.0.1\ndnstap {path} full {{\nidentity me\n}}\nforward . {host}:{port}\n}}"
        async with dns_server(text) as server:
            packet = query("www.example.", A)
            response = await asked(server.addresses[0], packet)
            frames = await reader.wait_for(4)
    assert {decoded(frame)[1] for frame in frames} == {b"me"}
    found = {int(kind): fields for fields in map(message_of, frames) if isinstance(kind := fields[1], int)}
    assert found.keys() == {5, 6, 7, 8}
    assert (found[5][10], found[6][14]) == (packet, response)
    assert {found[kind][7] for kind in (7, 8)} == {port}
    times = [found[kind][number] for kind, number in ((5, 8), (7, 8), (8, 12), (6, 12))]
    assert times == sorted(times)
    assert reader.is_ended


async def asked(address: tuple[str, int], packet: bytes) -> bytes:
    with Udp(address[1], address[0]) as client:
        return await client.ask(packet)


async def collect(reader: FrameReader, writer_of: Awaitable[tuple[StreamReader, StreamWriter]]) -> None:
    await reader.serve(*await writer_of)


@pytest.mark.parametrize("scheme", ["unix", "tcp", "tls"])
async def test_collectors_connect_to_a_server_that_listens(tmp_path: Path, scheme: str) -> None:
    """Each gets every copy from its connection on, and the end; also after a reload, which listens anew."""
    path, port = tmp_path / "tap.sock", free_port()
    ca = authority("ca")
    cert, key = issue(ca, "server", tmp_path, ("localhost", "127.0.0.1"))
    (tmp_path / "ca.crt").write_bytes(ca.pem)
    endpoint = str(path) if scheme == "unix" else f"{scheme}://127.0.0.1:{port}"
    tls = f"tls {cert} {key} {tmp_path / 'ca.crt'}" if scheme == "tls" else ""
    context: ssl.SSLContext | None = None
    if scheme == "tls":
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        context.load_cert_chain(*issue(ca, "collector", tmp_path))

    async def connected() -> tuple[StreamReader, StreamWriter]:
        if scheme == "unix":
            return await asyncio.open_unix_connection(str(path))
        return await asyncio.open_connection("127.0.0.1", port, ssl=context)

    text = f".:0 {{\nbind 127.0.0.1\ndnstap listen {endpoint} full {{\nidentity me\n{tls}\n}}\nwhoami\n}}"
    first, second, third = FrameReader(), FrameReader(), FrameReader()
    packet = query("www.example.", A)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks, dns_server(text) as server:
        await asked(server.addresses[0], packet)  # nobody has connected
        collectors = [tasks.create_task(collect(reader, until_connected(connected))) for reader in (first, second)]
        while min(len(first.frames), len(second.frames)) < 2:
            await asked(server.addresses[0], packet)
            await asyncio.sleep(0)
        await server.swap(configured(text))
        await asyncio.wait(collectors)
        tasks.create_task(collect(third, until_connected(connected)))
        while len(third.frames) < 2:
            await asked(server.addresses[0], packet)
            await asyncio.sleep(0)
    for reader in (first, second, third):
        assert reader.is_ended
        assert {decoded(frame)[1] for frame in reader.frames} == {b"me"}
        assert {message_of(frame)[1] for frame in reader.frames} == {5, 6}


async def until_connected(
    connect: Callable[[], Awaitable[tuple[StreamReader, StreamWriter]]],
) -> tuple[StreamReader, StreamWriter]:
    """A connection, as soon as somebody listens."""
    while True:
        with suppress(OSError):
            return await connect()
        await asyncio.sleep(0)


async def test_a_collector_without_a_certificate_is_refused(tmp_path: Path) -> None:
    ca, port, reader = authority("ca"), free_port(), FrameReader()
    cert, key = issue(ca, "server", tmp_path, ("localhost", "127.0.0.1"))
    (tmp_path / "ca.crt").write_bytes(ca.pem)
    tls = TlsConfig(str(cert), str(key), str(tmp_path / "ca.crt"), ClientAuth.REQUIRE_AND_VERIFY)
    address = HostPort("127.0.0.1", port)
    listener = FrameListener(FrameSpec("tls", address=address, listens=True, tls=tls), Tally())
    task = asyncio.create_task(listener.run())
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    async with asyncio.timeout(30):
        incoming, writer = await until_connected(
            lambda: asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        )
        with suppress(OSError):
            assert await incoming.read() == b""
        writer.close()
        await ended(task)
    assert reader.frames == []


async def test_a_listener_that_cannot_listen_tries_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_stream, "RETRY_S", (0.0,))
    folder, reader = tmp_path / "folder", FrameReader()
    listener = FrameListener(FrameSpec("unix", str(folder / "tap.sock"), listens=True), Tally())
    with capture_logs() as lines:
        task = asyncio.create_task(listener.run())
        await until(lambda: bool(lines))
        folder.mkdir()
        collector = asyncio.create_task(
            collect(reader, until_connected(lambda: asyncio.open_unix_connection(str(folder / "tap.sock"))))
        )
        await until(lambda: bool(reader.connections))
        while not reader.frames:
            listener.put(b"copy")
            await asyncio.sleep(0)
        await ended(task)
        await collector
    assert (lines[0]["event"], reader.is_ended) == ("dnstap does not listen", True)


async def test_connections_beyond_the_limit_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_stream, "MAX_COLLECTORS", 1)
    path, reader = str(tmp_path / "tap.sock"), FrameReader()
    listener = FrameListener(FrameSpec("unix", path, listens=True), Tally())
    task = asyncio.create_task(listener.run())
    async with asyncio.timeout(30):
        connection = until_connected(lambda: asyncio.open_unix_connection(path))
        collector = asyncio.create_task(collect(reader, connection))
        await until(lambda: bool(reader.connections))
        incoming, writer = await asyncio.open_unix_connection(path)
        with suppress(ConnectionError):
            assert await incoming.read() == b""
        writer.close()
        await ended(task)
        await collector
