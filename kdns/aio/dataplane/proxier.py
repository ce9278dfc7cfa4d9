"""What the dataplane expects of a mode: a proxier, which carries plans into the kernel, and what goes with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from kdns.aio.metrics import Gauges
from kdns.net import Family
from kdns.proxy.plan.plan import Front, Plan
from kdns.proxy.plan.planner import Difference
from kdns.proxy.plan.stale_flows import SocketAddress
from kdns.proxy.settings.settings import Settings

ForeignChange: TypeAlias = Callable[[str], None]
"""Called when another process changed the mode's rules; the argument is its author, such as "by nft (process 7)"."""

UdpTargets: TypeAlias = Callable[[Family, Front], frozenset[SocketAddress]]
"""Socket addresses that packets to a UDP front may go to; the address "" stands for any."""


class Proxier(Protocol):
    """Carries plans into the kernel. Every method raises ApplyError where the kernel rejects it."""

    @property
    def name(self) -> str:
        """The mode."""
        ...

    async def sync_full(self, plan: Plan) -> None:
        """Apply the whole plan, whatever rules there are."""
        ...

    async def sync_partial(self, plan: Plan, differences: Mapping[Family, Difference]) -> None:
        """Apply the differences from the plan before."""
        ...

    async def sweep(self) -> bool:
        """Remove what partial syncs left unused; True where some of it has to wait for the next sweep."""
        ...

    async def check(self, plan: Plan) -> str:
        """Why the kernel would reject a full sync of this plan, "" if it would not. Nothing is changed."""
        ...


class Counters(Protocol):
    """What a mode counts for each Service port."""

    def register(self, metrics: Gauges) -> None:
        """Add the mode's metric families."""
        ...

    async def read(self, plan: Plan) -> None:
        """Read what is counted outside of this process. It is called for each scrape."""
        ...


class RunningMode(Proxier, Protocol):
    """A proxier that is at work, with the rest of its mode."""

    @property
    def counters(self) -> Counters:
        """The mode's counters, for /metrics."""
        ...

    @property
    def udp_targets(self) -> UdpTargets | None:
        """Where the rules may send packets to a UDP front, as of the last sync; None: there are no rules."""
        ...

    def watch(self, changed: ForeignChange) -> AbstractContextManager[None]:
        """Notice foreign changes of the rules while the context is open."""
        ...

    async def close(self, *, keep_rules: bool) -> None:
        """End the mode. Rules that need this process are removed in any case, others only without `keep_rules`."""
        ...


@dataclass(frozen=True, slots=True)
class Mode:
    """One mode.

    `start` makes what runs, with its watch and its counters; ApplyError where the mode cannot work here.
    `clean_up` removes whatever a process of this mode may have left in the kernel.
    `sync_failures` and `cleanup_failures` are the metrics of rules that could not be applied or removed: kube-proxy's
    where it has this mode.
    """

    name: str
    start: Callable[[Settings], Awaitable[RunningMode]]
    clean_up: Callable[[], Awaitable[None]]
    sync_failures: str
    cleanup_failures: str
