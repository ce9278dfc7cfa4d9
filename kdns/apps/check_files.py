"""The files that directives name, read as at a start, without listeners and other servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

from kdns.cluster.io.clusters import Clusters
from kdns.cluster.io.kubeconfig import kubeconfig
from kdns.cluster.source import ClusterSpec
from kdns.cluster.state import OnChange, State
from kdns.dnsserver.io.world import BlockWorld, SharedResources
from kdns.errors import CorefileError, InputError, KubeconfigError
from kdns.plugins.sources import hosts
from kdns.runtime.files.watched import WatchedFile
from kdns.serverblocks.config import ServerConfig
from kdns.serverblocks.directive import Level

_OPTIONAL: Final = frozenset({hosts.DEFAULT_PATH})
"""Files that may be missing, unless a directive names them explicitly."""


async def mistakes_in_files(
    servers: Sequence[ServerConfig], others: Sequence[ServerConfig] = ()
) -> list[CorefileError]:
    """Each at its line, or at the file's name. `others` are blocks with mistakes, so only their files are checked."""
    shared = SharedResources(Clusters())
    mistakes: list[CorefileError] = []
    readable = (server for server in others if server.is_valid("root"))
    for is_whole, server in (*product([True], servers), *product([False], readable)):
        world = _Reading(server, shared, is_whole=is_whole)
        try:
            await world.read()
        finally:
            world.abandon()
        mistakes += world.mistakes.values()
    shared.upstreams.close()
    return mistakes


class _Reading(BlockWorld):
    """A server block that is only read. `mistakes` are keyed by text, so each is reported once."""

    def __init__(self, config: ServerConfig, shared: SharedResources, *, is_whole: bool) -> None:
        super().__init__(config, shared)
        self.mistakes: dict[str, CorefileError] = {}
        self.is_whole = is_whole

    async def read(self) -> None:
        """Builds the directives one by one, and lets each read its files."""
        for row in self.config.rows:
            self._attempt(partial(self.config.plugin, row, self))
        for prepare in self.preparations:
            try:
                await prepare()
            except InputError as error:
                self._note(error)
        if tls := self.options.listener.tls:
            from kdns.dnsserver.io.encrypted.tls import server_context  # noqa: PLC0415 - only where it is used

            try:
                server_context(replace(tls, keylog=""), ())
            except CorefileError as error:
                self._add(error)

    def _attempt(self, work: Callable[[], object]) -> None:
        try:
            work()
        except InputError as error:
            self._note(error)

    def _note(self, error: InputError) -> None:
        for other in error.others if isinstance(error, CorefileError) else ():
            self._note(other)
        located = self.located(error)
        is_of_file = isinstance(error, KubeconfigError) or (
            isinstance(error, CorefileError) and (not error.line or error.path not in self._corefiles)
        )
        if isinstance(located, CorefileError) and (self.is_whole or is_of_file):
            self._add(located)

    def _add(self, mistake: CorefileError) -> None:
        self.mistakes.setdefault(str(mistake), mistake)

    @property
    def _corefiles(self) -> set[str]:
        return {self.config.path, *(line.path for stanza in self.config.stanzas for line in (stanza, *stanza.block))}

    def cluster(self, spec: ClusterSpec, changed: OnChange, *, startup_timeout_s: float) -> State:
        """Checks the kubeconfig, the files of `tls`, and the folder of `snapshot`."""
        del changed, startup_timeout_s
        source = spec.source
        if spec.snapshot and not Path(spec.snapshot.path).parent.is_dir():
            self._note(CorefileError(spec.snapshot.path, 0, "", "no such folder"))
        if source.kubeconfig:
            self._attempt(lambda: kubeconfig(source.kubeconfig, source.context))
        for path in filter(None, (source.tls.cert, source.tls.key, source.tls.ca)):
            if not Path(path).is_file():
                self._note(CorefileError(path, 0, "", "no such file"))
        return State()

    def watch_file(
        self,
        kind: str,
        path: str,
        every_s: float,
        read: Callable[[Any], None],
        *,
        parse: Callable[[str], Any] | None = None,
        is_optional: bool = False,
    ) -> None:
        """Reads the file once. A file that a directive names must exist."""
        del every_s
        placed = self.path(path)
        self.prepare(WatchedFile(kind, placed, read, parse, is_optional and placed in _OPTIONAL).begin)

    def log(self, level: Level, event: str, **facts: object) -> None:
        """Only a running server logs."""

    def report(self, event: str, errors: Sequence[CorefileError], **facts: object) -> None:
        del event, facts
        for error in errors:
            self._note(error)
