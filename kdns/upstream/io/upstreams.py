"""The upstreams of a process: server blocks with the same specification share sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final, NoReturn, TypeAlias

from kdns.dns.query import Query
from kdns.upstream.io.endpoint import Endpoint
from kdns.upstream.io.exchanges import Counts, Exchanges
from kdns.upstream.io.streams import Streams
from kdns.upstream.io.udp import UdpSockets
from kdns.upstream.upstream import Scheme, Transport, UpstreamError, UpstreamSpec

TIDY_S: Final = 1.0
"""The interval at which expired sockets and connections are closed."""

Label: TypeAlias = tuple[str, str]
"""Labels `to` and `proto` of CoreDNS's metrics."""

PROTO: Final[Mapping[Scheme, str]] = MappingProxyType({"dns": "tcp", "tls": "tcp-tls", "https": "https"})


class SocketUpstream:
    """One server: its UDP sockets and its connections; `users` counts its leases."""

    def __init__(
        self, spec: UpstreamSpec, exchanges: Exchanges, counts: Callable[[Label], Counts] = lambda _: Counts()
    ) -> None:
        self.spec, self.users = spec, 0
        endpoint, to = Endpoint(spec), str(spec.address)
        self.streams = Streams(spec, endpoint, exchanges, counts((to, PROTO[spec.scheme])))
        self._is_dns = spec.scheme == "dns"
        self.udp = UdpSockets(endpoint, exchanges, self.streams, counts((to, "udp")) if self._is_dns else Counts())

    def exchange(self, query: Query, transport: Transport, timeout_s: float, client: str = "") -> Awaitable[bytes]:
        if transport == "udp" and self._is_dns:
            return self.udp.exchange(query, timeout_s, client)
        return self.streams.exchange(query, timeout_s, client)

    def tidy(self, now_s: float) -> None:
        self.udp.tidy(now_s)
        self.streams.tidy(now_s)

    def close(self) -> None:
        self.udp.close()
        self.streams.close()


class Lease:
    """An upstream as one server block uses it; the sockets close with the last lease."""

    __slots__ = ("_shared", "_upstreams", "exchange", "is_closed", "spec")

    def __init__(self, spec: UpstreamSpec, shared: SocketUpstream, upstreams: Upstreams) -> None:
        self.spec = spec
        self.is_closed = False
        self.exchange = shared.exchange
        self._shared = shared
        self._upstreams = upstreams

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.exchange = _closed
            self._upstreams.release(self._shared)


def _closed(query: Query, transport: Transport, timeout_s: float, client: str = "") -> NoReturn:
    del query, transport, timeout_s, client
    raise UpstreamError("the upstream is no longer used")


class Upstreams:
    """The upstreams of a process by specification; `counts` continue when one is made again."""

    def __init__(self) -> None:
        self.counts: dict[Label, Counts] = {}
        self.exchanges: Exchanges | None = None
        self._shared: dict[UpstreamSpec, SocketUpstream] = {}
        self._tidying: asyncio.TimerHandle | None = None

    def of(self, spec: UpstreamSpec) -> Lease:
        """InputError for an unusable address or file."""
        if self.exchanges is None:
            self.exchanges = Exchanges()
        shared = self._shared.get(spec)
        if shared is None:
            shared = self._shared[spec] = SocketUpstream(spec, self.exchanges, self._counts_of)
        shared.users += 1
        if self._tidying is None:
            self._tidying = self.exchanges.loop.call_later(TIDY_S, self._tidy)
        return Lease(spec, shared, self)

    def release(self, shared: SocketUpstream) -> None:
        if self._shared.get(shared.spec) is not shared:
            return  # after `close`
        shared.users -= 1
        if not shared.users:
            del self._shared[shared.spec]
            shared.close()

    def close(self) -> None:
        for shared in self._shared.values():
            shared.close()
        self._shared.clear()
        if self._tidying is not None:
            self._tidying.cancel()
            self._tidying = None
        if self.exchanges is not None:
            self.exchanges.close()
            self.exchanges = None

    def _counts_of(self, label: Label) -> Counts:
        return self.counts.setdefault(label, Counts())

    def _tidy(self) -> None:
        assert self.exchanges is not None  # noqa: S101 - set before the timer is
        now_s = self.exchanges.loop.time()
        for shared in self._shared.values():
            shared.tidy(now_s)
        self._tidying = self.exchanges.loop.call_later(TIDY_S, self._tidy) if self._shared else None
