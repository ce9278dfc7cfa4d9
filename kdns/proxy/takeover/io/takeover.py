"""From another proxy, or the process before, to this one.

What was there before works until the first sync of the mode has succeeded; then it is removed. The rules that a process
leaves are removed by the next process, in any mode: a change of the mode is a restart.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from kdns import logs
from kdns.errors import ApplyError, KdnsError
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import CleanUp, Footprint, RuleAuthors, RunningMode, Runtime
from kdns.proxy.takeover.io.kube_proxy import kube_proxy
from kdns.proxy.takeover.io.owner import own_network

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
    """The mode of a process, which takes the place of what was there before; it closes the mode at its end.

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
    ) -> None:
        self._clean_ups, self._keep_rules = clean_ups, keep_rules
        self._is_kube_proxy, self._own = is_kube_proxy, own
        self._owner: socket.socket | None = None
        self._mode: RunningMode | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._owner or nullcontext():
            if self._mode:
                await self._mode.close(keep_rules=self._keep_rules)

    async def start(self, runtime: Runtime, settings: Settings) -> RunningMode:
        """Returns the mode at work; call it once. KdnsError where another process serves the node."""
        mode = await runtime.start(settings)
        if mode.footprint != Footprint():
            try:
                self._owner = self._own()
            except BaseException:
                await mode.close(keep_rules=True)
                raise
        self._mode = mode
        return mode

    async def clean_up(self, settings: Settings, removed: Callable[[], object] = lambda: None) -> None:
        """Removes what was there before, since the rules of the mode stand; then call `removed`.

        Where a kube-proxy is at work, what may be its own is removed when it has ended. What fails is tried again.
        """
        reason = sign = ""
        pause_s = RETRY_S
        while True:
            before, sign = sign, await self._is_kube_proxy() if self._owner else ""
            if sign and not before:
                log.warning("a kube-proxy is at work: its rules stay until it has ended", seen=sign)
            failures = await self._remove_others(settings, keep_kube_proxy=bool(sign))
            if not failures:
                removed()
                if not sign:
                    return
            pause_s = min(2 * pause_s, LONGEST_RETRY_S) if failures and reason else RETRY_S
            told, reason = reason, "; ".join(map(str, failures))
            if reason not in {"", told}:
                log.warning("rules of others not removed yet", reason=reason, retry_in_s=pause_s)
            await asyncio.sleep(pause_s)

    async def watch_kube_proxy(self, settings: Settings) -> None:
        """Removes, until cancelled, what a kube-proxy leaves that is started and ends beside this process.

        Its rules would serve endpoints of before, and may come before those of this process.
        """
        while True:
            await asyncio.sleep(WATCH_S)
            if self._owner and await self._is_kube_proxy():
                await self.clean_up(settings)

    async def _remove_others(self, settings: Settings, *, keep_kube_proxy: bool) -> list[ApplyError]:
        if not self._owner or not self._mode:
            return []  # a mode without rules leaves those of others as they are
        kept = replace(self._mode.footprint, keep_kube_proxy=keep_kube_proxy)
        removed, failures = await _removals(self._clean_ups, settings, kept)
        if removed:
            log.info("stale rules removed", removed=removed)
        return failures


async def remove_everything(
    settings: Settings,
    clean_ups: Sequence[CleanUp],
    *,
    is_kube_proxy: Callable[[], Awaitable[str]] = kube_proxy,
    own: Callable[[], socket.socket] = own_network,
    patience_s: float = PATIENCE_S,
) -> list[str]:
    """Removes what kdns has left in all modes, for --cleanup, and returns what was removed, in words.

    What may be a kube-proxy's stays, whether one is at work or not: its rules also serve while it restarts.
    Raises KdnsError if another process of kdns is at work, which would put its rules back, or if a kube-proxy is at
    work that has no rules yet. Raises ApplyError if something cannot be removed, after everything else was.
    """
    if sys.platform == "win32":  # ids say what is kdns's there, and the clean-up has a lock of its own
        removed, failures = await _removals(clean_ups, settings, Footprint())
    else:
        with own():
            found = await _settled(is_kube_proxy, clean_ups, patience_s)
            if found.has_kube_proxy:
                log.info("rules of a kube-proxy stay")
            kept = Footprint(keep_kube_proxy=True, marked=found.marked)
            removed, failures = await _removals(clean_ups, settings, kept)
    for failure in failures:
        raise failure
    return removed


async def _removals(
    clean_ups: Sequence[CleanUp], settings: Settings, kept: Footprint
) -> tuple[list[str], list[ApplyError]]:
    """Returns the objects that all clean-ups removed, and why others failed."""
    removed: list[str] = []
    failures: list[ApplyError] = []
    for step in clean_ups:
        try:
            removed += await step.remove(settings, kept)
        except ApplyError as error:
            failures.append(error)
    return removed, failures


async def rule_authors(clean_ups: Sequence[CleanUp]) -> RuleAuthors:
    authors = [await step.authors() for step in clean_ups if step.authors]
    return RuleAuthors(
        any(author.has_kdns for author in authors),
        any(author.has_kube_proxy for author in authors),
        frozenset(mark for author in authors for mark in author.marked),
    )


async def _settled(
    is_kube_proxy: Callable[[], Awaitable[str]], clean_ups: Sequence[CleanUp], patience_s: float
) -> RuleAuthors:
    """Whose rules there are, once kdns's are not the only ones of a node with a kube-proxy.

    A kube-proxy that is started beside kdns shows itself at its ports up to 5 s after kdns has left them.
    """
    until_s = time.monotonic() + patience_s
    while True:
        found = await rule_authors(clean_ups)
        if found.has_kube_proxy or not found.has_kdns:
            return found
        if sign := await is_kube_proxy():
            for wake in (step.wake for step in clean_ups if step.wake):
                with suppress(ApplyError):
                    await wake(Footprint(marked=found.marked))
            raise KdnsError(
                f"a kube-proxy is at work without rules of its own ({sign}), so kdns's rules stay; "
                "run --cleanup again when it has written them, which a restart of kube-proxy makes it do"
            )
        if time.monotonic() >= until_s:
            return found
        await asyncio.sleep(POLL_S)
