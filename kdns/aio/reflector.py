"""Keeps the cluster state equal to what an API server says about one kind: list, watch, resume, list again.

A list that is not the first is compared in place: every object stays stored, and with that every answer, until the
server has said that it is gone. A watch that ends is taken up from the last resourceVersion. Only these make a new
list: 410 Gone, a stream that cannot be read, a server whose revisions went back (compared after every outage and with
every event), one that refuses to resume Timing.refusals times in a row, and the verifying list once in Timing.verify_s.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol, TypeAlias

import msgspec

from kdns import logs
from kdns.aio.outage import Outage
from kdns.cluster.objects import Key
from kdns.cluster.state import AnyChange, State
from kdns.cluster.watching import (
    UNREADABLE,
    Event,
    Lines,
    Resource,
    Timing,
    Unreadable,
    backoff_s,
    decode_event,
    decode_status,
    key_of,
    listed,
    version_of,
    went_back,
)
from kdns.errors import ApiServerError

OnChange: TypeAlias = Callable[[list[AnyChange]], None]
"""Called with the changes of one list page or one batch of events, after State holds them all.

Called with an empty list too, when the first full list of a kind is done: State.synced has grown.
"""

TOO_LARGE = "Too large resource version"
"""How API servers, with 504, refuse a version they have not reached: they were restored or replaced."""

NOT_THE_VERSION = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS)
"""Refusals that a list would meet as well."""

ABSENT = (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN)
"""How a server says that it has no such kind, or not for us."""

log = logs.get("kdns.reflector")


class Asks(Protocol):
    """What a reflector needs of a connection: kdns.aio.connection.Connection has it."""

    @property
    def server(self) -> str:
        """The server's URL, for messages."""

    async def get(self, path: str, params: Mapping[str, str]) -> bytes:
        """The body of a successful answer; ApiServerError otherwise."""

    def stream(self, path: str, params: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The chunks of a successful answer; ApiServerError otherwise."""


@dataclass(slots=True)
class WatchStats:
    """One kind's counters. Times are the reflector's clock's; None where it has not happened.

    now - last_contact_s is the staleness: with bookmarks it stays below some 70 s while all is well.
    """

    connected: bool = False
    resource_version: str = ""
    lists: int = 0
    watches: int = 0
    events: int = 0
    unreadable: int = 0
    errors: Counter[str] = field(default_factory=Counter)  # by HTTP status, or "connection", "malformed", "internal"
    relists: Counter[str] = field(default_factory=Counter)  # by cause
    last_event_s: float | None = None
    last_contact_s: float | None = None


@dataclass(slots=True)
class Found:
    """What one full list held."""

    keys: set[Key] = field(default_factory=set)
    version: str = ""
    changes: int = 0


class RelistError(Exception):
    """The stream cannot go on from where it was: list again."""

    def __init__(self, cause: str, reason: str) -> None:
        self.cause, self.reason = cause, reason
        super().__init__(reason)


@dataclass(slots=True)
class Reflector:
    """One kind of one API server; `run` follows it until cancelled."""

    resource: Resource
    asks: Asks
    state: State
    on_change: OnChange
    stats: WatchStats
    outage: Outage
    timing: Timing
    now_s: Callable[[], float]
    fraction: Callable[[], float]
    label_selector: str = ""
    field_selector: str = ""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _version: str = ""
    _cause: str = ""
    _listed_s: float = 0.0
    _failures: int = 0
    _lost: bool = False
    _refusals: int = 0

    async def run(self) -> None:
        """Follow until cancelled; nothing else ends it."""
        while True:
            wait_s = await self._round()
            self.stats.connected = False
            await self.sleep(wait_s)

    async def _round(self) -> float:
        """List if need be, then watch until that ends; how long to wait until the next round.

        An end that the server may mean well is answered at once, the first time.
        """
        began_s = self.now_s()
        free = 1
        retry_after_s = 0.0
        try:
            if self._version and began_s - self._listed_s >= self.timing.verify_s:
                self._relist("verify")
            if self._version and self._failures:
                await self._compare_version()
            if not self._version:
                await self._list()
            began_s = self.now_s()
            await self._watch()
        except RelistError as error:
            self._relist(error.cause)
            self.stats.errors[error.cause] += 1
            log.warning("watch cannot go on", kind=self.resource.plural, cause=error.cause, reason=error.reason)
        except UNREADABLE as error:
            self._relist("malformed")
            self.stats.errors["malformed"] += 1
            log.warning("api answer not understood", kind=self.resource.plural, reason=str(error))
        except ApiServerError as error:
            free = self._failed(error)
            retry_after_s = min(error.retry_after_s, self.timing.retry_after_cap_s)
        except Exception:  # a task's boundary: following must not end
            self._relist("internal")
            self.stats.errors["internal"] += 1
            log.exception("reflector failed", kind=self.resource.plural)
        lived = self.stats.connected and self.now_s() - began_s >= self.timing.healthy_s
        self._failures = 0 if lived else self._failures + 1
        jittered_s = backoff_s(
            self._failures - free, self.fraction(), base_s=self.timing.backoff_s, cap_s=self.timing.backoff_cap_s
        )
        return max(retry_after_s, jittered_s)

    def _failed(self, error: ApiServerError) -> int:
        """Count and log a failed request; how many failures are free of waiting."""
        self.stats.errors[str(error.status or "connection")] += 1
        if error.status == HTTPStatus.GONE:
            self._relist("expired")
            self._answered()
            log.info("resource version expired", kind=self.resource.plural)
            return 1
        if error.status == HTTPStatus.GATEWAY_TIMEOUT and TOO_LARGE in error.reason:
            self._relist("restored")
            log.warning("api server went back", kind=self.resource.plural, reason=error.reason)
            return 1
        if error.status:
            if self.resource.is_optional and error.status in ABSENT and self.resource.kind not in self.state.synced:
                self._absent(error)
            if not (self.resource.is_optional and error.status == HTTPStatus.NOT_FOUND):
                self.outage.refused(self.resource, error)
            self._refusals += error.status not in NOT_THE_VERSION
            if self._version and self._refusals >= self.timing.refusals:
                self._relist("refused")
            return 0
        if self.stats.connected:  # it was there a moment ago: only a failing new attempt is an outage
            log.info("watch broke off", kind=self.resource.plural, reason=error.reason)
            return 1
        self.outage.lost(self.asks.server, error.reason, self.stats.last_contact_s)
        self._lost = True
        return 0

    def _absent(self, error: ApiServerError) -> None:
        """Go on without any object of this kind, until the server has it."""
        log.info("kind is not there", kind=self.resource.plural, reason=error.reason)
        self.on_change(self.state.retain(self.resource.kind, ()))

    def _relist(self, cause: str) -> None:
        self._version, self._cause, self._refusals = "", cause, 0

    def _contact(self) -> None:
        self.stats.last_contact_s = self.now_s()
        self._answered()
        self.outage.back(self.resource)

    def _answered(self) -> None:
        """End an outage: what follows, such as a 410 and a new list, need not wait as long as it took."""
        if self._lost:
            self._lost, self._failures = False, 0

    async def _compare_version(self) -> None:
        """After an outage: a server that was restored or replaced would let a watch wait for its old version.

        One that has since counted beyond that version is not noticed before the verifying list.
        """
        page = listed(self.resource, await self.asks.get(self.resource.path, self._selected() | {"limit": "1"}))
        if went_back(self._version, page.resource_version):
            raise RelistError("restored", f"resourceVersion {page.resource_version} came after {self._version}")

    async def _list(self) -> None:
        kind = self.resource.kind
        first_time = kind not in self.state.synced
        began_s = self.now_s()
        self.stats.lists += 1
        if self._cause:
            self.stats.relists[self._cause] += 1
        try:
            found = await self._fetch(self.timing.page_objects)
        except ApiServerError as error:
            if error.status != HTTPStatus.GONE:
                raise
            found = await self._fetch(0)  # the server has forgotten where the paged list was
        gone = self.state.retain(kind, found.keys)
        if gone or first_time:
            self.on_change(gone)
        self._version = self.stats.resource_version = found.version
        self._listed_s = self.now_s()
        log.info(
            "listed",
            kind=self.resource.plural,
            cause=self._cause or "start",
            objects=len(found.keys),
            changes=found.changes + len(gone),
            took_s=round(self._listed_s - began_s, 3),
        )

    async def _fetch(self, page_objects: int) -> Found:
        """Ask for all objects, so many at a time (0: at once), and store each page before the next is asked for."""
        params = self._selected() | ({"limit": str(page_objects)} if page_objects else {})
        found = Found()
        while True:
            page = listed(self.resource, await self.asks.get(self.resource.path, params))
            self._contact()
            found.keys.update(obj.key for obj in page.objects)
            found.keys.update(self._skipped(page.unreadable))
            changes = [change for obj in page.objects if (change := self.state.upsert(obj))]
            found.changes += len(changes)
            self._hand_over(changes)
            # What happens while the other pages are fetched comes after the first page's version: the watch tells it.
            found.version = found.version or page.resource_version
            if not page.continue_token:
                break
            params["continue"] = page.continue_token
        if not found.version:
            raise msgspec.DecodeError("the list has no metadata.resourceVersion")
        return found

    def _selected(self) -> dict[str, str]:
        selectors = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector}
        return {name: value for name, value in selectors.items() if value}

    async def _watch(self) -> None:
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(round(self.timing.watch_s * (1 + self.fraction()))),
        }
        self.stats.watches += 1
        lines = Lines()
        async with self.asks.stream(self.resource.path, params | self._selected()) as chunks:
            self.stats.connected = True
            self._contact()
            async for chunk in chunks:
                self._contact()
                self._apply(map(decode_event, lines.feed(chunk)))

    def _apply(self, events: Iterable[Event]) -> None:
        """Store a batch of events and hand over its changes, also those before one that stops the watch."""
        changes: list[AnyChange] = []
        last: Event | None = None
        try:
            for event in events:
                if event.type == "ERROR":
                    raise self._error(event)
                last = event
                if event.type != "BOOKMARK":
                    self._store(event, changes)
        finally:
            self._hand_over(changes)
        if last:
            self._resume_from(version_of(last.object))

    def _store(self, event: Event, changes: list[AnyChange]) -> None:
        self.stats.events += 1
        self.stats.last_event_s = self.now_s()
        try:
            if event.type == "DELETED":
                key = key_of(event.object)
                change = self.state.delete(self.resource.kind, key) if key else None
            else:
                change = self.state.upsert(self.resource.decode(event.object))
        except msgspec.ValidationError as error:
            self._skipped([Unreadable(key_of(event.object), str(error))])
        else:
            if change:
                changes.append(change)

    def _resume_from(self, version: str) -> None:
        if went_back(self._version, version):
            raise RelistError("restored", f"resourceVersion {version} came after {self._version}")
        if version:
            self._version = self.stats.resource_version = version
            self._refusals = 0

    def _error(self, event: Event) -> Exception:
        """What an ERROR event means: its object is a Status."""
        status = decode_status(event.object)
        return ApiServerError(self.asks.server, status.message or status.reason, status.code or 500)

    def _hand_over(self, changes: list[AnyChange]) -> None:
        if changes:
            self.on_change(changes)

    def _skipped(self, unreadable: Iterable[Unreadable]) -> list[Key]:
        """Log objects that make no sense; their keys, so that what was known of them stays."""
        for one in unreadable:
            self.stats.unreadable += 1
            log.warning("object not understood", kind=self.resource.plural, key=one.key, reason=one.reason)
        return [one.key for one in unreadable if one.key]
