"""Runs the controllers in the process of the API server, in the event loop iteration of each change.

A change wakes the manager once per iteration. It passes on all events, then reconciles requests until the queue is
empty or the time slice is used up, also in the middle of the writes of one reconcile, so that large queues and large
workloads do not starve the clients of the API. A large object is made in a thread, if the API is shared with
other threads, and nothing else is observed or reconciled until it is written. When the queue is empty, it deletes
dependents of deleted objects, a few at a time, and then writes the Events of the controllers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from time import monotonic, time
from typing import TypeAlias

import msgspec

from kdns import logs
from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import EVENT, Json, Kind
from kdns.controlplane.controllers.events import EventRecorder, new_event, repeated
from kdns.controlplane.controllers.reconciler import Action, Change, Event, Name, Reconciler, Request
from kdns.controlplane.server.api import Api
from kdns.controlplane.server.io.threads import LARGE_BYTES, made_in_thread
from kdns.controlplane.server.namespaces import is_namespace_terminating
from kdns.controlplane.server.request import Request as ApiRequest
from kdns.controlplane.storage.watch import Subscription, WatchEvent
from kdns.errors import KdnsError

TIME_SLICE_S = 0.01
FIRST_RETRY_S = 0.005
LONGEST_RETRY_S = 30.0
PROGRESS_S = 0.1
LOW_PRIORITY_TURNS = 10
_CONFLICT = 409
_DELETIONS_AT_ONCE = 25
_EVENTS_MAX = 10_000
"""How many Events wait for an empty queue; each further one is written at once."""
_PIECE_BYTES = 64 * 1024
"""How much of a subscription is read between two checks of the time slice."""

Task: TypeAlias = tuple[int, Name]
"""A controller, by its index in the table, and the name of an object to reconcile."""

Making: TypeAlias = asyncio.Task[Json]
"""A large object that is made and written beside the loop."""

log = logs.get(__name__)


class ControllerManager:
    """All controllers of one cluster. They run between `start` and `close` in the event loop that called `start`.

    `new_controllers()` returns controllers with empty indexes. `idle` is set whenever the queue is empty; Events may
    still be written, and retries and delayed reconciles may be scheduled.
    """

    def __init__(
        self, api: Api, new_controllers: Callable[[], Sequence[Reconciler]], *, now_s: Callable[[], float] = time
    ) -> None:
        self._api, self._new_controllers, self._now_s = api, new_controllers, now_s
        self.idle = asyncio.Event()
        self._reconciled = 0
        self._failures: dict[Task, int] = {}
        self._later: dict[Task, asyncio.TimerHandle] = {}
        self._subscriptions: dict[Kind, Subscription] = {}
        self._deletions_failed = 0
        self._making: Making | None = None
        self._action: Action | None = None
        self._unrecorded: deque[tuple[str, Event]] = deque()
        self._scheduled = self._closed = self._has_events = False

    def start(self) -> None:
        """Watches all kinds from the present state; a second call starts again with new controllers."""
        self._stop()
        self._controllers = tuple(self._new_controllers())
        self._queue = _PriorityQueue({index for index, each in enumerate(self._controllers) if each.has_low_priority})
        self._at_work: tuple[Task, Iterator[Making | None]] | None = None
        self._own_writes: dict[tuple[int, Kind, Key], int] = {}
        self._recorder = EventRecorder()
        self._followers: dict[Kind, list[tuple[int, Reconciler]]] = {}
        for index, controller in enumerate(self._controllers):
            for kind in controller.watches:
                self._followers.setdefault(kind, []).append((index, controller))
        for kind in self._followers:
            subscription = self._api.watch(ApiRequest(kind))
            self._subscriptions[kind] = subscription
            subscription.wake = self._on_event
        self._api.backlog.wake = self._wake
        self._has_events = True
        self._wake()

    async def finished(self, progress: Callable[[int, int], object]) -> None:
        """Waits until the queue was empty. `progress` gets how many requests are done and left, ten times a second.

        Changes that were not observed yet may add more.
        """
        was_idle = False
        while not (was_idle or self.idle.is_set()):
            progress(self._reconciled, len(self._queue) + (self._at_work is not None))
            with suppress(TimeoutError):
                was_idle = await asyncio.wait_for(self.idle.wait(), PROGRESS_S)

    def close(self) -> None:
        self._closed = True
        self._stop()

    async def closed(self) -> None:
        """Waits for the write that was at work when the manager was closed."""
        if self._making:
            await asyncio.wait([self._making])

    def _stop(self) -> None:
        self._api.backlog.wake = None
        for timer in self._later.values():
            timer.cancel()
        self._later.clear()
        for subscription in self._subscriptions.values():
            subscription.cancel()
        self._subscriptions.clear()

    def _on_event(self) -> None:
        self._has_events = True
        self._wake()

    def _wake(self) -> None:
        self.idle.clear()
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and not self._closed:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        """Works for one time slice."""
        self._scheduled = False
        if self._closed or self._making:
            return
        self._api.backlog.is_held = True
        try:
            self._work(monotonic() + TIME_SLICE_S)
        except Exception:  # the task's boundary: the manager continues after any failure
            log.exception("controllers failed, restarting")
            self._stop()
            asyncio.get_running_loop().call_later(FIRST_RETRY_S, self._restart)

        finally:
            self._api.backlog.is_held = False

    def _work(self, until: float) -> None:
        while True:
            if not self._drain(until):
                self._schedule()
                return
            if self._at_work or self._queue:
                self._attempt(until)
                if self._making:
                    return
            elif self._api.backlog.is_left:
                if not self._delete_dependents():
                    return
            else:
                self.idle.set()  # until an Event, which is observed too, is written
                if not self._unrecorded:
                    return
                self._record(*self._unrecorded.popleft())
            if monotonic() > until:
                self._schedule()
                return

    def _restart(self) -> None:
        if self._closed:
            return
        try:
            self.start()
        except Exception:  # the same boundary
            log.exception("controllers not restarted")
            asyncio.get_running_loop().call_later(LONGEST_RETRY_S, self._restart)

    def _delete_dependents(self) -> bool:
        """Deletes a few dependents of deleted objects; False if that fails, which schedules a retry."""
        try:
            self._api.backlog.go_on(_DELETIONS_AT_ONCE)
        except KdnsError as error:
            self._deletions_failed += 1
            delay_s = _retry_s(self._deletions_failed)
            log.warning("deletion retries", reason=str(error), delay_s=delay_s)
            asyncio.get_running_loop().call_later(delay_s, self._wake)
            return False
        self._deletions_failed = 0
        return True

    def _drain(self, until: float) -> bool:
        """Passes on all events; False if the time slice ends before, and then nothing may be reconciled."""
        if not self._has_events:
            return True
        for kind, subscription in self._subscriptions.items():
            while subscription.waiting:
                for event in subscription.take(_PIECE_BYTES):
                    self._observe(kind, event)
                if monotonic() > until and subscription.waiting:
                    return False
            if subscription.closed and not self._closed:
                log.info("controllers fell behind, restarting", kind=kind.kind)
                self.start()
                return self._drain(until)
        self._has_events = False
        return True

    def _observe(self, kind: Kind, event: WatchEvent) -> None:
        version = event.stored
        obj = None if event.type == "DELETED" else _without_managers(version.obj)
        change = Change(kind, version.key, obj, version.revision)
        for index, controller in self._followers[kind]:
            try:
                names = tuple(controller.observe(change))
            except Exception:  # one object must not stop the others
                log.exception(
                    "controller failed to observe", controller=controller.name, kind=kind.kind, key=change.key
                )
                names = ()
            own = self._own_writes.pop((index, kind, change.key), 0) == change.revision
            if not own or kind not in controller.ignores_own_writes_of:
                for name in names:
                    self._queue.add((index, name))

    def _attempt(self, until: float) -> None:
        """Goes on with the current request, or begin with the next, until it is done or the time slice is used up."""
        if self._at_work is None:
            task = self._queue.pop()
            self._at_work = task, self._writes(task)
        task, writes = self._at_work
        try:
            for making in writes:
                if making:
                    self._making = making
                    making.add_done_callback(self._made)
                    return
                if monotonic() > until:
                    return
        except KdnsError as error:
            self._failed(task, error)
        except Exception as error:  # one request must not stop the others
            name = self._controllers[task[0]].name
            log.exception("controller failed", controller=name, request="/".join(task[1]))
            self._failed(task, error)
        self._at_work = None
        self._reconciled += 1

    def _made(self, making: Making) -> None:
        """Goes on behind a large object; the error of a cancelled one is dropped."""
        self._making = None
        if not making.cancelled():
            making.exception()
        self._wake()

    def _writes(self, task: Task) -> Iterator[Making | None]:
        """Reconciles a request; yields after each write, and a large one that has to end first."""
        index, name = task
        controller = self._controllers[index]
        if waiting := self._later.pop(task, None):
            waiting.cancel()
        self._action = None
        result = controller.reconcile(Request(name, self._now_s()))
        for action in result.actions:
            self._action = action
            if self._is_large(action):
                making = asyncio.get_running_loop().create_task(self._write_in_thread(index, action))
                yield making
                self._note_own(index, action, making.result())
            else:
                self._write(index, action)
                yield None
        for event in result.events:
            if self._note(controller, event):
                yield None
        self._failures.pop(task, None)
        if result.requeue_after_s is not None:
            self._reconcile_later(task, result.requeue_after_s)

    def _failed(self, task: Task, error: Exception) -> None:
        controller, name = self._controllers[task[0]], "/".join(task[1])
        if is_namespace_terminating(error):
            self._failures.pop(task, None)
            log.debug("controller stops", controller=controller.name, request=name, reason=str(error))
            return
        failures = self._failures[task] = self._failures.get(task, 0) + 1
        delay_s = _retry_s(failures)
        is_conflict = isinstance(error, StatusError) and error.code == _CONFLICT
        write = log.debug if is_conflict else log.warning
        write("controller retries", controller=controller.name, request=name, reason=str(error), delay_s=delay_s)
        if self._action and isinstance(error, StatusError) and not is_conflict:
            event = controller.failed(Request(task[1], self._now_s()), self._action, error)
            if event:
                self._note(controller, event)
        self._reconcile_later(task, delay_s)

    def _reconcile_later(self, task: Task, delay_s: float) -> None:
        def enqueue() -> None:
            self._later.pop(task, None)
            self._queue.add(task)
            self._wake()

        self._later[task] = asyncio.get_running_loop().call_later(delay_s, enqueue)

    def _is_large(self, action: Action) -> bool:
        """Whether an object is made beside the loop."""
        if action.verb == "delete" or not self._api.is_shared:
            return False
        return len(msgspec.json.encode(action.obj)) >= LARGE_BYTES

    async def _write_in_thread(self, index: int, action: Action) -> Json:
        """Make a large object in a thread."""
        meta = action.obj["metadata"]
        key = meta.get("namespace", ""), meta.get("name", "")
        latest = partial(self._api.store.get, action.kind, key)
        return await made_in_thread(partial(self._stored, index, action), LARGE_BYTES, latest)

    def _write(self, index: int, action: Action) -> None:
        meta = action.obj["metadata"]
        if action.verb == "delete":
            namespace = meta.get("namespace", "")
            stored = self._api.store.get(action.kind, (namespace, meta["name"]))
            if stored and stored.obj["metadata"]["uid"] == meta.get("uid"):
                self._api.delete(ApiRequest(action.kind, namespace, meta["name"]), options=action.options)
            return
        self._note_own(index, action, self._stored(index, action))

    def _stored(self, index: int, action: Action) -> Json:
        meta = action.obj["metadata"]
        namespace, manager = meta.get("namespace", ""), self._controllers[index].name
        if action.verb == "create":
            return self._api.create(ApiRequest(action.kind, namespace, manager=manager), action.obj).obj
        request = ApiRequest(action.kind, namespace, meta["name"], action.subresource, manager=manager)
        return self._api.update(request, action.obj).obj

    def _note_own(self, index: int, action: Action, made: Json) -> None:
        written, namespace = made["metadata"], action.obj["metadata"].get("namespace", "")
        self._own_writes[index, action.kind, (namespace, written["name"])] = int(written["resourceVersion"])

    def _note(self, controller: Reconciler, event: Event) -> bool:
        """Keeps an Event for later; returns whether another one was written for it."""
        self._unrecorded.append((controller.name, event))
        is_full = len(self._unrecorded) > _EVENTS_MAX
        if is_full:
            self._record(*self._unrecorded.popleft())
        return is_full

    def _record(self, component: str, event: Event) -> None:
        """Creates an Event, or increments the count of the one that says the same. A refused Event is only logged."""
        key = self._recorder.key(event, component)
        stored = self._api.store.get(EVENT, key) if key else None
        try:
            if stored:
                again = repeated(stored.obj, self._now_s())
                self._api.update(ApiRequest(EVENT, *stored.key, manager=component), again)
                return
            first = new_event(event, component, self._now_s())
            namespace = first["metadata"]["namespace"]
            meta = self._api.create(ApiRequest(EVENT, namespace, manager=component), first).metadata
        except StatusError as error:
            log.debug("event not written", reason=str(error), message=event.message)
        else:
            self._recorder.remember(event, component, (meta["namespace"], meta["name"]))


class _PriorityQueue:
    """The tasks, each once; those of controllers with low priority follow the others.

    One in `LOW_PRIORITY_TURNS` tasks has low priority in any case, so that these never starve.
    """

    def __init__(self, low: AbstractSet[int]) -> None:
        self._low_controllers, self._turn = low, 0
        self._high: OrderedDict[Task, None] = OrderedDict()  # popping the first entry is O(1), unlike with dict
        self._low: OrderedDict[Task, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._high) + len(self._low)

    def add(self, task: Task) -> None:
        """Adds a task; one that is queued keeps its place."""
        (self._low if task[0] in self._low_controllers else self._high).setdefault(task)

    def pop(self) -> Task:
        """Removes and returns the next task. Raises KeyError if there is none."""
        self._turn += 1
        is_low = self._low and (not self._high or self._turn % LOW_PRIORITY_TURNS == 0)
        return (self._low if is_low else self._high).popitem(last=False)[0]


def _without_managers(obj: Json) -> Json:
    """Returns the object without managedFields, half of its memory; an update without them keeps the stored ones."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


def _retry_s(failures: int) -> float:
    return float(min(FIRST_RETRY_S * 2.0 ** (failures - 1), LONGEST_RETRY_S))
