"""The options of a server block's listeners: TLS, and limits of time and number for connections."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import reduce
from typing import Any, Final, TypeVar

from kdns.corefile.lexer import Token

Options = TypeVar("Options", bound=Any)

TLS_USAGE: Final = "tls CERT KEY [CA]"


class ClientAuth(Enum):
    """Requirements for certificates of clients, by CoreDNS's words."""

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

    def below(self, path: Callable[[str], str]) -> TlsConfig:
        files = (self.cert, self.key, self.ca, self.keylog)
        cert, key, ca, keylog = (name and path(name) for name in files)
        return replace(self, cert=cert, key=key, ca=ca, keylog=keylog)


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """How clients of an address are served; what a server block says of it, None and 0 where it says nothing.

    A connection may be idle, a message may take to arrive, and an answer may take to be read, for so many seconds; a
    connection has so many queries. `https_connections` are those of one address over HTTPS. Of one QUIC connection
    `quic_streams` queries may be open, and of all to one address `quic_pending` may wait for an answer. inf: no limit.
    """

    tls: TlsConfig | None = None
    idle_s: float = 0.0
    read_s: float = 0.0
    write_s: float = 0.0
    max_queries: float = 0
    https_connections: float = 0
    quic_streams: int = 0
    quic_pending: int = 0

    @property
    def least_s(self) -> float:
        return min(self.idle_s, self.read_s, self.write_s)


DEFAULTS: Final = ListenerOptions(
    idle_s=10.0,
    read_s=10.0,
    write_s=10.0,
    max_queries=100_000,
    https_connections=200,
    quic_streams=256,
    quic_pending=1024,
)
"""The defaults: times as in RFC 7766 §6.2.3, and CoreDNS's limits of HTTPS and QUIC.

After so many queries a connection closes, so that clients are distributed over replicas again.
"""


def overridden(options: Options, others: Options) -> Options:
    """Returns the options, overridden by those that the others set: neither None, 0, "" nor ()."""
    return replace(options, **{field.name: value for field in fields(others) if (value := getattr(others, field.name))})


def listener_options(blocks: Iterable[ListenerOptions]) -> ListenerOptions:
    """Returns the options of an address with these blocks; the last block that sets an option decides."""
    return reduce(overridden, blocks, DEFAULTS)
