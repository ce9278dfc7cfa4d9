"""The texts of OSErrors for users."""

from __future__ import annotations

import os
import ssl
from typing import Final

CERTIFICATE_AND_KEY: Final = "expected a certificate (PEM) and its key, without a password"
CERTIFICATES: Final = "expected certificates (PEM)"


def os_reason(error: OSError) -> str:
    """The system's text for an error, such as `Connection refused`; asyncio's texts have no reason."""
    number = error.errno or 0  # negative for a host name that does not resolve, another code where TLS fails
    is_system = number > 0 and not isinstance(error, ssl.SSLError)
    return os.strerror(number) if is_system else error.strerror or str(error) or type(error).__name__


def pem_reason(error: Exception, expected: str) -> str:
    return os_reason(error) if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else expected
