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
    """Whether clients need a certificate, in CoreDNS's words."""

    NOCERT = "nocert"
    REQUEST = "request"
    REQUIRE = "require"
    VERIFY_IF_GIVEN = "verify_if_given"
    REQUIRE_AND_VERIFY = "require_and_verify"


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """PEM files; `ca` are the authorities of client certificates. `at` is the directive, for errors about files."""

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
    """Options of an address, or those that one server block sets: None and 0 are not set, inf is no limit.

    `idle_s`, `read_s`, `write_s`: timeouts of an idle connection, of a message that arrives, and of an answer that the
    client reads. `max_queries` is per connection, `https_connections` per address, `quic_streams` per connection,
    `quic_pending` for the queries of all QUIC connections to one address.
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
"""Timeouts as in RFC 7766 §6.2.3, and CoreDNS's limits of HTTPS and QUIC.

A connection closes after `max_queries`, so that clients are distributed over replicas again.
"""


def overridden(options: Options, others: Options) -> Options:
    """The options, overridden by those that `others` sets: not None, 0, "" or ()."""
    return replace(options, **{field.name: value for field in fields(others) if (value := getattr(others, field.name))})


def listener_options(blocks: Iterable[ListenerOptions]) -> ListenerOptions:
    """Of an address with these blocks; the last block that sets an option applies."""
    return reduce(overridden, blocks, DEFAULTS)
