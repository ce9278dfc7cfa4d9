"""What the modes have in common that change objects of the kernel, or of a service of the system."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, TypeVar

from kdns import logs
from kdns.cluster.objects import Key
from kdns.errors import ApplyError
from kdns.proxy.plan.plan import Front
from kdns.proxy.plan.stale_flows import serving
from kdns.proxy.sync.io.proxier import ForeignChange, UdpTargets
from kdns.runtime.requirements import CAPABILITY
from kdns.runtime.tasks import restarted, uninterrupted

LOOK_S: Final = 1.0
"""The least time between two comparisons of the rules with the desired ones."""
LOOK_AGAIN_S: Final = 10.0
"""After a comparison that failed."""

K = TypeVar("K")
T = TypeVar("T")

log = logs.get(__name__)


class KernelMode:
    """The part of a `RunningMode` that does not depend on the kind of rules."""

    name: str
    is_polled = False
    """Whether the rules are compared all the time, and not only where it is unclear whether they have changed."""
    pause_s = LOOK_S
    """The pause between two comparisons."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        """Held while rules change or are compared."""
        self._unclear = asyncio.Event()
        """Set where the rules may have changed."""
        self.rejected: Mapping[Key, str] = {}
        """The Services that the kernel rejects rules of, with the reason; all others are served."""
        self.udp_targets: UdpTargets | None = lambda _, front: serving(front)

    async def sweep(self) -> None:
        """Nothing: partial syncs leave nothing unused."""

    @contextmanager
    def watch(self, changed: ForeignChange) -> Iterator[None]:
        """Notices foreign changes; a defect of the comparison does not end that."""
        with self._notices(changed):
            task = restarted(lambda: self._watch(changed), "look at rules")
            try:
                yield
            finally:
                task.cancel()

    def _notices(self, changed: ForeignChange) -> AbstractContextManager[None]:
        """Calls `changed`, or sets `_unclear`, while the context is open."""
        del changed
        return nullcontext()

    async def _watch(self, changed: ForeignChange) -> None:
        reason = ""
        while True:
            if not self.is_polled:
                await self._unclear.wait()
            self._unclear.clear()
            try:
                async with self._turn:
                    difference = await self.difference()
            except (ApplyError, OSError) as error:
                if reason != str(error):
                    log.warning("rules cannot be compared", mode=self.name, reason=str(error), retry_in_s=LOOK_AGAIN_S)
                reason = str(error)
                self._unclear.set()
                await asyncio.sleep(LOOK_AGAIN_S)
                continue
            reason = ""
            if difference:
                changed(f"unknown: {difference}")
            await asyncio.sleep(self.pause_s)

    async def difference(self) -> str:
        """Returns the first difference from the desired rules, in words; "" if there is none."""
        raise NotImplementedError

    async def close(self, *, keep_rules: bool) -> None:
        if not keep_rules:
            async with self._turn:
                await self._remove_rules()

    async def _remove_rules(self) -> None:
        raise NotImplementedError


async def in_thread(work: Callable[[], T]) -> T:
    """Runs it in a thread, and to its end even if the calling task is cancelled. An OSError becomes an ApplyError."""

    def run() -> T:
        try:
            return work()
        except OSError as error:
            advice = f"; {CAPABILITY}" if isinstance(error, PermissionError) else ""
            raise ApplyError(("netlink",), f"{error.strerror or error}{advice}") from error

    return await uninterrupted(asyncio.to_thread(run))


def rejected_services(used: Iterable[tuple[Front, Iterable[K]]], refused: Mapping[K, str]) -> dict[Key, str]:
    """Returns the Services with a front that uses a refused object, with the reason."""
    rejected: dict[Key, str] = {}
    for front, names in used if refused else ():
        if reason := next((refused[name] for name in names if name in refused), ""):
            rejected.setdefault(front.port.name[:2], reason)
    return rejected


def and_more(failures: Sequence[str]) -> str:
    """Returns the first failure, and how many more there are."""
    return f"{failures[0]}, and {len(failures) - 1} more" if failures[1:] else failures[0]
