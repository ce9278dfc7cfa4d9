"""From one mode of a process to the next, and from another proxy to this one.

The previous mode works until the first sync of the new one has succeeded. Then its rules are removed, and connections
that it relays get a bounded time. The rules that a process leaves are removed by the next process, in any mode.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from kdns import logs
from kdns.errors import ApplyError, KdnsError
from kdns.proxy.iptables.io.clean_up import remove_canaries
from kdns.proxy.modes import semantics
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import CleanUp, Footprint, Mode, RunningMode
from kdns.proxy.takeover.io.kube_proxy import kube_proxy
from kdns.proxy.takeover.io.owner import own_network
from kdns.proxy.takeover.io.rule_authors import RuleAuthors, rule_authors
from kdns.runtime.tasks import observed

RETRY_S: Final = 10.0
"""When a clean-up that failed is tried again, and how often it is looked whether a kube-proxy has ended."""
LONGEST_RETRY_S: Final = 600.0
"""Each further failure doubles the pause up to this: what is missing, such as a capability, seldom comes by itself."""

WATCH_S: Final = 60.0
"""How often it is looked whether a kube-proxy has been started."""

PATIENCE_S: Final = 6.0
"""How long --cleanup looks for a kube-proxy where kdns's rules are the only ones: it retries its ports every 5 s."""
POLL_S: Final = 0.5

log = logs.get(__name__)


class Takeover:
    """The modes that a process runs one after the other; it closes the last one at its end.

    `keep_rules`: rules that work without this process stay then. `clean_ups` remove what was there before, and
    `is_kube_proxy` returns the evidence of a running kube-proxy, or "".
    """

    def __init__(
        self,
        clean_ups: Sequence[CleanUp],
        *,
        keep_rules: bool,
        is_kube_proxy: Callable[[], Awaitable[str]] = kube_proxy,
        own: Callable[[], socket.socket] = own_network,
        retry_s: float = RETRY_S,
        watch_s: float = WATCH_S,
    ) -> None:
        self._clean_ups, self._keep_rules, self._retry_s, self._watch_s = clean_ups, keep_rules, retry_s, watch_s
        self._is_kube_proxy, self._own = is_kube_proxy, own
        self._owner: socket.socket | None = None
        self._modes: list[RunningMode] = []
        self._cleanups: dict[str, tuple[CleanUp, ...]] = {}
        self._retiring: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with AsyncExitStack() as stack:
            if self._owner:
                stack.enter_context(self._owner)
            for mode in self._modes:
                stack.push_async_callback(mode.close, keep_rules=self._keep_rules)
            for task in self._retiring:
                task.cancel()
            await asyncio.gather(*self._retiring, return_exceptions=True)

    async def start(self, row: Mode, settings: Settings) -> RunningMode:
        """The mode, at work beside those before it until `clean_up`. KdnsError where another process serves the node.

        One of the same name is reconfigured if possible, else closed first: both would need the same sockets.
        """
        same = next((each for each in self._modes if each.name == row.name), None)
        if same and row.can_reconfigure(same, settings):
            made = same
        else:
            if same:
                await same.close(keep_rules=True)
                self._forget(same)
            made = await row.start(settings)
        if not self._owner and made.footprint != Footprint():
            try:
                self._owner = self._own()
            except BaseException:
                await made.close(keep_rules=True)
                raise
        self._forget(made)
        self._modes.append(made)
        self._cleanups[made.name] = row.cleanups
        return made

    @property
    def has_earlier(self) -> bool:
        """Whether modes before the last one are at work still."""
        return len(self._modes) > 1

    @property
    def has_earlier_relays(self) -> bool:
        """Whether one of them relays connections."""
        return any(semantics(each.name).relays for each in self._modes[:-1])

    async def clean_up(self, settings: Settings, removed: Callable[[], object] = lambda: None) -> None:
        """Removes what was there before, since the rules of the last mode stand; then call `removed`.

        Where a kube-proxy is at work, what may be its own is removed when it has ended. What fails is tried again, and
        does not hold up the rest: a mode before retires when its own rules are gone.
        """
        reason = sign = ""
        pause_s = self._retry_s
        while True:
            before, sign = sign, await self._is_kube_proxy() if self._owner else ""
            if sign and not before:
                log.warning("a kube-proxy is at work: its rules stay until it has ended", seen=sign)
            failures = await self._remove_others(settings, keep_kube_proxy=bool(sign))
            self._retire_earlier(failures)
            if not failures:
                removed()
                if not sign:
                    return
            pause_s = min(2 * pause_s, LONGEST_RETRY_S) if failures and reason else self._retry_s
            told, reason = reason, "; ".join(map(str, failures.values()))
            if reason not in {"", told}:
                log.warning("rules of others not removed yet", reason=reason, retry_in_s=pause_s)
            await asyncio.sleep(pause_s)

    async def watch_kube_proxy(self, settings: Settings) -> None:
        """Removes, until cancelled, what a kube-proxy leaves that is started and ends beside this process.

        Its rules would serve endpoints of before, and may come before those of this process.
        """
        while True:
            await asyncio.sleep(self._watch_s)
            if self._owner and await self._is_kube_proxy():
                await self.clean_up(settings)

    async def _remove_others(self, settings: Settings, *, keep_kube_proxy: bool) -> Mapping[CleanUp, ApplyError]:
        if not self._owner:
            return {}  # a mode without rules leaves those of others as they are
        kept = replace(self._modes[-1].footprint, keep_kube_proxy=keep_kube_proxy)
        removed, failures = await _removals(self._clean_ups, settings, kept)
        if removed:
            log.info("stale rules removed", removed=removed)
        return failures

    def _retire_earlier(self, failed: Container[CleanUp]) -> None:
        """Retires earlier modes whose clean-ups worked, in background tasks that outlive a mode change."""
        for mode in self._modes[:-1]:
            if any(each in failed for each in self._cleanups[mode.name]):
                continue
            self._forget(mode)
            task = observed(mode.retire(), "retiring mode")
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)

    def _forget(self, mode: RunningMode) -> None:
        self._modes = [each for each in self._modes if each is not mode]


async def remove_everything(
    settings: Settings,
    clean_ups: Sequence[CleanUp],
    *,
    is_kube_proxy: Callable[[], Awaitable[str]] = kube_proxy,
    own: Callable[[], socket.socket] = own_network,
    authors: Callable[[], Awaitable[RuleAuthors]] = rule_authors,
    patience_s: float = PATIENCE_S,
    poll_s: float = POLL_S,
) -> list[str]:
    """Removes what kdns has left in all modes, for --cleanup, and returns what was removed, in words.

    What may be a kube-proxy's stays, whether one is at work or not: its rules also serve while it restarts.
    Raises KdnsError if another process of kdns is at work, which would put its rules back, or if a kube-proxy is at
    work that has no rules yet. Raises ApplyError if something cannot be removed, after everything else was.
    """
    with own():
        found = await _settled(is_kube_proxy, authors, patience_s, poll_s)
        if found.has_kube_proxy:
            log.info("rules of a kube-proxy stay")
        kept = Footprint(keep_kube_proxy=True, marked=found.marked)
        removed, failures = await _removals(clean_ups, settings, kept)
    for failure in failures.values():
        raise failure
    return removed


async def _removals(
    clean_ups: Sequence[CleanUp], settings: Settings, kept: Footprint
) -> tuple[list[str], dict[CleanUp, ApplyError]]:
    """Returns the objects that all clean-ups removed, and the clean-ups that failed."""
    removed: list[str] = []
    failures: dict[CleanUp, ApplyError] = {}
    for each in clean_ups:
        try:
            removed += await each(settings, kept)
        except ApplyError as error:
            failures[each] = error
    return removed, failures


async def _settled(
    is_kube_proxy: Callable[[], Awaitable[str]],
    authors: Callable[[], Awaitable[RuleAuthors]],
    patience_s: float,
    poll_s: float,
) -> RuleAuthors:
    """Whose rules there are, once kdns's are not the only ones of a node with a kube-proxy.

    A kube-proxy that is started beside kdns shows itself at its ports up to 5 s after kdns has left them.
    """
    until_s = time.monotonic() + patience_s
    while True:
        found = await authors()
        if found.has_kube_proxy or not found.has_kdns:
            return found
        if sign := await is_kube_proxy():
            with suppress(ApplyError):
                await remove_canaries(Footprint(marked=found.marked))
            raise KdnsError(
                f"a kube-proxy is at work without rules of its own ({sign}), so kdns's rules stay; "
                "run --cleanup again when it has written them, which a restart of kube-proxy makes it do"
            )
        if time.monotonic() >= until_s:
            return found
        await asyncio.sleep(poll_s)
