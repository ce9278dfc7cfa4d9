"""Certificates and bearer tokens of the API server, read from the files of its options."""

from __future__ import annotations

import csv
import re
import ssl
from errno import EILSEQ
from pathlib import Path
from typing import Final

from kdns.controlplane.server.access import ADMIN, User, authenticated
from kdns.errors import InputError
from kdns.runtime.files.bounded import bounded_text
from kdns.runtime.os_errors import CERTIFICATE_AND_KEY, CERTIFICATES, pem_reason
from kdns.runtime.tls import default_context

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def tls_context(cert: str, key: str, client_ca: str = "") -> ssl.SSLContext | None:
    """From --tls-cert, --tls-key and --client-ca-file; None without the first.

    With a client CA, it requests optional certificates. Raises InputError for files that cannot be used.
    """
    if not cert:
        for option, value in (("--tls-key", key), ("--client-ca-file", client_ca)):
            if value:
                raise InputError(f"{option} {value}: set --tls-cert too")
        return None
    context = default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key or None, password="")  # without one, OpenSSL would prompt at the terminal
    except OSError as error:
        options = f"--tls-cert {cert}" + (f", --tls-key {key}" if key else "")
        why = pem_reason(error, CERTIFICATE_AND_KEY)
        raise InputError(f"{options}: {why}") from error
    if client_ca:
        _verify_clients(context, client_ca)
    return context


class _AlertSSLObject(ssl.SSLObject):
    """Sends a TLS alert when it refuses a client's certificate; asyncio would close the connection without."""

    _refusal: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        if self._refusal:
            raise self._refusal
        try:
            super().do_handshake()
        except ssl.SSLCertVerificationError as error:
            self._refusal = error
            raise ssl.SSLWantReadError from error  # makes asyncio send its data, and wait for the client's end


def _verify_clients(context: ssl.SSLContext, client_ca: str) -> None:
    """Trusts every certificate of the file as an authority.

    Like kube-apiserver, it skips further checks of RFC 5280.
    """
    try:
        context.load_verify_locations(client_ca)
    except OSError as error:
        raise InputError(f"--client-ca-file {client_ca}: {pem_reason(error, CERTIFICATES)}") from error
    if not context.get_ca_certs():
        raise InputError(
            f"--client-ca-file {client_ca}: no certificate of an authority; expected the clients' authority"
        )
    context.sslobject_class = _AlertSSLObject
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags = ssl.VERIFY_X509_TRUSTED_FIRST | ssl.VERIFY_X509_PARTIAL_CHAIN


def certificates(path: str) -> str:
    """The certificates of a PEM file, without its keys."""
    text = bounded_text(path, encoding="ascii", errors="replace")
    return "".join(f"{block}\n" for block in _CERTIFICATE.findall(text))


def read_tokens(path: Path) -> dict[str, User]:
    """Users by bearer token: each line has a token, or kube-apiserver's `token,user,uid,"group,group"`.

    A token alone belongs to kubernetes-admin. Blank lines and lines that begin with # are ignored. If a token occurs
    twice, the last line wins.
    """
    try:
        lines = bounded_text(path).splitlines()
    except OSError as error:
        reason = "not text; expected one token per line" if error.errno == EILSEQ else error.strerror
        raise InputError(f"--token-file {path}: {reason}") from error
    rows = ((number, line.strip()) for number, line in enumerate(lines, 1))
    tokens = dict(_token(path, number, line) for number, line in rows if line and not line.startswith("#"))
    if not tokens:
        raise InputError(f"--token-file {path}: has no token; expected one per line")
    return tokens


def _token(path: Path, number: int, line: str) -> tuple[str, User]:
    if "," not in line:
        return line, ADMIN
    token, name, uid, groups, *_ = (*(column.strip() for column in next(csv.reader([line]))), "", "", "")
    if not (token and name and line.count(",") > 1):
        raise InputError(f'--token-file {path}:{number}: expected a token, or token,user,uid,"group,group"')
    members = tuple(group.strip() for group in groups.split(",") if group.strip())
    return token, authenticated(User(name, members, uid))
