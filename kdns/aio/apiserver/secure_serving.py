"""Certificates and bearer tokens of the API server, read from the files of its options."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Final

from kdns.errors import InputError

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def tls_context(cert: str, key: str) -> ssl.SSLContext | None:
    """The TLS context of --tls-cert and --tls-key, None without; InputError for files that cannot be used."""
    if not cert:
        if key:
            raise InputError(f"--tls-key {key}: wanted --tls-cert too")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key or None)
    except (OSError, ssl.SSLError) as error:
        given = f"--tls-cert {cert}" + (f", --tls-key {key}" if key else "")
        missing = isinstance(error, OSError) and not isinstance(error, ssl.SSLError)
        why = error.strerror if missing else "wanted a certificate (PEM) and the key that belongs to it"
        raise InputError(f"{given}: {why}") from error
    return context


def certificates(path: str) -> str:
    """The certificates of a PEM file, without its keys."""
    text = Path(path).read_text(encoding="ascii", errors="replace")
    return "".join(f"{block}\n" for block in _CERTIFICATE.findall(text))


def read_tokens(path: Path) -> tuple[str, ...]:
    """The bearer tokens of a file, one a line, without blank lines and lines that begin with #."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text; wanted one token a line"
        raise InputError(f"--token-file {path}: {reason}") from error
    tokens = tuple(line for line in lines if line and not line.startswith("#"))
    if not tokens:
        raise InputError(f"--token-file {path}: holds no token; wanted one a line")
    return tokens
