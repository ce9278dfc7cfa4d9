"""One running server block, from its build to its end: the capabilities of its directives."""

from __future__ import annotations

import asyncio
from typing import Final

from kdns.answers.chain import Block, Chain
from kdns.dnsserver.io.capabilities import (
    BlockAnswers,
    BlockFiles,
    BlockLog,
    BlockMetrics,
    BlockPeers,
    BlockTasks,
    Process,
    SystemClock,
)
from kdns.dnsserver.io.interfaces import bound_addresses
from kdns.errors import CorefileError, InputError, KubeconfigError
from kdns.serverblocks.config import ServerConfig

UPSTREAMS_KEPT_S: Final = 10.0
"""The time for which a block that has ended may finish its pending queries to upstreams."""


class BlockSetup(SystemClock, BlockFiles, BlockMetrics, BlockLog, BlockPeers, BlockAnswers):
    """A server block: the capabilities of its directives, and its chain."""

    def __init__(self, config: ServerConfig, process: Process) -> None:
        options = config.options
        BlockTasks.__init__(self, f"directives of {', '.join(config.zones)}")
        self.options = options
        BlockMetrics.__init__(self, process)
        BlockLog.__init__(self, logs_debug=options.logs_debug)
        BlockPeers.__init__(self, process)
        BlockAnswers.__init__(self, config, process)

    def build(self) -> None:
        """Builds the chain; raises CorefileError and InputError."""
        if binds := self.options.binds:
            known = self._shared.interfaces
            found = (host for bind in binds for host in bound_addresses(bind.hosts, bind.exclude, known))
            self.hosts = tuple(dict.fromkeys(found))
        if not self.hosts:
            raise self.config.error("`except` leaves no address to listen on").of("bind")
        self.chain = Chain(self.config.build(self))
        for event, facts in self.options.notes:
            self.log("info", event, **facts)

    async def prepare_all(self) -> None:
        """Waits until the directives can answer; raises InputError."""
        try:
            await asyncio.gather(*(work() for work in self.preparations))
        except InputError as error:
            raise self.located(error) from error

    async def stop(self) -> None:
        """Ends the block: its tasks, and its subscriptions to clusters."""
        self.end()
        self.release()
        self.leave(UPSTREAMS_KEPT_S)
        await self.cancel()
        self._free()

    def abandon(self) -> None:
        """Ends a block that was not started."""
        self.release()
        self.leave()
        self._free()

    def _free(self) -> None:
        """Drops what refers to directives, which refer to the block: this cycle is exempt from garbage collection."""
        self.chain = Chain()
        for calls in (self.preparations, self._works, self._at_stop, self.metrics, self.readiness_checks):
            calls.clear()

    def block(self, zone: str) -> Block:
        """Returns the server block under one of its zones."""
        return Block(zone, self.chain, self.options.logs_stacks, self.options.udp_bytes)

    def located(self, error: InputError) -> InputError:
        """Returns the error at the word that names the unusable file, or at the directive or server block."""
        if isinstance(error, KubeconfigError):
            return self.config.file_error(error.path, str(error), "kubernetes")  # only this directive has clusters
        if isinstance(error, CorefileError) and not error.line:
            return self.config.file_error(error.path, str(error))
        return error if isinstance(error, CorefileError) else self.config.error(str(error))
