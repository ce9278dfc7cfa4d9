"""The connections that this process accepts: fewer than it has descriptors, and shared fairly among clients.

share_out(ConnectionKind.DNS, ConnectionKind.SITES)          # once, at the start of the process
connections = Connections(ConnectionKind.DNS)      # one for all listeners of a kind
Listener(sock, lambda: Protocol(connections))
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import sys
from asyncio import sslproto
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final

from kdns import logs
from kdns.net import client_of
from kdns.runtime.os_errors import os_reason
from kdns.runtime.sockets import port_holder

log = logs.get(__name__)

_FIRST_UNPRIVILEGED_PORT: Final = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")


class ConnectionKind(Enum):
    """Kinds of listeners, and the sockets to upstreams. The value is the name in the log."""

    DNS = "DNS over TCP"
    API = "API"
    UNAUTHENTICATED = "API before authentication"
    SITES = "health and metrics"
    NODE_SITES = "health and metrics of the node"
    RELAYS = "relays"
    UPSTREAMS = "upstreams"


MAX_CONNECTIONS: Final = {
    ConnectionKind.DNS: 1000,
    ConnectionKind.API: 2000,
    ConnectionKind.UNAUTHENTICATED: 256,
    ConnectionKind.SITES: 256,
    ConnectionKind.NODE_SITES: 256,
    ConnectionKind.RELAYS: 1 << 20,
    ConnectionKind.UPSTREAMS: 1000,
}
"""The maximum of each kind (for relays: descriptors); less if the process's limit is lower."""
RESERVED: Final = 256
"""Descriptors for the rest of the process: bound sockets, files, its own requests, and closing connections."""
MAX_DESCRIPTORS: Final = 1 << 20
WINDOWS_SOCKETS: Final = 512
"""FD_SETSIZE of CPython on Windows, whose asyncio uses select(2)."""
BACKLOG: Final = 1024
BURST: Final = 16
PAUSE_S: Final = 1.0
"""The delay of the next accept after the kernel had no descriptor left."""
HANDSHAKE_S: Final = 10.0
TLS_CLOSE_S: Final = 2.0
TLS_BUFFER_BYTES: Final = 8 * 1024
"""asyncio's own are 256 KiB, which is more than everything else that a connection holds."""
TLS_RECORD_BYTES: Final = 17 * 1024
"""More than the largest record (RFC 8446 §5.2). A paused connection keeps up to two, and reads on below one."""

_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_kinds: Final = set(ConnectionKind)
"""The kinds among which descriptors are shared: all kinds, unless the process names its own."""


def raise_open_files_limit() -> int:
    """Raises the soft limit to the hard one, as Go programs do, and returns it."""
    if sys.platform == "win32":
        return WINDOWS_SOCKETS
    import resource  # noqa: PLC0415 - Windows does not have it

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < highest:
        with suppress(OSError, ValueError):  # macOS reports a limit that it does not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
            return highest
    return min(soft, MAX_DESCRIPTORS) if soft != resource.RLIM_INFINITY else MAX_DESCRIPTORS


def shares(limit: int, kinds: Iterable[ConnectionKind]) -> dict[ConnectionKind, int]:
    """The connections of each kind under a limit of descriptors. What a small kind does not need, larger ones get."""
    free = limit - min(RESERVED, limit // 2)
    smallest_first = sorted(kinds, key=MAX_CONNECTIONS.__getitem__)
    granted = {}
    for position, kind in enumerate(smallest_first):
        granted[kind] = min(MAX_CONNECTIONS[kind], free // (len(smallest_first) - position))
        free -= granted[kind]
    return granted


def share_out(*kinds: ConnectionKind) -> None:
    """Raises the limit of open files; from now on only these kinds have shares of it."""
    raise_open_files_limit()
    _kinds.clear()
    _kinds.update(kinds)


def maximum(kind: ConnectionKind) -> int:
    return shares(raise_open_files_limit(), _kinds | {kind})[kind]


@dataclass(slots=True)
class _Entry:
    client: str | bytes
    abort: Callable[[], object]
    is_idle: bool = True


class Connections:
    """The connections of a kind. If all are taken, a new one replaces an idle one.

    The client with the most idle connections loses the one that is idle the longest (RFC 7766 §6.2): a client
    with few connections loses none to a client with many. Clients are identified by `net.client_of`.
    """

    def __init__(self, kind: ConnectionKind, limit: int | None = None, name: str = "") -> None:
        self.kind = kind
        self.maximum = maximum(kind) if limit is None else limit
        self._entries: dict[Hashable, _Entry] = {}
        self._idle: dict[str | bytes, dict[Hashable, None]] = {}
        """By client, those that are idle the longest first."""
        self._full = logs.RareWarning(__name__, "too many connections: idle ones are closed", of=name or kind.value)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, connection: Hashable, address: str, abort: Callable[[], object]) -> bool:
        """False if all are taken and busy. `abort` closes the connection if another one takes its place."""
        self.remove(connection)
        if len(self._entries) >= self.maximum:
            self._full.log(maximum=self.maximum)
            if not self._evict():
                return False
        client = client_of(address)
        self._entries[connection] = _Entry(client, abort)
        self._join(connection, client)
        return True

    def touch(self, connection: Hashable) -> None:
        entry = self._entries.get(connection)
        if entry is None:
            return
        if entry.is_idle:
            idle = self._idle[entry.client]
            del idle[connection]
            idle[connection] = None
        else:
            entry.is_idle = True
            self._join(connection, entry.client)

    def occupy(self, connection: Hashable) -> None:
        """Marks the connection as busy until `touch`."""
        entry = self._entries.get(connection)
        if entry is not None and entry.is_idle:
            entry.is_idle = False
            self._leave(connection, entry.client)

    def remove(self, connection: Hashable) -> None:
        entry = self._entries.pop(connection, None)
        if entry is not None and entry.is_idle:
            self._leave(connection, entry.client)

    def _evict(self) -> bool:
        if not self._idle:
            return False
        connections: dict[Hashable, None] = max(self._idle.values(), key=len)
        connection = next(iter(connections))
        abort = self._entries[connection].abort
        self.remove(connection)
        abort()
        return True

    def _join(self, connection: Hashable, client: str | bytes) -> None:
        self._idle.setdefault(client, {})[connection] = None

    def _leave(self, connection: Hashable, client: str | bytes) -> None:
        idle = self._idle[client]
        del idle[connection]
        if not idle:
            del self._idle[client]


class PartOfConnections(Connections):
    """Connections with a limit of their own, which also count among all of their kind."""

    def __init__(self, all_connections: Connections, limit: int, name: str) -> None:
        super().__init__(all_connections.kind, limit, name)
        self._all = all_connections

    def add(self, connection: Hashable, address: str, abort: Callable[[], object]) -> bool:
        if not super().add(connection, address, abort):
            return False
        if self._all.add(connection, address, abort):
            return True
        self.remove(connection)
        return False

    def touch(self, connection: Hashable) -> None:
        self._all.touch(connection)
        super().touch(connection)

    def occupy(self, connection: Hashable) -> None:
        self._all.occupy(connection)
        super().occupy(connection)

    def remove(self, connection: Hashable) -> None:
        self._all.remove(connection)
        super().remove(connection)


class Listener:
    """Accepts the connections of a bound socket in small bursts, each with a protocol of its own.

    `tls` may be changed. A TLS handshake has to end within HANDSHAKE_S. Its protocol counts among `handshakes`, and
    removes itself from there.
    """

    def __init__(
        self,
        sock: socket.socket,
        protocol: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext | None = None,
        handshakes: Connections | None = None,
    ) -> None:
        self.socket, self._protocol, self.tls, self._handshakes = sock, protocol, tls, handshakes
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[object]] = set()
        self._paused: asyncio.TimerHandle | None = None
        self._out_of_descriptors = logs.RareWarning(__name__, "no descriptors left: nothing is accepted for a moment")
        if tls:
            sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES  # of all connections: asyncio has no argument for it
        sock.setblocking(False)
        sock.listen(BACKLOG)
        self._loop.add_reader(sock, self._accept)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.socket.getsockname()[:2]
        return host, port

    def close(self) -> None:
        """Ends handshakes; connections stay."""
        if self._paused:
            self._paused.cancel()
        self._loop.remove_reader(self.socket)
        self.socket.close()
        if self.tls:
            for task in self._connecting:
                task.cancel()

    def _accept(self) -> None:
        for _ in range(BURST):
            try:
                client, address = self.socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_DESCRIPTORS:
                    self._pause(error.errno)
                    return
                continue  # the client was gone before it was accepted
            client.setblocking(False)
            self._connect(client, address[0] if address else "")  # a Unix socket has none

    def _pause(self, number: int) -> None:
        self._out_of_descriptors.log(reason=os.strerror(number), retry_in_s=PAUSE_S)
        self._loop.remove_reader(self.socket)
        self._paused = self._loop.call_later(PAUSE_S, self._loop.add_reader, self.socket, self._accept)

    def _connect(self, client: socket.socket, address: str) -> None:
        tls = self.tls
        times = {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": TLS_CLOSE_S} if tls else {}
        protocol = self._protocol()
        connected = self._loop.connect_accepted_socket(lambda: protocol, client, ssl=tls, **times)
        task: asyncio.Task[object] = self._loop.create_task(connected)
        self._connecting.add(task)
        task.add_done_callback(partial(self._connected, client, protocol))
        if self._handshakes is not None and not self._handshakes.add(protocol, address, task.cancel):
            task.cancel()

    def _connected(self, client: socket.socket, protocol: asyncio.BaseProtocol, task: asyncio.Task[object]) -> None:
        self._connecting.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            return
        client.close()
        if self._handshakes is not None:
            self._handshakes.remove(protocol)
        if not isinstance(error, OSError | asyncio.CancelledError):  # gone, or speaks no TLS
            log.error("connection failed", exc_info=error)


@contextmanager
def shared_ports(sockets: Iterable[socket.socket]) -> Iterator[None]:
    """Until these sockets close, another one may have their port: SO_REUSEPORT for TCP, SO_REUSEADDR for UDP."""
    before = []
    for sock in sockets:
        option = socket.SO_REUSEPORT if sock.type == socket.SOCK_STREAM else socket.SO_REUSEADDR
        before.append((sock, option, sock.getsockopt(socket.SOL_SOCKET, option)))
        sock.setsockopt(socket.SOL_SOCKET, option, 1)
    try:
        yield
    finally:
        for sock, option, value in before:
            sock.setsockopt(socket.SOL_SOCKET, option, value)


def limit_buffers(transport: asyncio.Transport) -> None:
    """Writing pauses at the first unsent byte (a limit of 0 would mean never), reading of TLS at 34 KiB unread."""
    transport.set_write_buffer_limits(high=1, low=0)
    if below := _below(transport):
        below.set_write_buffer_limits(high=1, low=0)
        reading = {"high": 2 * TLS_RECORD_BYTES, "low": TLS_RECORD_BYTES}
        transport.set_read_buffer_limits(**reading)  # type: ignore[attr-defined] # transports of TLS have it


def unread_bytes(transport: asyncio.Transport) -> int:
    """Received bytes that TLS keeps, because its protocol is paused or a record is incomplete."""
    return transport.get_read_buffer_size() if _below(transport) else 0  # type: ignore[attr-defined] # of TLS


def unsent_bytes(transport: asyncio.Transport) -> int:
    """Written bytes that the kernel has not taken yet."""
    below = _below(transport)
    return transport.get_write_buffer_size() + (below.get_write_buffer_size() if below else 0)


def is_lost(transport: asyncio.Transport) -> bool:
    """If so, asyncio would log each further write. TLS learns of a failure below it an iteration later."""
    below = _below(transport)
    return transport.is_closing() or (below is not None and below.is_closing())


def _below(transport: asyncio.Transport) -> asyncio.Transport | None:
    """The transport that a TLS transport writes to; asyncio has no public name for it."""
    below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    return below if isinstance(below, asyncio.Transport) else None


def bind_failure(error: OSError, port: int = 0) -> str:
    """Why an address could not be bound, with ways to get it."""
    if error.errno == errno.EADDRINUSE and port:
        holder = port_holder(port)
        return f"{os_reason(error)}{holder and f' by {holder}'}; take another port, or 0 for any that is free"
    if isinstance(error, PermissionError):
        try:
            first = _FIRST_UNPRIVILEGED_PORT.read_text(encoding="ascii").strip()
        except OSError:
            first = "1024"
        return (
            f"ports below {first} need the capability NET_BIND_SERVICE: take another port, run as root, or give it by "
            "AmbientCapabilities=CAP_NET_BIND_SERVICE in a systemd unit, capabilities.add of a container, or "
            "`setcap cap_net_bind_service=+ep` on the Python that runs kdns"
        )
    return os_reason(error)
