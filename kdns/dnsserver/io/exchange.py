"""The common path of all transports for a packet that is not in the table."""

from __future__ import annotations

import time
import traceback
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from kdns import logs
from kdns.dns.query import HEADER_BYTES
from kdns.dnsserver.answers.table import Partition, packet_key
from kdns.dnsserver.blocks import Client, Exchange, PendingExchange, Server, unawaited
from kdns.dnsserver.io.request_metrics import Requests

log = logs.get(__name__)

LOGGED_BYTES: Final = 512
"""The bytes of a packet that are logged after an unexpected error."""


class Pending(Protocol):
    """The pending queries of a client, by count and bytes; see client_memory."""

    def take(self, address: str, packet: bytes) -> bool:
        """Counts a query that waits; returns False if its client has its share."""
        ...

    def give_back(self, address: str, packet: bytes) -> None:
        """Ends a query that was counted."""
        ...


@dataclass(frozen=True, slots=True)
class Answering:
    """Answers the packets of one partition; each waiting query counts in `pending`.

    The sender of the response gives it back.
    """

    server: Server
    requests: Requests
    partition: Partition
    pending: Pending

    def answer(self, packet: bytes, client: Client, received_s: float, key: bytes | None = None) -> PendingExchange:
        """Returns the response of the table or the server, and counts its time if nothing waits.

        SERVFAIL if the server fails unexpectedly, and if a response waits for a client without a free place. `key` is
        the packet's key in the table if the caller has made it.
        """
        if key is None:
            key = packet_key(packet) if len(packet) > HEADER_BYTES else b""
        answer = self.partition.answers.get(key)
        if answer is not None and (answer.until_s > received_s or answer.renew(received_s)):
            outcome: PendingExchange = Exchange(self.partition.wire(answer, packet))
        else:
            try:
                outcome = self.server.respond(packet, self.partition, client, received_s, key)
            except Exception as failure:  # noqa: BLE001 - one query must not end the others
                outcome = self.failed(failure, packet, client, received_s)
            if not isinstance(outcome, Exchange) and not self.pending.take(client[0], packet):
                with unawaited():  # no coroutine of the chain has started
                    outcome = self.server.overloaded(packet, self.partition)
        self.requests.durations.add(time.monotonic() - received_s)  # the clock of asyncio's loops
        return outcome

    async def completed(
        self, outcome: Coroutine[Any, Any, Exchange], packet: bytes, client: Client, received_s: float
    ) -> Exchange:
        """Returns the response after waiting; SERVFAIL for an unexpected error."""
        try:
            return await outcome
        except Exception as failure:  # noqa: BLE001 - one query must not end the others
            return self.failed(failure, packet, client, received_s)

    def failed(self, failure: Exception, packet: bytes, client: Client, received_s: float) -> Exchange:
        """Returns SERVFAIL for a query with an unexpected error, which is logged and counted."""
        exchange, block = self.server.failed(packet, self.partition, client, received_s)
        self.requests.panics += 1
        log_failure(failure, packet, self.server.label, with_stack=block is not None and block.logs_stacks)
        return exchange


def log_failure(failure: Exception, packet: bytes, server: str, *, with_stack: bool) -> None:
    """Logs an unexpected exception, with its stack if `errors { stacktrace }` is set.

    The line has the packet, so that the failure can be repeated.
    """
    frames = traceback.extract_tb(failure.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    facts = {"server": server, "error": f"{type(failure).__name__}: {failure}", "where": where}
    stack = {"exc_info": failure} if with_stack else {}
    log.error("query failed unexpectedly", **facts, packet=packet[:LOGGED_BYTES].hex(), **stack)
