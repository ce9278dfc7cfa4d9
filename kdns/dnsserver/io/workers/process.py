"""One worker: its process, started and watched, and the relay to its pages."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kdns import logs
from kdns.dnsserver.io.interfaces import Sharing
from kdns.dnsserver.io.server import DnsServer
from kdns.net import HostPort
from kdns.runtime.http.relayed import OK, STATE, Relay
from kdns.runtime.http.sites import HealthProbe
from kdns.runtime.tasks import observed

log = logs.get(__name__)

CHECK_S: Final = 1.0
"""The interval at which a worker is asked for its state."""
START_CHECK_S: Final = 0.05
HANG_S: Final = 6.0
"""A worker that does not answer for this long is killed."""
START_S: Final = 60.0
"""As HANG_S, from the start of a process to its first answer."""


@dataclass(frozen=True, slots=True)
class State:
    """What a supervisor needs to know of a worker: `listened` are its addresses as (scheme, host, port)."""

    is_listening: bool
    is_synced: bool
    listened: tuple[tuple[str, str, int], ...]
    sha512: str


class Worker:
    """One worker: its process, and a relay to its pages that outlives the process."""

    def __init__(self, argv: Sequence[str], number: int) -> None:
        self.relay = Relay()
        self.number = number
        self.state: State | None = None
        """As it last answered; None until it handles signals."""
        self.has_listened = asyncio.Event()
        self.exposed: dict[HostPort, str] = {}
        """The last exposition of each page with metrics."""
        self.reload_sent = ""
        """The hash of the Corefile for which it last got a signal."""
        self._argv = argv
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, sharing: Sharing, probe: HealthProbe, checked: Callable[[Worker], None]) -> int:
        """Starts the process and returns its exit status; `checked` is called after each answer for STATE."""
        fd = self.relay.socket.fileno()
        self._process = process = await asyncio.create_subprocess_exec(
            *self._argv,
            *("--worker", str(os.getpid()), str(fd), sharing.name.lower()),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(fd,),
            process_group=0,  # Ctrl-C is for the supervisor, which passes it on once
        )
        try:
            watching = observed(self._watch(process, probe, checked), f"watch of worker {self.number}")
            try:
                return await process.wait()
            finally:
                watching.cancel()
        finally:
            self.state, self._process = None, None
            if process.returncode is None:
                process.kill()

    def signal(self, number: int) -> None:
        """Sends a signal to the process; before it handles signals it is killed instead."""
        if self._process:
            self._process.send_signal(number if self.state else signal.SIGKILL)

    async def _watch(
        self, process: asyncio.subprocess.Process, probe: HealthProbe, checked: Callable[[Worker], None]
    ) -> None:
        while True:
            started_s = time.perf_counter()
            page = await self.relay.get(STATE, timeout_s=HANG_S if self.state else START_S)
            if self.state:
                probe.durations.add(time.perf_counter() - started_s)
            if page is None or page.status != OK:
                probe.failures += 1
                log.error("worker does not respond: killed", worker=self.number, pid=process.pid)
                process.kill()
                return
            self.state = msgspec.json.decode(page.body, type=State)
            if self.state.is_listening:
                self.has_listened.set()
            checked(self)
            await asyncio.sleep(CHECK_S if self.state.is_synced else START_CHECK_S)


def state_of(server: DnsServer) -> str:
    state = State(server.is_listening, server.is_synced, tuple(server.listened), server.sha512)
    return msgspec.json.encode(state).decode()
