"""What UDP and TCP do alike with a packet that the table does not hold."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Final

from kdns import logs
from kdns.aio.dns.request_metrics import Requests
from kdns.dns.table import Lane
from kdns.plugins.server import Client, Exchange, Outcome, Server

log = logs.get(__name__)

LOGGED_BYTES: Final = 512
"""How much of a packet that broke something is logged."""


def respond(
    server: Server, requests: Requests, packet: bytes, key: bytes, lane: Lane, client: Client, received_s: float
) -> Outcome:
    """The server's response; SERVFAIL where it fails unexpectedly, which is logged and counted."""
    try:
        return server.respond(packet, lane, client, received_s, key)
    except Exception as failure:  # noqa: BLE001 - one query must not end the others
        return failed(failure, server, requests, packet, lane, client, received_s)


def failed(
    failure: Exception,
    server: Server,
    requests: Requests,
    packet: bytes,
    lane: Lane,
    client: Client,
    received_s: float,
) -> Exchange:
    """SERVFAIL for a query that met a defect."""
    exchange, block = server.failed(packet, lane, client, received_s)
    requests.panics += 1
    log_failure(failure, packet, server.label, with_stack=block is not None and block.logs_stacks)
    return exchange


def log_failure(failure: Exception, packet: bytes, server: str, *, with_stack: bool) -> None:
    """Write one line about an exception that nobody expected, and its stack where `errors { stacktrace }` wants it.

    The packet is in the line, so that the failure can be repeated.
    """
    frames = traceback.extract_tb(failure.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    facts = {"server": server, "error": f"{type(failure).__name__}: {failure}", "where": where}
    stack = {"exc_info": failure} if with_stack else {}
    log.error("query failed unexpectedly", **facts, packet=packet[:LOGGED_BYTES].hex(), **stack)
