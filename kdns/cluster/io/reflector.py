"""The reflector: syncs State with the API server's objects of one kind by list-and-watch.

A list is the start of a watch (sendInitialEvents) if the server supports that, else it is read in pages. Both are at
least as new as the request, so a restart or a relist does not go back in time.

A relist is compared in place: objects, and the answers made of them, stay until the server says that they are deleted.
A watch that ends is resumed from the last resourceVersion. A relist follows only

- 410 Gone, and a stream that does not decode;
- a resourceVersion that is older than the known one, compared after every outage and with every event;
- Timing.refusals consecutive refusals to resume;
- Timing.verify_s since the last list.

A list that lacks most of the stored objects is accepted if the next one, Timing.confirm_s later, lacks most as well.
Objects and events are applied in order, in slices of time between which the loop serves others. A watch resumes after
the last event that was applied.

Differs: client-go accepts any list, also an empty one of another kind; existing names would get NXDOMAIN.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, TypeAlias

import msgspec

from kdns import logs
from kdns.cluster import memory
from kdns.cluster.io import pager
from kdns.cluster.io.outage import Outage
from kdns.cluster.io.pager import Api, EndlessListError, pages
from kdns.cluster.objects import Key, Object
from kdns.cluster.state import Change, State, StateFullError
from kdns.cluster.watch import (
    DECODE_ERRORS,
    DecodeFailure,
    Event,
    Lines,
    Resource,
    Timing,
    backoff_s,
    decode_event,
    decode_status,
    ends_initial_events,
    is_older,
    raw_key,
    resource_version_of,
)
from kdns.errors import ApiServerError
from kdns.runtime.tasks import time_slice

OnChange: TypeAlias = Callable[[list[Change]], None]
"""Called with the changes of a list page or a batch of events, after they are in State.

Called with [] if the first complete list of a kind changed nothing but State.synced.
"""

TOO_LARGE = "Too large resource version"
"""The message, with status 504, if the server has not reached a resourceVersion: it was restored or replaced."""

VERSION_INDEPENDENT = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS)
"""Errors that a relist would get too."""

ABSENT = (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN)
"""The kind is not served, or this client may not read it."""

log = logs.get("kdns.reflector")


@dataclass(slots=True)
class WatchStats:
    """Counters of one kind. `last_contact_s` is on the reflector's clock, None before the first contact.

    Thanks to bookmarks, it is less than about 70 s ago while the watch works.
    """

    connected: bool = False
    resource_version: str = ""
    lists: int = 0
    events: int = 0
    dropped: int = 0  # objects beyond the limits, of the last list or the watch that ended with it
    errors: Counter[str] = field(default_factory=Counter)  # by HTTP status, or "connection", "malformed", "internal"
    relists: Counter[str] = field(default_factory=Counter)  # by cause
    last_contact_s: float | None = None


INITIAL_EVENTS: Final = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
"""Start a watch with all objects, at least as new as the request."""

UNSUPPORTED = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
"""The server does not know INITIAL_EVENTS, or has the feature gate WatchList off."""


@dataclass(slots=True)
class Listing:
    """A list in progress: the keys that were stored at its start, and those listed so far."""

    before: frozenset[Key]
    began_s: float
    keys: set[Key] = field(default_factory=set)
    objects: int = 0
    changes: int = 0
    dropped: int = 0


class RelistError(Exception):
    """The watch cannot be resumed, or the list is doubtful: list again, not before `after_s`."""

    def __init__(self, cause: str, reason: str, after_s: float = 0.0) -> None:
        self.cause, self.reason, self.after_s = cause, reason, after_s
        super().__init__(reason)


def full(dropped: int) -> RelistError:
    reason = (
        f"{dropped} dropped: kdns keeps at most {pager.OBJECTS_MAX} objects of a kind, and "
        f"{memory.STATE_MAX_BYTES >> 20} MiB of all kinds. Look for namespaces with very many or very large objects"
    )
    return RelistError("full", reason, EndlessListError.after_s)


class UnsupportedError(Exception):
    """The server does not send initial events, or their end."""


@dataclass(slots=True)
class Reflector:
    """List-and-watch of one kind of one API server; `run` until cancelled."""

    resource: Resource
    connection: Api
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
    _is_doubted: bool = False
    _listing: Listing | None = None
    _can_stream: bool = True
    _has_stream_failed: bool = False

    async def run(self) -> None:
        """Lists and watches until cancelled; no error ends it."""
        while True:
            after_s, jittered_s = await self._round()
            self.stats.connected = False
            if after_s:
                await self.sleep(max(after_s, jittered_s))
            else:
                await self.outage.wait(self.sleep(jittered_s))

    async def _round(self) -> tuple[float, float]:
        """Lists if needed, then watches until the watch ends; returns the pause before the next round.

        Its minimum, and a backoff that ends early when the server answers again. The first failure after a working
        watch is free.
        """
        began_s = self.now_s()
        free_failures = 1
        after_s = 0.0
        try:
            if self._version and began_s - self._listed_s >= self.timing.verify_s:
                self._relist("verify")
            if self._version and self._failures:
                await self._compare_version()
            if not (self._version or await self._stream()):
                await self._list()
            began_s = self.now_s()
            await self._watch()
        except (RelistError, EndlessListError) as error:
            self._relist(error.cause)
            self.stats.errors[error.cause] += 1
            after_s = error.after_s
            log.warning("new list needed", kind=self.resource.plural, cause=error.cause, reason=error.reason)
        except DECODE_ERRORS as error:
            self._relist("malformed")
            self.stats.errors["malformed"] += 1
            log.warning("api server response malformed", kind=self.resource.plural, reason=str(error))
        except ApiServerError as error:
            free_failures = self._failed(error)
            after_s = min(error.retry_after_s, self.timing.retry_after_cap_s)
        except Exception:  # a task's boundary: the reflector must not end
            self._relist("internal")
            self.stats.errors["internal"] += 1
            log.exception("reflector failed", kind=self.resource.plural)
        healthy = self.stats.connected and self.now_s() - began_s >= self.timing.healthy_s
        self._failures = 0 if healthy else self._failures + 1
        jittered_s = backoff_s(
            self._failures - free_failures,
            self.fraction(),
            base_s=self.timing.backoff_s,
            cap_s=self.timing.backoff_cap_s,
        )
        return after_s, jittered_s

    def _failed(self, error: ApiServerError) -> int:
        """Counts and logs a failed request; returns the number of failures without backoff."""
        self.stats.errors[str(error.status or "connection")] += 1
        if error.status == HTTPStatus.GONE:
            self._relist("expired")
            self._answered()
            log.info("resource version expired", kind=self.resource.plural)
            return 1
        if error.status == HTTPStatus.GATEWAY_TIMEOUT and TOO_LARGE in error.reason:
            self._relist("restored")
            log.warning("api server has an older resource version", kind=self.resource.plural, reason=error.reason)
            return 1
        if error.status:
            if self.resource.is_optional and error.status in ABSENT and not self.state.is_listed(self.resource.kind):
                self._absent(error)
            if not (self.resource.is_optional and error.status == HTTPStatus.NOT_FOUND):
                self.outage.refused(self.resource, error)
            self._refusals += error.status not in VERSION_INDEPENDENT
            if self._version and self._refusals >= self.timing.refusals:
                self._relist("refused")
            return 0
        if self.stats.connected:  # an outage is reported when the next attempt fails too
            log.info("watch interrupted", kind=self.resource.plural, reason=error.reason)
            return 1
        self.outage.lost(self.connection.server, error.reason, self.stats.last_contact_s)
        self._lost = True
        return 0

    def _absent(self, error: ApiServerError) -> None:
        """An optional kind is empty until the server has it."""
        log.info("kind not served", kind=self.resource.plural, reason=error.reason)
        self.on_change(self.state.retain(self.resource.kind, ()))

    def _relist(self, cause: str) -> None:
        self._version, self._cause, self._refusals = "", cause, 0

    def _contact(self) -> None:
        self.stats.last_contact_s = self.now_s()
        self._answered()
        self.outage.back(self.resource)

    def _answered(self) -> None:
        """Resets the backoff of an outage, so that what follows, such as a 410 and a relist, does not wait."""
        if self._lost:
            self._lost, self._failures = False, 0

    async def _compare_version(self) -> None:
        """RelistError if the server has an older version after an outage: its watch would wait for the known one.

        A restored server that has passed the known version since is only noticed after Timing.verify_s.
        """
        query = self._selectors()
        version = ""
        async with aclosing(pages(self.connection, self.resource, query, 1)) as parts:
            async for part in parts:
                if version := part.resource_version:
                    break
        if is_older(version, self._version):
            raise RelistError("restored", f"resourceVersion {version} came after {self._version}")

    async def _stream(self) -> bool:
        """Lists and watches by one request, if the server supports it; returns whether the list was complete.

        After an incomplete list the next one is in pages, so that a proxy that ends all streams does not prevent it.
        Differs: client-go tries again before each list even if the server refused.
        """
        if not self._can_stream or self._has_stream_failed:
            return False
        try:
            await self._watch()
        except UnsupportedError as error:
            self._can_stream = False
            log.info("server does not stream lists", kind=self.resource.plural, reason=str(error))
        self.stats.connected = bool(self._version)
        return self.stats.connected

    async def _list(self) -> None:
        listing = self._begin_list()
        try:
            version = await self._fetch(listing, self.timing.page_objects)
        except ApiServerError as error:
            if error.status != HTTPStatus.GONE:
                raise
            listing.keys.clear()
            version = await self._fetch(listing, 0)  # the list's revision was compacted between two pages
        self._end_list(listing, version)

    def _begin_list(self) -> Listing:
        self.stats.lists += 1
        if self._cause:
            self.stats.relists[self._cause] += 1
        return Listing(frozenset(self.state.objects(self.resource.kind)), self.now_s())

    def _end_list(self, listing: Listing, version: str) -> None:
        """Deletes objects that a complete list lacks; the watch continues from `version`."""
        kind = self.resource.kind
        if not version:
            raise msgspec.DecodeError("the list has no metadata.resourceVersion")
        first_time = not self.state.is_listed(kind)
        self._has_stream_failed = False
        self._doubt(listing.before, listing.keys)
        deleted = self.state.retain(kind, listing.keys)
        if deleted or first_time:
            self.on_change(deleted)
        self._version = self.stats.resource_version = version
        self._listed_s = self.now_s()
        log.info(
            "listed",
            kind=self.resource.plural,
            cause=self._cause or "start",
            objects=len(listing.keys),
            changes=listing.changes + len(deleted),
            took_s=round(self._listed_s - listing.began_s, 3),
        )
        self.stats.dropped = listing.dropped
        if listing.dropped:
            raise full(listing.dropped)

    def _doubt(self, before: Collection[Key], listed: Collection[Key]) -> None:
        """RelistError for a list that lacks most of the stored objects, unless the previous list did as well.

        A server that lost its data, or a proxy in front of the wrong one, returns an empty list too.
        """
        missing = sum(key not in listed for key in before)
        self._is_doubted = 2 * missing > len(before) and not self._is_doubted
        if self._is_doubted:
            reason = f"{missing} of {len(before)} known objects are not listed"
            raise RelistError("unconfirmed", reason, self.timing.confirm_s)

    async def _fetch(self, listing: Listing, page_objects: int) -> str:
        """Lists all objects in pages; stores each before it requests the next."""
        version = ""
        async with aclosing(pages(self.connection, self.resource, self._selectors(), page_objects)) as parts:
            async for part in parts:
                self._contact()
                listing.keys.update(self._skip(part.failures))
                objects = iter(part.objects)
                while self._upsert(objects, listing):  # noqa: ASYNC110 - does not wait, but yields to others
                    await asyncio.sleep(0)
                # the watch reports changes since the first page's version
                version = version or part.resource_version
        return version

    def _upsert(self, objects: Iterator[Object], listing: Listing) -> bool:
        """Stores listed objects for a slice of time, and reports the changes; True if there may be more."""
        changes: list[Change] = []
        is_over = time_slice()
        try:
            for obj in objects:
                listing.keys.add(obj.key)
                if change := self._put(obj, listing):
                    changes.append(change)
                if is_over():
                    return True
            return False
        finally:
            listing.changes += len(changes)
            self._report(changes)

    def _put(self, obj: Object, listing: Listing | None) -> Change | None:
        """An object beyond the limits is dropped from a list, whose end may make room; it ends a watch."""
        state, known = self.state, self.state.objects(self.resource.kind)
        if len(known) < pager.OBJECTS_MAX or obj.key in known:
            with suppress(StateFullError):
                return state.upsert(obj, memory.STATE_MAX_BYTES)
        if listing is None:
            self.stats.dropped = 1
            raise full(1)
        listing.dropped += 1
        return None

    def _selectors(self) -> dict[str, str]:
        selectors = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector}
        return {name: value for name, value in selectors.items() if value}

    async def _watch(self) -> None:
        """Watches from the known version. Without one, the watch starts with a list."""
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(self.timing.watch_s * (1 + self.fraction()))),
        }
        params |= {"resourceVersion": self._version} if self._version else INITIAL_EVENTS
        self._has_stream_failed = not self._version  # until the list is complete
        try:
            async with self.connection.stream(self.resource.path, params | self._selectors()) as chunks:
                await self._follow(chunks)
        except ApiServerError as error:
            if not self._version and not self._listing and error.status in UNSUPPORTED:
                raise UnsupportedError(error.reason) from error
            raise
        finally:
            self._listing = None

    async def _follow(self, chunks: AsyncIterator[bytes]) -> None:
        self._listing = None if self._version else self._begin_list()
        self.stats.connected = True
        self._contact()
        lines, loop = Lines(), asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as patience:
                if self._listing:
                    patience.reschedule(loop.time() + self.timing.initial_s)
                async for chunk in chunks:
                    self._contact()
                    events = (decode_event(self.resource, line) for line in lines.feed(chunk))
                    while self._apply(events):  # noqa: ASYNC110 - as in _fetch
                        await asyncio.sleep(0)
                    if patience.when():
                        patience.reschedule(loop.time() + self.timing.initial_s if self._listing else None)
        except TimeoutError as error:
            raise UnsupportedError(f"no end of the initial events within {self.timing.initial_s:g} s") from error

    def _apply(self, events: Iterator[Event]) -> bool:
        """Stores events until a time slice is over, and reports the changes, also those before an ERROR event.

        True if more events may be buffered.
        """
        changes: list[Change] = []
        last: Event | None = None
        has_more, is_over = False, time_slice()
        try:
            for event in events:
                if event.type == "ERROR":
                    raise self._error(event)
                last = event
                if event.type != "BOOKMARK":
                    self._store(event, changes)
                elif self._listing:
                    self._report(changes)
                    changes = []
                    self._end_initial(self._listing, event)
                if is_over():
                    has_more = True
                    break
        finally:
            self._report(changes)
        if last and not self._listing:
            self._resume_from(resource_version_of(last.object))
        return has_more

    def _end_initial(self, listing: Listing, bookmark: Event) -> None:
        if not ends_initial_events(bookmark.object):
            raise UnsupportedError("a bookmark without the end of the initial events")
        self._listing = None
        self._end_list(listing, resource_version_of(bookmark.object))

    def _store(self, event: Event, changes: list[Change]) -> None:
        listing = self._listing
        if listing:
            listing.objects += 1
            if listing.objects > pager.OBJECTS_MAX:
                raise EndlessListError(self.connection.server, self.resource.path, f"{pager.OBJECTS_MAX} objects")
        else:
            self.stats.events += 1
        try:
            if event.type == "DELETED":
                key = raw_key(event.object)
                change = self.state.delete(self.resource.kind, key) if key else None
                if listing and key:
                    listing.keys.discard(key)
            else:
                obj = self.resource.decode(event.object)
                change = self._put(obj, listing)
                if listing:
                    listing.keys.add(obj.key)
        except msgspec.ValidationError as error:
            keys = self._skip([DecodeFailure(raw_key(event.object), str(error))])
            if listing:
                listing.keys.update(keys)
        else:
            if change:
                changes.append(change)
                if listing:
                    listing.changes += 1

    def _resume_from(self, version: str) -> None:
        if is_older(version, self._version):
            raise RelistError("restored", f"resourceVersion {version} came after {self._version}")
        if version:
            self._version = self.stats.resource_version = version
            self._refusals = 0

    def _error(self, event: Event) -> Exception:
        status = decode_status(event.object)
        return ApiServerError(self.connection.server, status.message or status.reason, status.code or 500)

    def _report(self, changes: list[Change]) -> None:
        if changes:
            self.on_change(changes)

    def _skip(self, failures: Iterable[DecodeFailure]) -> list[Key]:
        """Logs objects that do not decode; returns their keys, so that their last good versions stay."""
        for failure in failures:
            log.warning("object malformed", kind=self.resource.plural, key=failure.key, reason=failure.reason)
        return [failure.key for failure in failures if failure.key]
