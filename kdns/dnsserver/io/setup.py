"""One server block at work, from its build to its end: the Setup of its directives, of a class for each capability."""

from __future__ import annotations

import asyncio
from typing import Final

from kdns.dnsserver.blocks import Block
from kdns.dnsserver.chain import Chain
from kdns.dnsserver.config import ServerConfig
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

UPSTREAMS_KEPT_S: Final = 10.0
"""How long a block that has ended may still send its pending queries to upstreams."""


class BlockSetup(SystemClock, BlockTasks, BlockFiles, BlockMetrics, BlockLog, BlockPeers, BlockAnswers):
    """A server block: what its directives are given, and what comes of them."""

    def __init__(self, config: ServerConfig, process: Process) -> None:
        options = config.options
        BlockTasks.__init__(self, f"directives of {', '.join(config.zones)}")
        BlockFiles.__init__(self, options, self)
        BlockMetrics.__init__(self, process)
        BlockLog.__init__(self, logs_debug=options.logs_debug)
        BlockPeers.__init__(self, process, self.located, self)
        BlockAnswers.__init__(self, config, process)

    def build(self) -> None:
        """Build the chain; CorefileError or InputError for what cannot be done."""
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
        """Wait until the directives can answer; InputError for what they cannot."""
        try:
            await asyncio.gather(*(work() for work in self.preparations))
        except InputError as error:
            raise self.located(error) from error

    async def stop(self) -> None:
        """End the block: its tasks, and its subscriptions to clusters."""
        self.end()
        self.release()
        self.leave(UPSTREAMS_KEPT_S)
        await self.cancel()

    def abandon(self) -> None:
        """End a block that was not started."""
        self.release()
        self.leave()

    def block(self, zone: str) -> Block:
        """The server block under one of its zones."""
        return Block(zone, self.chain, self.options.logs_stacks, self.options.udp_bytes)

    def located(self, error: InputError) -> InputError:
        """The error with what led to it: the word that names a file of no use, else the directive or server block."""
        if isinstance(error, KubeconfigError):
            return self.config.file_error(error.path, str(error), "kubernetes")  # no other one has clusters
        if isinstance(error, CorefileError) and not error.line:
            return self.config.file_error(error.path, str(error))
        return error if isinstance(error, CorefileError) else self.config.error(str(error))
