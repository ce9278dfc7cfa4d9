"""How a server block is served: its addresses, HTTP pages, limits and logs."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from kdns.answers.answer import MAX_UDP_BYTES
from kdns.net import HostPort
from kdns.serverblocks.listener_options import ListenerOptions, overridden


@dataclass(frozen=True, slots=True)
class BindConfig:
    """IP addresses in normal form and names of interfaces; `exclude` removes addresses of the same stanza."""

    hosts: tuple[str, ...]
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HealthPage:
    """/health: 200 while the process runs; the process queries it each second and measures the time.

    A stopping server continues to answer for `lameduck_s` seconds.
    """

    address: HostPort = HostPort("", 8080)
    lameduck_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ReadyPage:
    """/ready: 200, or 503 with the directives that are not ready; once ready stays ready, unless `continuously`."""

    address: HostPort = HostPort("", 8181)
    continuously: bool = False


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """/metrics: the process's metrics, with those of the interpreter if `runtime`."""

    address: HostPort = HostPort("localhost", 9153)
    runtime: bool = False


@dataclass(frozen=True, slots=True)
class StatusPage:
    """/status: the status page for people."""

    address: HostPort = HostPort("localhost", 8053)


Page: TypeAlias = HealthPage | ReadyPage | MetricsPage | StatusPage


@dataclass(frozen=True, slots=True)
class BlockOptions:
    """Settings of a server block, from one directive or from all of them; None, 0, "" and () are not set.

    Without `binds` the block listens on every address. File names are relative to the folder `root`. `reload_s` is the
    interval at which the Corefile is checked, with its jitter, 0 for never; the last block with a value applies.
    `udp_bytes` is the largest answer over UDP. `processes` share the addresses, inf: one for each CPU. `logs_stacks`
    logs the stack trace of a query that fails unexpectedly, `logs_debug` debug lines.
    """

    root: str = ""
    listener: ListenerOptions = ListenerOptions()
    binds: tuple[BindConfig, ...] = ()
    pages: tuple[Page, ...] = ()
    reload_s: tuple[float, float] | None = None
    udp_bytes: int = 0
    processes: float = 0
    logs_stacks: bool = False
    logs_debug: bool = False

    def path(self, name: str) -> str:
        """Relative to the folder `root`, unless the name begins with a slash."""
        return posixpath.join(self.root, name)

    def joined(self, other: BlockOptions) -> BlockOptions:
        """These options, overridden by those that `other` sets; addresses and pages add up."""
        return replace(
            overridden(self, other),
            listener=overridden(self.listener, other.listener),
            binds=self.binds + other.binds,
            pages=self.pages + other.pages,
        )

    def placed(self) -> BlockOptions:
        """With the files of `tls` relative to the folder `root`."""
        tls = self.listener.tls
        return replace(self, listener=replace(self.listener, tls=tls.below(self.path))) if tls else self


DEFAULTS: Final = BlockOptions(udp_bytes=MAX_UDP_BYTES)
