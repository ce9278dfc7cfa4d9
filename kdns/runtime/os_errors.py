"""What is said to a user of an OSError."""

from __future__ import annotations

import os
import ssl
from typing import Final

CERTIFICATE_AND_KEY: Final = "wanted a certificate (PEM) and the key that belongs to it, without a password"
CERTIFICATES: Final = "wanted certificates (PEM)"


def os_reason(error: OSError) -> str:
    """The system's own words for what was wrong, such as `Connection refused`; asyncio's have no reason in them."""
    number = error.errno or 0  # negative for a host name that does not resolve, another code where TLS fails
    is_system = number > 0 and not isinstance(error, ssl.SSLError)
    return os.strerror(number) if is_system else error.strerror or str(error) or type(error).__name__


def pem_reason(error: Exception, wanted: str) -> str:
    """Why a PEM file is of no use: it cannot be read, or it does not hold what is wanted."""
    return os_reason(error) if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else wanted
