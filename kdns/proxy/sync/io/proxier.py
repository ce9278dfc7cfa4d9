"""Protocols of a mode: its proxier, which carries plans into the kernel, and its counters and watch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from kdns.cluster.objects import Key
from kdns.net import Family
from kdns.netlink.conntrack import SocketAddress
from kdns.proxy.mode import Mode
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKey, Plan
from kdns.proxy.plan.planner import Difference
from kdns.proxy.settings.settings import Settings
from kdns.runtime.metrics import MetricFamilies

T = TypeVar("T")

ForeignChange: TypeAlias = Callable[[str], None]
"""Called when another process changed the mode's rules; the argument is its author, such as "by nft (process 7)"."""

UdpTargets: TypeAlias = Callable[[Family, Front], frozenset[SocketAddress]]
"""Socket addresses that packets to a UDP front may be sent to; the address "" means any."""


class Proxier(Protocol):
    """Carries plans into the kernel. Every method raises ApplyError where the kernel rejects it."""

    @property
    def name(self) -> str: ...

    async def sync_full(self, plan: Plan) -> None:
        """Applies the whole plan, whatever rules there are."""
        ...

    async def sync_partial(self, plan: Plan, differences: Mapping[Family, Difference]) -> None:
        """Applies the differences from the plan before."""
        ...

    async def sweep(self) -> None:
        """Removes what partial syncs left unused."""
        ...

    @property
    def rejected(self) -> Mapping[Key, str]:
        """The Services of which the kernel rejects rules since the last sync, with the reason; all others are served.

        A plan is valid for the kernel: what it rejects is what it lacks, such as a protocol or a match.
        """
        ...


class Counters(Protocol):
    """A mode's counters for each Service port."""

    def register(self, metrics: MetricFamilies) -> None:
        """Adds the mode's metric families."""
        ...

    async def read(self, plan: Plan) -> None:
        """Reads what is counted outside of this process. It is called for each scrape."""
        ...


@dataclass(frozen=True, slots=True)
class Footprint:
    """A mode's objects in the kernel; all others are left over from another mode.

    `parts` are values of the modes' own: a clean-up looks for its kind of part.
    `keep_kube_proxy`: a kube-proxy may be at work, so what may be its own stays too. `marked` are the exceptions:
    back ends of iptables in which kdns's own mark says that kdns wrote the chains last. A removal checks that again.
    """

    parts: tuple[object, ...] = ()
    keep_kube_proxy: bool = False
    marked: frozenset[tuple[str, Family]] = frozenset()

    def part(self, kind: type[T]) -> T | None:
        return next((part for part in self.parts if isinstance(part, kind)), None)


class RuleAuthors(NamedTuple):
    """Whether kdns and a kube-proxy have rules, and the back ends and families whose chains kdns wrote last."""

    has_kdns: bool = False
    has_kube_proxy: bool = False
    marked: frozenset[tuple[str, Family]] = frozenset()


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Removes one kind of things that a proxy, kdns or kube-proxy, may have left in the kernel.

    `remove` removes all but the footprint. The result is what was removed, in words such as "table ip kube-proxy". It
    may take its time to let connections end, works where programs or modules are missing, and may be called again at
    any time. ApplyError where it is not allowed.
    `authors` returns who has such rules, where that can be told: unreadable rules are treated as absent. `wake` makes a
    kube-proxy that has none write its own. `is_last`: others look at what it removes.
    """

    remove: Callable[[Settings, Footprint], Awaitable[Sequence[str]]]
    authors: Callable[[], Awaitable[RuleAuthors]] | None = None
    wake: Callable[[Footprint], Awaitable[None]] | None = None
    is_last: bool = False


class RunningMode(Proxier, Protocol):
    """A proxier that is at work, with the rest of its mode."""

    @property
    def footprint(self) -> Footprint:
        """The mode's objects in the kernel after its first sync."""
        ...

    @property
    def counters(self) -> Counters: ...

    @property
    def udp_targets(self) -> UdpTargets | None:
        """The destinations that rules may have for packets to a UDP front, as of the last sync; None: no rules."""
        ...

    def watch(self, changed: ForeignChange) -> AbstractContextManager[None]:
        """Notices foreign changes of the rules while the context is open."""
        ...

    async def close(self, *, keep_rules: bool) -> None:
        """Ends the mode. Rules that need this process are removed in any case, others only without `keep_rules`."""
        ...


@dataclass(frozen=True, slots=True)
class Runtime:
    """A mode on this machine.

    `unsupported` returns in one sentence why the mode cannot work here, or "". It leaves nothing behind. Invalid
    settings, such as an unknown scheduler, are an InputError.
    `start` makes the running mode, with its watch and its counters; ApplyError if the mode cannot work here. It removes
    nothing from the kernel before the first sync.
    `connections` returns the connections that the rules in the kernel have counted, by front; None if they count none.
    """

    mode: Mode
    unsupported: Callable[[Settings], Awaitable[str]]
    start: Callable[[Settings], Awaitable[RunningMode]]
    connections: Callable[[FamilyPlan], Awaitable[Mapping[FrontKey, int]]] | None = None
