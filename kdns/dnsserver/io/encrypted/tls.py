"""The TLS context of a listener."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from kdns.errors import CorefileError, InputError
from kdns.runtime.os_errors import CERTIFICATE_AND_KEY, CERTIFICATES, os_reason, pem_reason
from kdns.serverblocks.listener_options import ClientAuth, TlsConfig

MODES = {
    ClientAuth.NOCERT: ssl.CERT_NONE,
    ClientAuth.REQUEST: ssl.CERT_NONE,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
    ClientAuth.VERIFY_IF_GIVEN: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE_AND_VERIFY: ssl.CERT_REQUIRED,
}
"""Differs: a certificate that would not be verified is not requested, and a required one is verified."""


def server_context(config: TlsConfig, alpn: Sequence[str]) -> ssl.SSLContext:
    """For TLS 1.2 and later; raises CorefileError for an invalid file.

    Without `ca`, certificates of clients are verified by the system's authorities.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(config.cert, config.key, password="")  # else OpenSSL would prompt
    except (OSError, ValueError) as error:
        raise no_certificate(config, error) from error
    context.verify_mode = MODES[config.client_auth]
    try:
        if config.ca:
            context.load_verify_locations(config.ca)
        elif context.verify_mode != ssl.CERT_NONE:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    except (OSError, ValueError) as error:
        raise refused(config, f"no certificates in {config.ca}", pem_reason(error, CERTIFICATES)) from error
    if config.keylog:
        try:
            context.keylog_filename = config.keylog
        except OSError as error:
            raise refused(config, f"keys cannot be written to {config.keylog}", os_reason(error)) from error
    context.set_alpn_protocols(list(alpn))
    return context


def no_certificate(config: TlsConfig, error: Exception) -> InputError:
    reason = pem_reason(error, CERTIFICATE_AND_KEY)
    return refused(config, f"no certificate and key in {config.cert} and {config.key}", reason)


def refused(config: TlsConfig, what: str, reason: str) -> InputError:
    if config.at is None:
        return InputError(f"tls: {what}: {reason}")
    return CorefileError(config.at.path, config.at.line, config.at.text, f"{what}: {reason}").of("tls")
