"""How a server block is served, which its directives say: where, with which pages, limits and logs."""

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
    """/ready: 200, or 503 with the directives that are not ready; a ready one stays ready unless `continuously`."""

    address: HostPort = HostPort("", 8181)
    continuously: bool = False


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """/metrics: the process's metrics, with those of the interpreter if `runtime`."""

    address: HostPort = HostPort("localhost", 9153)
    runtime: bool = False


@dataclass(frozen=True, slots=True)
class StatusPage:
    """/status: what the server does, for people."""

    address: HostPort = HostPort("localhost", 8053)


Page: TypeAlias = HealthPage | ReadyPage | MetricsPage | StatusPage


@dataclass(frozen=True, slots=True)
class BlockOptions:
    """What a directive says of its server block, None, 0 and "" where it says nothing; or what all of them say.

    The block listens on the addresses of `binds`, on every address without any. Its files are in the folder `root`. The
    Corefile is read every `reload_s` seconds, plus or minus the second value: 0 for never; the last block with a value
    decides. Answers over UDP have at most `udp_bytes`. `processes` answer at all addresses, inf: one for each
    processor. `logs_stacks` writes the stack of a query that fails unexpectedly, `logs_debug` debug lines.
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
        """Returns the path of a file: in the folder of `root`, unless the name begins with a slash."""
        return posixpath.join(self.root, name)

    def joined(self, other: BlockOptions) -> BlockOptions:
        """Returns these options, overridden by those that the other ones set; addresses and pages add up."""
        return replace(
            overridden(self, other),
            listener=overridden(self.listener, other.listener),
            binds=self.binds + other.binds,
            pages=self.pages + other.pages,
        )

    def placed(self) -> BlockOptions:
        """Returns these options, with the files of `tls` in the folder of `root`."""
        tls = self.listener.tls
        return replace(self, listener=replace(self.listener, tls=tls.below(self.path))) if tls else self


DEFAULTS: Final = BlockOptions(udp_bytes=MAX_UDP_BYTES)
