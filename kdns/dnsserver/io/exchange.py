"""What all transports do with a packet that the table does not hold."""

from __future__ import annotations

import asyncio
import traceback
import warnings
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

from kdns import logs
from kdns.dns.query import HEADER_BYTES
from kdns.dnsserver.answers.table import Lane, key_of
from kdns.dnsserver.blocks import Client, Exchange, Outcome, Server
from kdns.dnsserver.io.request_metrics import Requests
from kdns.fair_queue import FairShares

log = logs.get(__name__)

LOGGED_BYTES: Final = 512
"""How much of a packet that broke something is logged."""
MAX_PENDING: Final = 4000
"""Queries of a process that may wait for somebody else's answer, such as an upstream's; more get SERVFAIL.

One client has half of them at most, over all transports and connections together.
"""


def respond(
    server: Server,
    requests: Requests,
    pending: FairShares,
    packet: bytes,
    key: bytes,
    lane: Lane,
    client: Client,
    received_s: float,
) -> Outcome:
    """Returns the server's response; SERVFAIL if it fails unexpectedly, which is logged and counted.

    A response that has to wait takes one of the client's places in `pending`, which the caller gives back behind it.
    SERVFAIL if the client has no place left.
    """
    try:
        outcome = server.respond(packet, lane, client, received_s, key)
    except Exception as failure:  # noqa: BLE001 - one query must not end the others
        return failed(failure, server, requests, packet, lane, client, received_s)
    if isinstance(outcome, Exchange) or pending.take(client[0]):
        return outcome
    _discard(outcome)
    return server.overloaded(packet, lane)


def answered(
    server: Server,
    requests: Requests,
    pending: FairShares,
    packet: bytes,
    lane: Lane,
    client: Client,
    received_s: float,
) -> Outcome:
    """The response to a message that came alone, from the table or not; its time is counted where nobody waits."""
    key = key_of(packet) if len(packet) > HEADER_BYTES else b""
    answer = lane.answers.get(key)
    if answer is not None and (answer.until_s > received_s or answer.renew(received_s)):
        outcome: Outcome = Exchange(answer.wire(packet))
    else:
        outcome = respond(server, requests, pending, packet, key, lane, client, received_s)
    requests.observe(1, asyncio.get_running_loop().time() - received_s)
    return outcome


def _discard(outcome: Coroutine[Any, Any, Exchange]) -> None:
    """Closes a coroutine that never ran, without Python's warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        outcome.close()


async def completed(
    outcome: Coroutine[Any, Any, Exchange],
    server: Server,
    requests: Requests,
    packet: bytes,
    lane: Lane,
    client: Client,
    received_s: float,
) -> Exchange:
    """What a response that waits for somebody comes to."""
    try:
        return await outcome
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
