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
    """How an upstream proves who it is: `server_name` is the name in its certificate, "" for its address.

    `ca_path` has the roots that are trusted, "" for those of the system; `cert_path` and `key_path` are the client's
    own certificate.
    """

    server_name: str = ""
    ca_path: str = ""
    cert_path: str = ""
    key_path: str = ""


@dataclass(frozen=True, slots=True)
class UpstreamSpec:
    """One server. `host` is an IP address, with an IPv6 zone if need be; times in seconds.

    Connections that were idle for `expire_s`, or that are older than `max_age_s`, are not used again; at most
    `max_idle` of them are kept, None for the default bound. `doh_method` is that of DNS over HTTPS.
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
    """The exchange timed out."""


class Upstream(Protocol):
    """One server, with the sockets and connections that are kept for it."""

    @property
    def spec(self) -> UpstreamSpec: ...

    def exchange(self, query: Query, transport: Transport, timeout_s: float, client: str = "") -> Awaitable[bytes]:
        """Sends a query; awaited, the whole message that answers it, or UpstreamError.

        It is sent with another id, in random case over UDP, and without options of one hop (cookie, keepalive,
        padding); `message.response_to` puts id and spelling back. What does not answer it is ignored over UDP and an
        error elsewhere. `transport` matters for the scheme `dns` only. `client` is an address, "" for kdns itself.
        """
        ...

    def close(self) -> None: ...
