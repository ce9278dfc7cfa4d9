"""How a server block is served: what its directives say of it, as one value."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from kdns.dnsserver.answers.answer import MAX_UDP_BYTES
from kdns.dnsserver.listener_options import ListenerOptions
from kdns.net import HostPort


@dataclass(frozen=True, slots=True)
class BindConfig:
    """IP addresses in normal form and names of interfaces; those in `exclude` are taken off this stanza's own."""

    hosts: tuple[str, ...]
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HealthPage:
    """/health: 200 while the process lives; the process asks itself for it each second and measures."""

    address: HostPort


@dataclass(frozen=True, slots=True)
class ReadyPage:
    """/ready: 200, or 503 with the names of what is not ready; what was ready once stays so unless `continuously`."""

    address: HostPort
    continuously: bool = False


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """/metrics: the process's metrics, with those of the interpreter if `runtime`."""

    address: HostPort
    runtime: bool = False


@dataclass(frozen=True, slots=True)
class ProfilesPage:
    """/debug/pprof: what the process is doing."""

    address: HostPort


Page: TypeAlias = HealthPage | ReadyPage | MetricsPage | ProfilesPage


@dataclass(frozen=True, slots=True)
class BlockOptions:
    """What directives say that do nothing to queries.

    The block listens where `binds` say, on every address without any. Its files are in the folder `root`. The Corefile
    is read every `reload_s` seconds, plus or minus the second figure: 0 for never; of several blocks the last that says
    so counts. Answers over UDP have at most `udp_bytes`. A stopping server goes on answering for `lameduck_s` seconds.
    `logs_stacks` writes the stack of a query that fails unexpectedly, `logs_debug` lines of the level debug. `notes`
    are events for the log at the start, each with its facts.
    """

    binds: tuple[BindConfig, ...] = ()
    listener: ListenerOptions = ListenerOptions()  # noqa: RUF009 - it is frozen
    root: str = ""
    reload_s: tuple[float, float] | None = None
    udp_bytes: int = MAX_UDP_BYTES
    lameduck_s: float = 0.0
    logs_stacks: bool = False
    logs_debug: bool = False
    pages: tuple[Page, ...] = ()
    notes: tuple[tuple[str, Mapping[str, object]], ...] = ()

    def path(self, name: str) -> str:
        """Where a file of this name is: in the folder of `root`, unless the name begins with a slash."""
        return posixpath.join(self.root, name)

    def with_listener(self, said: ListenerOptions) -> BlockOptions:
        """These, with what a directive says of the listeners."""
        return replace(self, listener=self.listener.overridden(said))

    def with_page(self, page: Page) -> BlockOptions:
        """These, with one more page."""
        return replace(self, pages=(*self.pages, page))
