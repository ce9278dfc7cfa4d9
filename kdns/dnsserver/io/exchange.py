"""From packet to response, for all transports: table, chain, and queries that wait."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kdns import logs
from kdns.answers.table import Partition, packet_key
from kdns.dnsserver.blocks import SILENCE, Client, Outcome, Server, WireResponse, unawaited
from kdns.dnsserver.io.request_metrics import Requests
from kdns.runtime.client_memory import Account, ClientMemory

log = logs.get(__name__)

LOGGED_BYTES: Final = 512
"""The most bytes of a packet that are logged after an unexpected error."""


@dataclass(slots=True, eq=False)
class Answering:
    """Answers the packets of one partition, from one listener or connection; `pending` accounts for waiting queries."""

    server: Server
    requests: Requests
    partition: Partition
    pending: ClientMemory | Account
    waiting: set[PendingQuery] = field(default_factory=set)
    _drained: asyncio.Future[None] | None = None

    def answer(self, packet: bytes, client: Client, received_s: float, key: bytes | None = None) -> Outcome:
        """The response from the table or the chain; a coroutine if the chain waits, then pass it to `wait`.

        SERVFAIL if the chain raises an exception, or if the client has too many waiting queries. `key` is the packet's
        key in the table, if the caller has it already.
        """
        if key is None:
            key = packet_key(packet)
        answer = self.partition.answers.get(key)
        if answer is not None and (answer.until_s > received_s or answer.renew(received_s)):
            outcome: Outcome = WireResponse(self.partition.wire(answer, packet))
        else:
            try:
                outcome = self.server.respond(packet, self.partition, client, received_s, key)
            except Exception as failure:  # noqa: BLE001 - one query must not end the others
                outcome = self.failed(failure, packet, client, received_s)
            if not isinstance(outcome, WireResponse) and not self.pending.take(client[0], packet):
                with unawaited():  # no coroutine of the chain has started
                    outcome = self.server.overloaded(packet, self.partition)
        self.requests.durations.add(time.monotonic() - received_s)  # the clock of asyncio's loops
        return outcome

    def wait(
        self,
        outcome: Coroutine[Any, Any, WireResponse],
        packet: bytes,
        client: Client,
        received_s: float,
        respond: Callable[[WireResponse], object],
    ) -> PendingQuery:
        """The caller starts the query with `step`; `respond` is called with its response."""
        query = PendingQuery(self, outcome, packet, client, received_s, respond)
        self.waiting.add(query)
        return query

    def ended(self, query: PendingQuery) -> None:
        if query in self.waiting:
            self.waiting.discard(query)
            self.pending.release(query.client[0], query.packet)
            if self._drained is not None and not (self.waiting or self._drained.done()):
                self._drained.set_result(None)

    async def drain(self, timeout_s: float) -> None:
        if self.waiting:
            self._drained = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._drained,), timeout=timeout_s)

    def cancel(self) -> None:
        for query in tuple(self.waiting):
            query.cancel()

    def failed(self, failure: Exception, packet: bytes, client: Client, received_s: float) -> WireResponse:
        response, block = self.server.failed(packet, self.partition, client, received_s)
        self.requests.panics += 1
        log_failure(failure, packet, self.server.label, with_stack=block is not None and block.logs_stacks)
        return response


@dataclass(slots=True, eq=False)
class PendingQuery:
    """A query whose chain waits, for an upstream for example.

    Its coroutine runs without a task, which would cost more than the system calls of a query: `step` starts it, and the
    future that it awaits resumes it. Code that needs a task, such as asyncio.timeout, fails in it.
    """

    _answering: Answering
    _coroutine: Coroutine[Any, Any, WireResponse] | None
    packet: bytes
    client: Client
    received_s: float
    _respond: Callable[[WireResponse], object]

    def step(self, _awaited: object = None) -> None:
        if self._coroutine is None:
            return
        try:
            future = self._coroutine.send(None)
        except StopIteration as stop:
            self._finished(stop.value)
        except asyncio.CancelledError:  # at the end of the process
            self._finished(SILENCE)
        except Exception as error:  # noqa: BLE001 - a query's boundary
            self._finished(self._answering.failed(error, self.packet, self.client, self.received_s))
        else:
            if future is None:  # asyncio.sleep(0)
                asyncio.get_running_loop().call_soon(self.step)
            else:
                future.add_done_callback(self.step)

    def cancel(self) -> None:
        coroutine, self._coroutine = self._coroutine, None
        if coroutine is not None:
            coroutine.close()
        self._answering.ended(self)

    def _finished(self, response: WireResponse) -> None:
        self._answering.ended(self)
        self._respond(response)


def log_failure(failure: Exception, packet: bytes, server: str, *, with_stack: bool) -> None:
    """Logs an unexpected exception with the packet, to reproduce it; `with_stack`: `errors { stacktrace }`."""
    frames = traceback.extract_tb(failure.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    facts = {"server": server, "error": f"{type(failure).__name__}: {failure}", "where": where}
    stack = {"exc_info": failure} if with_stack else {}
    log.error("query failed unexpectedly", **facts, packet=packet[:LOGGED_BYTES].hex(), **stack)
