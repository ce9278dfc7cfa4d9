"""The verification of an upstream's certificate, and its error messages."""

from __future__ import annotations

import asyncio
import ssl
from functools import lru_cache
from pathlib import Path
from typing import Final

from kdns.errors import InputError
from kdns.runtime.tls import default_context
from kdns.upstream.upstream import TlsSpec, UpstreamError, UpstreamSpec, UpstreamUnreachableError

HTTPS_ALPN: Final = ("h2", "http/1.1")
"""Protocols offered by ALPN, the preferred one first (RFC 7301, RFC 9113 §3.2)."""
MAX_CONTEXTS: Final = 64
"""The most cached contexts; upstreams with the same files share one, because each loads 140 roots."""

# OpenSSL's X509_V_ERR numbers (x509_vfy.h).
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_OTHER_NAME: Final = frozenset((62, 64))


class Tls:
    """`name` is the name that the certificate must have. InputError for bad files."""

    def __init__(self, spec: UpstreamSpec) -> None:
        self.name = spec.tls.server_name.rstrip(".") or spec.address.host.partition("%")[0]
        self._spec = spec.tls
        self._stamps = _stamps(spec.tls)
        self._alpn = HTTPS_ALPN if spec.scheme == "https" else ()
        self._context = _context(self._spec, self._alpn, self._stamps) if spec.tls.ca_path else None
        if spec.tls.cert_path and self._context is None:
            _load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), spec.tls)

    async def context(self) -> ssl.SSLContext:
        """TLS 1.2 or later; the certificate is always verified."""
        if self._context is None:  # in a thread: loading the system's roots takes 20 ms
            self._context = await asyncio.to_thread(_context, self._spec, self._alpn, self._stamps)
        return self._context


def refusal(error: ssl.SSLError | ssl.CertificateError, name: str) -> UpstreamError:
    if not isinstance(error, ssl.SSLCertVerificationError):
        reason = getattr(error, "reason", None) or str(error)
        return UpstreamUnreachableError(f"TLS failed: {reason.replace('_', ' ').lower()}")
    if error.verify_code in _OTHER_NAME:
        return UpstreamUnreachableError(f"the certificate is not for {name}")
    if error.verify_code == _EXPIRED:
        return UpstreamUnreachableError("the certificate has expired")
    if error.verify_code == _NOT_YET_VALID:
        return UpstreamUnreachableError("the certificate is not valid yet")
    return UpstreamUnreachableError(f"the certificate is not trusted: {error.verify_message}")


def _stamps(spec: TlsSpec) -> tuple[int, ...]:
    """The files' modification times: a replaced certificate needs a new context."""
    try:
        return tuple(Path(path).stat().st_mtime_ns for path in (spec.ca_path, spec.cert_path, spec.key_path) if path)
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from error


@lru_cache(MAX_CONTEXTS)
def _context(spec: TlsSpec, alpn: tuple[str, ...], stamps: tuple[int, ...]) -> ssl.SSLContext:
    del stamps
    try:
        context = default_context(ca_path=spec.ca_path)
    except (OSError, ValueError) as error:
        raise InputError(f"{spec.ca_path}: expected certificates of authorities: {error}") from error
    if spec.cert_path:
        _load_certificate(context, spec)
    if alpn:
        context.set_alpn_protocols(alpn)
    return context


def _load_certificate(context: ssl.SSLContext, spec: TlsSpec) -> None:
    try:
        context.load_cert_chain(spec.cert_path, spec.key_path or None, password="")
    except (OSError, ValueError) as error:
        raise InputError(f"{spec.cert_path}: not a certificate with the key in {spec.key_path}: {error}") from error
