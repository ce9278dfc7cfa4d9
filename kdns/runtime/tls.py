"""TLS contexts that judge certificates alike in all versions of Python."""

from __future__ import annotations

import ssl


def default_context(
    purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH, *, ca_path: str = "", ca_pem: str | None = None
) -> ssl.SSLContext:
    """Returns Python's default context for these authorities; those of the system where none are given.

    From Python 3.13 on, the default also refuses authorities without an authority key identifier. Go accepts them, and
    they are common in clusters, so they are accepted here too.
    """
    context = ssl.create_default_context(purpose, cafile=ca_path or None, cadata=ca_pem)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
