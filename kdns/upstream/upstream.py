"""Upstreams: their specification, their interface, and the errors of an exchange."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from kdns.dns.query import Query
from kdns.errors import KdnsError
from kdns.net import HostPort

Scheme: TypeAlias = Literal["dns", "tls", "https"]
"""UDP and TCP (RFC 1035), DNS over TLS (RFC 7858), DNS over HTTPS (RFC 8484)."""
Transport: TypeAlias = Literal["udp", "tcp"]


@dataclass(frozen=True, slots=True)
class TlsSpec:
    """`server_name` is the name in the upstream's certificate, "" for its address.

    `ca_path` has the trusted roots, "" for the system's; `cert_path` and `key_path` are the client certificate.
    """

    server_name: str = ""
    ca_path: str = ""
    cert_path: str = ""
    key_path: str = ""


@dataclass(frozen=True, slots=True)
class UpstreamSpec:
    """One server; the host of `address` is an IP address, perhaps with an IPv6 zone.

    Connections that were idle for `expire_s`, or that are older than `max_age_s`, are not used again; at most
    `max_idle` idle ones stay open, None for the default.
    """

    address: HostPort
    scheme: Scheme = "dns"
    tls: TlsSpec = TlsSpec()
    expire_s: float = 10.0
    max_age_s: float | None = None
    max_idle: int | None = None
    source_address: str = ""
    doh_method: Literal["GET", "POST"] = "POST"


class UpstreamError(KdnsError):
    """An exchange without a response. The message is the reason, without the address."""


class UpstreamUnreachableError(UpstreamError):
    """The connection failed: nothing was sent, so another attempt costs the upstream nothing."""


class UpstreamTimeoutError(UpstreamError):
    """The connection was there, the response did not come in time."""


class Upstream(Protocol):
    """One server with its sockets and connections."""

    @property
    def spec(self) -> UpstreamSpec: ...

    def exchange(self, query: Query, transport: Transport, timeout_s: float, client: str = "") -> Awaitable[bytes]:
        """Sends a query; await the response or UpstreamError.

        The query is sent with another id, in random case over UDP, and without hop-by-hop options (cookie, keepalive,
        padding); `message.response_to` restores id and spelling. Messages that do not answer it are ignored over UDP,
        and errors otherwise. `transport` is for the scheme `dns` only. `client` is an address, "" for kdns itself.
        """
        ...

    def close(self) -> None: ...
