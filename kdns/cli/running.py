"""Requests to the status pages of a running kdns."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Final, NamedTuple

from kdns.errors import InputError
from kdns.net import HostPort

TIMEOUT_S: Final = 10.0
ANSWER_MAX_BYTES: Final = 4 << 20


class Answer(NamedTuple):
    """The status of a response, its text, and the value of one header, None if it is absent."""

    status: int
    text: str
    header: str | None


def answer(flag: str, address: HostPort, path: str, page: str, header: str = "") -> Answer:
    """Raises InputError if nothing answers; the error calls the expected server `page`."""
    connection = HTTPConnection(address.host, address.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        response: HTTPResponse = connection.getresponse()
        text = response.read(ANSWER_MAX_BYTES).decode(errors="replace").rstrip("\n")
    except (OSError, HTTPException) as error:
        raise InputError(f"{flag} {address}: {error}; the address is that of {page}") from error
    finally:
        connection.close()
    return Answer(response.status, text, response.headers.get(header))
