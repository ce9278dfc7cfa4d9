"""TLS contexts that judge certificates alike in all versions of Python."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final


def default_context(purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH, *, ca_path: str = "") -> ssl.SSLContext:
    """Python's default context, for the authorities of this file, or those of the system without one."""
    context = ssl.create_default_context(purpose, cafile=ca_path or None)
    # Python 3.13 refuses authorities without a key identifier; Go does not, and they are common in clusters.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


@contextmanager
def without_system_authorities() -> Iterator[None]:
    """For imports, and no other thread: aiohttp's makes two contexts that kdns never uses, which takes 50 ms."""
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
