"""`kdns explain --admin`: the explanation of a kdns that runs, from its status page."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Final
from urllib.parse import urlencode

from kdns.errors import InputError
from kdns.net import HostPort
from kdns.status.paths import ANSWERED, EXPLAIN

TIMEOUT_S: Final = 10.0
ANSWER_MAX_BYTES: Final = 4 << 20


def asked_of(admin: HostPort, name: str, qtype: str, namespace: str, output: str) -> tuple[str, bool]:
    """The explanation, and whether the name has an answer. Raises InputError, also if no kdns answers there."""
    asked = {"name": name, "type": qtype, "namespace": namespace, "output": output}
    connection = HTTPConnection(admin.host, admin.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", f"{EXPLAIN}?{urlencode(asked)}")
        response: HTTPResponse = connection.getresponse()
        text = response.read(ANSWER_MAX_BYTES).decode(errors="replace").rstrip("\n")
    except (OSError, HTTPException) as error:
        raise InputError(f"--admin {admin}: {error}; the address is that of the directive `status`") from error
    finally:
        connection.close()
    if (answered := response.headers.get(ANSWERED)) is None:
        nobody = f"no kdns with the directive `status` answers there (HTTP status {response.status})"
        raise InputError(f"--admin {admin}: {text if response.status in {400, 403} else nobody}")
    return text, answered == "true"
