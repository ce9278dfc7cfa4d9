"""Modes that note what is done with them, in place of those that change the kernel."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from kdns.cluster.objects import Key
from kdns.net import Family
from kdns.proxy.mode import Mode
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import Difference
from kdns.proxy.plan.semantics import Semantics
from kdns.proxy.settings.section import Masquerading
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Counters, Footprint, ForeignChange, RunningMode, Runtime, UdpTargets


@dataclass(eq=False)
class FakeMode:
    """A running mode. `done` is shared: what was done with all of them, in order."""

    name: str
    done: list[str]
    footprint: Footprint
    udp_targets: UdpTargets | None = None

    async def sync_full(self, plan: Plan) -> None:
        del plan

    async def sync_partial(self, plan: Plan, differences: Mapping[Family, Difference]) -> None:
        del plan, differences

    async def sweep(self) -> None:
        pass

    @property
    def rejected(self) -> Mapping[Key, str]:
        return {}

    @property
    def counters(self) -> Counters:
        raise NotImplementedError

    def watch(self, changed: ForeignChange) -> AbstractContextManager[None]:
        del changed
        return nullcontext()

    async def close(self, *, keep_rules: bool) -> None:
        self.done.append(f"{self.name} closed, rules {'stay' if keep_rules else 'go'}")


def fake_row(
    name: str, done: list[str] | None = None, *, reason: str = "", fallbacks: tuple[str, ...] = (), rules: bool = True
) -> Runtime:
    """A mode that cannot work for this reason, if any."""
    notes = [] if done is None else done

    async def unsupported(settings: Settings) -> str:
        notes.append(f"{name} asked in mode {settings.mode}")
        return reason

    async def start(settings: Settings) -> RunningMode:
        notes.append(f"{name} started in mode {settings.mode}")
        return FakeMode(name, notes, Footprint((name,) if rules else ()))

    mode = Mode(
        Semantics(name), "", lambda _plan, _settings: "", Masquerading, "failures", "failures", fallbacks=fallbacks
    )
    return Runtime(mode, unsupported, start)


def answers(texts: list[str]) -> Callable[[], Awaitable[str]]:
    """One text after the other, and the last one for ever."""

    async def answer() -> str:
        return texts.pop(0) if len(texts) > 1 else texts[0]

    return answer
