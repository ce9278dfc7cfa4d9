"""Authentication of requests: bearer tokens, or loopback without requests of web pages.

Without tokens the server listens on loopback only. A browser on the same machine can reach loopback for any web page,
so such a server refuses requests with an Origin, and requests whose Host header is not its own (DNS rebinding). A GET
for an image, script, form or link has no Origin; browsers mark it with Sec-Fetch-Site (W3C Fetch Metadata), and older
ones name the page in Referer. An address that a person types into the address bar is served.
"""

from __future__ import annotations

import hmac
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from kdns.controlplane.meta.errors import StatusError
from kdns.errors import InputError
from kdns.net import is_loopback, parse_port, split_host_port

OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})
"""Paths that need no token, as in a cluster of kubeadm."""

READY_PATHS = frozenset({"/healthz", "/readyz"})
"""Paths that also check that the store can write."""


@dataclass(frozen=True, slots=True)
class RestConfig:
    """The listener of the REST server, its authentication and its limits.

    `hosts` are further names that are accepted in the Host header of an unauthenticated request.
    `idle_s` is how long a connection may be idle before its first request and between two.
    `watch_timeout_s` ends watches that ask for no timeout; `bookmark_interval_s` is the interval of their bookmarks.
    """

    host: str = "127.0.0.1"
    port: int = 8001
    tokens: tuple[str, ...] = ()
    ssl_context: ssl.SSLContext | None = None
    hosts: tuple[str, ...] = ()
    idle_s: float = 120.0
    watches_max: int = 1000
    body_bytes_max: int = 3 * 1024 * 1024
    watch_timeout_s: float = 3000.0
    bookmark_interval_s: float = 60.0


def check_config(config: RestConfig) -> None:
    """InputError for an address other than loopback without tokens and TLS."""
    if not all(config.tokens):
        raise InputError("the token file holds an empty token: anybody could use it")
    if is_loopback(config.host):
        return
    missing = [name for name, value in (("a token file", config.tokens), ("TLS", config.ssl_context)) if not value]
    if missing:
        raise InputError(
            f"the API may not listen on {config.host} without {' and '.join(missing)}: "
            "only a loopback address such as 127.0.0.1 may do without"
        )


def check_request(config: RestConfig, path: str, headers: Mapping[str, str]) -> bool:
    """With tokens, 401 for a request without a valid one; without tokens, 403 for a request of a web page.

    False for a request that is served without having been authenticated.
    """
    if config.tokens:
        is_authenticated = _has_token(config.tokens, headers.get("Authorization", ""))
        if not is_authenticated and path not in OPEN_PATHS:
            raise StatusError(401, "Unauthorized", "Unauthorized")
        return is_authenticated
    origin = headers.get("Origin")
    if origin is not None:
        raise _forbidden(f"requests from web pages are refused, this one is from origin {origin!r}")
    site = headers.get("Sec-Fetch-Site", "none")
    if site not in {"none", "same-origin"}:
        raise _forbidden(f"requests from web pages are refused, this one is {site}")
    referer = headers.get("Referer")
    if referer is not None and referer.split("/")[2:3] != [headers.get("Host")]:
        raise _forbidden(f"requests from web pages are refused, this one is from {referer[:100]!r}")
    host = _host(headers.get("Host", ""))
    if not (is_loopback(host) or host.lower() in {config.host, *config.hosts}):
        raise _forbidden(f"the Host header {host!r} is not this server's; use {config.host}, or configure the name")
    return True


def _has_token(tokens: tuple[str, ...], authorization: str) -> bool:
    scheme, _, credentials = authorization.partition(" ")
    sent = credentials.strip().encode(errors="surrogateescape")
    equal = [hmac.compare_digest(sent, token.encode()) for token in tokens]  # all of them: no timing tells which
    return scheme.lower() == "bearer" and any(equal)


def _forbidden(why: str) -> StatusError:
    return StatusError(403, "Forbidden", f"forbidden: {why}", {})


def _host(header: str) -> str:
    """The host of a Host header with or without a port (RFC 9110 §7.2), or all of it where it is none."""
    host, port = split_host_port(header) or (header, "")
    return header if port and parse_port(port) is None else host
