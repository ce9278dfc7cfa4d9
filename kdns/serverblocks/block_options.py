"""The options of a server block that its directives set, as one value."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from kdns.answers.answer import MAX_UDP_BYTES
from kdns.net import HostPort
from kdns.serverblocks.listener_options import ListenerOptions


@dataclass(frozen=True, slots=True)
class BindConfig:
    """IP addresses in normal form and names of interfaces; `exclude` removes addresses of the same stanza."""

    hosts: tuple[str, ...]
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HealthPage:
    """/health: 200 while the process runs; the process queries it each second and measures the time."""

    address: HostPort


@dataclass(frozen=True, slots=True)
class ReadyPage:
    """/ready: 200, or 503 with the directives that are not ready; a ready one stays ready unless `continuously`."""

    address: HostPort
    continuously: bool = False


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """/metrics: the process's metrics, with those of the interpreter if `runtime`."""

    address: HostPort
    runtime: bool = False


@dataclass(frozen=True, slots=True)
class StatusPage:
    """/status: what the server does, for people."""

    address: HostPort


Page: TypeAlias = HealthPage | ReadyPage | MetricsPage | StatusPage


@dataclass(frozen=True, slots=True)
class BlockOptions:
    """The options that directives set without touching queries.

    The block listens on the addresses of `binds`, on every address without any. Its files are in the folder `root`. The
    Corefile is read every `reload_s` seconds, plus or minus the second value: 0 for never; the last block with a value
    decides. Answers over UDP have at most `udp_bytes`. A stopping server continues to answer for `lameduck_s` seconds.
    `logs_stacks` writes the stack of a query that fails unexpectedly, `logs_debug` debug lines. `notes` are log events
    for the start, each with its facts.
    """

    binds: tuple[BindConfig, ...] = ()
    listener: ListenerOptions = ListenerOptions()  # noqa: RUF009 - it is frozen
    root: str = ""
    reload_s: tuple[float, float] | None = None
    udp_bytes: int = MAX_UDP_BYTES
    lameduck_s: float = 0.0
    processes: float = 0
    """Processes that answer at all addresses, inf: one for each processor; 0 where the block does not say."""
    logs_stacks: bool = False
    logs_debug: bool = False
    pages: tuple[Page, ...] = ()
    notes: tuple[tuple[str, Mapping[str, object]], ...] = ()

    def path(self, name: str) -> str:
        """Returns the path of a file: in the folder of `root`, unless the name begins with a slash."""
        return posixpath.join(self.root, name)

    def with_listener(self, said: ListenerOptions) -> BlockOptions:
        """Returns these options, with a directive's options for listeners."""
        return replace(self, listener=self.listener.overridden(said))

    def with_page(self, page: Page) -> BlockOptions:
        """Returns these options, with one more page."""
        return replace(self, pages=(*self.pages, page))
