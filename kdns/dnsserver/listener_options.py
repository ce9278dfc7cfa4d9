"""What directives say about the listeners of a server block: TLS, and how long and how much a connection may."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from kdns.corefile.lexer import Token

TLS_USAGE: Final = "tls CERT KEY [CA]"
UNLIMITED_QUERIES: Final = -1
"""Queries of a connection over TCP without a limit."""
HTTPS_CONNECTIONS: Final = 200
"""Connections to one address over HTTPS without `https { max_connections }`, as in CoreDNS."""
QUIC_STREAMS: Final = 256
"""Queries of one QUIC connection that may be open, without `quic { max_streams }`, as in CoreDNS."""
QUIC_PENDING: Final = 1024
"""Queries of all QUIC connections to one address that may wait for an answer, as in CoreDNS."""


class ClientAuth(Enum):
    """What a client has to show of itself, by CoreDNS's words for it."""

    NOCERT = "nocert"
    REQUEST = "request"
    REQUIRE = "require"
    VERIFY_IF_GIVEN = "verify_if_given"
    REQUIRE_AND_VERIFY = "require_and_verify"


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """Files in PEM: the server's certificate and key, and the authorities of clients; `keylog` is "" for no file.

    `at` is the directive, for errors about files.
    """

    cert: str
    key: str
    ca: str = ""
    client_auth: ClientAuth = ClientAuth.NOCERT
    keylog: str = ""
    at: Token | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """What a server block says about its listeners; None where it says nothing."""

    tls: TlsConfig | None = None
    read_s: float | None = None
    write_s: float | None = None
    idle_s: float | None = None
    max_tcp_queries: int | None = None
    https_connections: int | None = None
    quic_streams: int | None = None
    quic_pending: int | None = None

    def overridden(self, other: ListenerOptions) -> ListenerOptions:
        """These, with what the other ones say in their place."""
        said = {name: value for name in self.__slots__ if (value := getattr(other, name)) is not None}
        return replace(self, **said)
