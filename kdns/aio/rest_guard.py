"""Who may speak to the REST server: addresses, bearer tokens, and no web pages.

Without tokens the server listens on loopback only. A browser on the same machine can reach loopback for any web page,
so such a server refuses requests that carry an Origin, and Host headers that are not its own (DNS rebinding). Images,
scripts, forms and links of a page send no Origin with a GET; browsers mark those with Sec-Fetch-Site (W3C Fetch
Metadata), and older ones name the page in Referer. What a person types into the address bar is answered.
"""

from __future__ import annotations

import hmac
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from kdns.controlplane.status import StatusError
from kdns.errors import InputError

OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})
"""Paths that need no token, as in a real cluster."""

READY_PATHS = frozenset({"/healthz", "/readyz"})
"""Paths that also say whether writes can be kept."""


@dataclass(frozen=True, slots=True)
class RestConfig:
    """Where and for whom the REST server listens.

    `hosts` are further names that may stand in a Host header of an unauthenticated request.
    `idle_s` is how long a connection may be silent, before its first request and between two.
    `watch_timeout_s` ends watches that name no timeout; `bookmark_interval_s` is how often idle ones hear a bookmark.
    """

    host: str = "127.0.0.1"
    port: int = 8001
    tokens: tuple[str, ...] = ()
    ssl_context: ssl.SSLContext | None = None
    hosts: tuple[str, ...] = ()
    connections_max: int = 2000
    idle_s: float = 120.0
    watches_max: int = 1000
    body_bytes_max: int = 3 * 1024 * 1024
    watch_timeout_s: float = 3000.0
    bookmark_interval_s: float = 60.0


def is_loopback(host: str) -> bool:
    """Whether a host, as written in a URL without port, can only be this machine."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_config(config: RestConfig) -> None:
    """InputError when the server would be open to others without authentication or encryption."""
    if not all(config.tokens):
        raise InputError("the token file holds an empty token: anybody could use it")
    if is_loopback(config.host):
        return
    missing = [what for what, there in (("a token file", config.tokens), ("TLS", config.ssl_context)) if not there]
    if missing:
        raise InputError(
            f"the API may not listen on {config.host} without {' and '.join(missing)}: "
            "only a loopback address such as 127.0.0.1 may do without"
        )


def check_request(config: RestConfig, path: str, headers: Mapping[str, str]) -> None:
    """401 without a good token where there are tokens; 403 for a browser where there are none."""
    if config.tokens:
        if path not in OPEN_PATHS:
            _check_token(config.tokens, headers.get("Authorization", ""))
        return
    origin = headers.get("Origin")
    if origin is not None:
        raise _refused(f"requests from web pages are refused, this one is from origin {origin!r}")
    site = headers.get("Sec-Fetch-Site", "none")
    if site not in {"none", "same-origin"}:
        raise _refused(f"requests from web pages are refused, this one is {site}")
    referer = headers.get("Referer")
    if referer is not None and referer.split("/")[2:3] != [headers.get("Host")]:
        raise _refused(f"requests from web pages are refused, this one is from {referer[:100]!r}")
    host = _without_port(headers.get("Host", ""))
    if not (is_loopback(host) or host.lower() in {config.host, *config.hosts}):
        raise _refused(f"the Host header {host!r} is not this server's; use {config.host}, or configure the name")


def _check_token(tokens: tuple[str, ...], authorization: str) -> None:
    scheme, _, given = authorization.partition(" ")
    sent = given.strip().encode(errors="surrogateescape")
    known = [hmac.compare_digest(sent, token.encode()) for token in tokens]
    if scheme.lower() != "bearer" or not any(known):
        raise StatusError(401, "Unauthorized", "Unauthorized")


def _refused(why: str) -> StatusError:
    return StatusError(403, "Forbidden", f"forbidden: {why}", {})


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
