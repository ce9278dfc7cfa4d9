"""TLS contexts that judge certificates alike in all versions of Python."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final


def default_context(purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH, *, ca_path: str = "") -> ssl.SSLContext:
    """Returns Python's default context for these authorities; those of the system where none are given.

    From Python 3.13 on, the default also refuses authorities without an authority key identifier. Go accepts them, and
    they are common in clusters, so they are accepted here too.
    """
    context = ssl.create_default_context(purpose, cafile=ca_path or None)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


@contextmanager
def without_system_authorities() -> Iterator[None]:
    """Lets contexts that are made inside trust no authority of the system. No other thread may make one meanwhile.

    It is meant for imports: aiohttp makes two contexts when it is imported, which takes 50 ms with the usual 140
    authorities. kdns always passes contexts of its own.
    """
    loads: Final[dict[str, Any]] = {
        name: getattr(ssl.SSLContext, name) for name in ("load_default_certs", "set_default_verify_paths")
    }
    for name in loads:
        setattr(ssl.SSLContext, name, lambda *_: None)
    try:
        yield
    finally:
        for name, load in loads.items():
            setattr(ssl.SSLContext, name, load)
