"""Authentication of requests: client certificates and bearer tokens, or else loopback, closed to web pages.

Without certificates and tokens the server listens on loopback only. A browser on the same machine can reach loopback
for any web page, so such a server refuses requests with an Origin, and requests whose Host header is not its own (DNS
rebinding). A GET for an image, script, form or link has no Origin; browsers mark it with Sec-Fetch-Site (W3C Fetch
Metadata), and older ones name the page in Referer. An address that a person types into the address bar is served.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.server.access import ADMIN, User, authenticated
from kdns.errors import InputError
from kdns.net import is_loopback, parse_port, split_host_port

OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})
"""Paths that need no login, as in a cluster of kubeadm."""

_UID_OID = "1.3.6.1.4.1.57683.2"
"""The attribute of a subject that has a user's uid (kube-apiserver: AllowParsingUserUIDFromCertAuth)."""


@dataclass(frozen=True, slots=True)
class RestConfig:
    """The listener of the REST server, its authentication and its limits.

    `hosts` are further names that are accepted in the Host header of an unauthenticated request. A connection may be
    idle for `idle_s` before its first request and between two. `watch_timeout_s` ends watches without a timeout of
    their own; `bookmark_interval_s` is the interval of their bookmarks.
    """

    host: str = "127.0.0.1"
    port: int = 8001
    tokens: Mapping[str, User] = field(default_factory=dict)
    ssl_context: ssl.SSLContext | None = None
    hosts: tuple[str, ...] = ()
    idle_s: float = 120.0
    watches_max: int = 1000
    body_bytes_max: int = 3 * 1024 * 1024
    watch_timeout_s: float = 3000.0
    bookmark_interval_s: float = 60.0

    @property
    def asks_for_certificates(self) -> bool:
        return self.ssl_context is not None and self.ssl_context.verify_mode != ssl.CERT_NONE

    def user_of(self, token: str) -> User | None:
        """None for an unknown token."""
        sent = token.encode(errors="surrogateescape")
        # always compares all tokens: the time reveals none
        users = [user for known, user in self.tokens.items() if hmac.compare_digest(sent, known.encode())]
        return users[0] if users else None


def check_config(config: RestConfig) -> None:
    """Raises InputError for an address other than loopback without authentication and TLS."""
    if not all(config.tokens):
        raise InputError("the token file holds an empty token: anybody could use it")
    if is_loopback(config.host):
        return
    logins = config.tokens or config.asks_for_certificates
    needed = {"--token-file or --client-ca-file": logins, "--tls-cert": config.ssl_context}
    missing = [name for name, value in needed.items() if not value]
    if missing:
        raise InputError(
            f"--api {config.host}: set {' and '.join(missing)} too, because other machines can reach the API; "
            "only a loopback address such as 127.0.0.1 works without"
        )


def user_of_request(
    config: RestConfig, path: str, headers: Mapping[str, str], tls: ssl.SSLObject | None, now_s: float
) -> User | None:
    """The user by certificate or token; None for an unauthenticated request to an open path.

    Raises 401, or without authentication 403 for a web page's request.
    """
    if config.tokens or config.asks_for_certificates:
        user = _certified(tls, now_s) if tls and config.asks_for_certificates else None
        user = user or config.user_of(_bearer_token(headers.get("Authorization", "")))
        if user is None and path not in OPEN_PATHS:
            raise StatusError(401, "Unauthorized", "Unauthorized")
        return user
    _refuse_web_pages(config, headers)
    return ADMIN


def _certified(tls: ssl.SSLObject, now_s: float) -> User | None:
    """The user whom a verified certificate names: CN, and an O per group.

    Differs: a certificate of an unknown authority, or an expired one, ends the handshake; kube-apiserver answers 401.
    One that expires during the connection is 401 here too.
    """
    certificate, encoded = tls.getpeercert(), tls.getpeercert(binary_form=True)
    if not certificate or not encoded or ssl.cert_time_to_seconds(str(certificate["notAfter"])) <= now_s:
        return None
    subject = [pair for names in certificate.get("subject", ()) for pair in names if isinstance(pair, tuple)]
    by_name = {str(name): str(value) for name, value in subject}  # the last of a name wins
    if not by_name.get("commonName"):
        return None
    groups = tuple(str(value) for name, value in subject if name == "organizationName")
    fingerprint = f"X509SHA256={hashlib.sha256(encoded).hexdigest()}"
    extra = {"authentication.kubernetes.io/credential-id": (fingerprint,)}
    return authenticated(User(by_name["commonName"], groups, by_name.get(_UID_OID, ""), extra))


def _refuse_web_pages(config: RestConfig, headers: Mapping[str, str]) -> None:
    origin = headers.get("Origin")
    if origin is not None:
        raise _forbidden(f"requests from web pages are refused, this one is from origin {origin!r}")
    site = headers.get("Sec-Fetch-Site", "none")
    if site not in {"none", "same-origin"}:
        raise _forbidden(f"requests from web pages are refused, this one is {site}")
    referer = headers.get("Referer")
    if referer is not None and referer.split("/")[2:3] != [headers.get("Host")]:
        raise _forbidden(f"requests from web pages are refused, this one is from {referer[:100]!r}")
    header = headers.get("Host", "")
    if not (_is_local(header) or (host := _host(header)).lower() in {config.host, *config.hosts}):
        raise _forbidden(f"the Host header {host!r} is not this server's; use {config.host}, or configure the name")


def _bearer_token(authorization: str) -> str:
    scheme, _, credentials = authorization.partition(" ")
    return credentials.strip() if scheme.lower() == "bearer" else ""


def _forbidden(why: str) -> StatusError:
    return StatusError(403, "Forbidden", f"forbidden: {why}", {})


@lru_cache(maxsize=64)
def _is_local(header: str) -> bool:
    return is_loopback(_host(header))


def _host(header: str) -> str:
    """The host of a Host header with or without a port (RFC 9110 §7.2), or the whole header."""
    host, port = split_host_port(header) or (header, "")
    return header if port and parse_port(port) is None else host
