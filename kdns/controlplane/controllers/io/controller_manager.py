"""Runs the controllers in the process of the API server, in the event loop iteration of each change.

A change wakes the manager once per iteration. It delivers all events, then reconciles requests until the queue is empty
or the time slice is used up, so that the API's clients and watchers are served in between. When the queue is empty, it
deletes dependents of deleted objects, a few at a time, then writes the controllers' Events.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from time import monotonic, time
from typing import TypeAlias

from cachetools import LRUCache

from kdns import logs
from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import EVENT, Json, Kind
from kdns.controlplane.controllers.events import AggregateKey, aggregate_key, new_event, repeated
from kdns.controlplane.controllers.reconciler import Action, Change, Event, Name, Reconciler, Request
from kdns.controlplane.gc.namespaces import is_namespace_terminating
from kdns.controlplane.server.registry import Registry
from kdns.controlplane.server.registry import Request as ApiRequest
from kdns.controlplane.storage.store import Subscription, WatchEvent
from kdns.errors import KdnsError

TIME_SLICE_S = 0.01
FIRST_RETRY_S = 0.005
LONGEST_RETRY_S = 30.0
PROGRESS_S = 0.1
LOW_PRIORITY_TURNS = 10
_CONFLICT = 409
_DELETIONS_AT_ONCE = 25
_RECORDED_MAX = 4096
"""Events whose repetitions are counted; the least recently used is evicted."""
_EVENTS_MAX = 10_000
"""Events that wait for an empty queue; further ones are written at once."""
Task: TypeAlias = tuple[int, Name]
"""A controller, by its index in the table, and the name of an object to reconcile."""

log = logs.get(__name__)


class ControllerManager:
    """All controllers of one cluster. They run between `start` and `close` in the event loop that called `start`.

    `new_controllers()` returns controllers with empty indexes. `idle` is set whenever the queue is empty; Events may
    still be written, and retries and delayed reconciles may be scheduled.
    """

    def __init__(
        self, api: Registry, new_controllers: Callable[[], Sequence[Reconciler]], *, now_s: Callable[[], float] = time
    ) -> None:
        self._api, self._new_controllers, self._now_s = api, new_controllers, now_s
        self.idle = asyncio.Event()
        self._reconciled = 0
        self._failures: dict[Task, int] = {}
        self._later: dict[Task, asyncio.TimerHandle] = {}
        self._subscriptions: dict[Kind, Subscription] = {}
        self._deletions_failed = 0
        self._action: Action | None = None
        self._unrecorded: deque[tuple[str, Event]] = deque()
        self._changed: set[Kind] = set()
        self._scheduled = self._closed = False

    def start(self) -> None:
        """Watches all kinds from the present state; a second call starts again with new controllers."""
        self._stop()
        self._controllers = tuple(self._new_controllers())
        low = {index for index, controller in enumerate(self._controllers) if controller.has_low_priority}
        self._queue = _PriorityQueue(low)
        self._own_writes: dict[tuple[int, Kind, Key], int] = {}
        self._recorded: LRUCache[AggregateKey, Key] = LRUCache(_RECORDED_MAX)
        self._followers: dict[Kind, list[tuple[int, Reconciler]]] = {}
        for index, controller in enumerate(self._controllers):
            for kind in controller.watches:
                self._followers.setdefault(kind, []).append((index, controller))
        for kind in self._followers:
            subscription = self._api.watch(ApiRequest(kind))
            self._subscriptions[kind] = subscription
            subscription.wake = partial(self._on_event, kind)
        self._api.backlog.wake = self._wake
        self._changed = {*self._followers}
        self._wake()

    async def finished(self, progress: Callable[[int, int], object]) -> None:
        """Waits until the queue is empty. `progress` gets the numbers of done and queued requests, ten times a second.

        Changes that no controller has observed yet may add more.
        """
        was_idle = False
        while not (was_idle or self.idle.is_set()):
            progress(self._reconciled, len(self._queue))
            with suppress(TimeoutError):
                was_idle = await asyncio.wait_for(self.idle.wait(), PROGRESS_S)

    def close(self) -> None:
        self._closed = True
        self._stop()

    def _stop(self) -> None:
        self._api.backlog.wake = None
        for timer in self._later.values():
            timer.cancel()
        self._later.clear()
        for subscription in self._subscriptions.values():
            subscription.cancel()
        self._subscriptions.clear()

    def _on_event(self, kind: Kind) -> None:
        self._changed.add(kind)
        self._wake()

    def _wake(self) -> None:
        self.idle.clear()
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and not self._closed:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        if self._closed:
            return
        try:
            self._work(monotonic() + TIME_SLICE_S)
        except Exception:  # task boundary: the manager continues after any failure
            log.exception("controllers failed, restarting")
            self._stop()
            asyncio.get_running_loop().call_later(FIRST_RETRY_S, self._restart)

    def _work(self, until: float) -> None:
        while True:
            self._drain()
            if self._queue:
                self._attempt(self._queue.pop())
            elif self._api.backlog.has_work:
                if not self._delete_dependents():
                    return
            else:
                self.idle.set()  # cleared by the next Event, whose write is a change like any other
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
            self._api.backlog.run(_DELETIONS_AT_ONCE)
        except KdnsError as error:
            self._deletions_failed += 1
            delay_s = _retry_s(self._deletions_failed)
            log.warning("deletion retries", reason=str(error), delay_s=delay_s)
            asyncio.get_running_loop().call_later(delay_s, self._wake)
            return False
        self._deletions_failed = 0
        return True

    def _drain(self) -> None:
        while self._changed:
            changed, self._changed = self._changed, set()
            subscriptions = [(kind, self._subscriptions[kind]) for kind in self._followers if kind in changed]
            for kind, subscription in subscriptions:
                for event in subscription.take():
                    self._observe(kind, event)
            if any(subscription.closed for _, subscription in subscriptions):
                log.info("controllers fell behind, restarting")
                self.start()

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

    def _attempt(self, task: Task) -> None:
        try:
            self._reconcile(task)
        except KdnsError as error:
            self._failed(task, error)
        except Exception as error:  # one request must not stop the others
            name = self._controllers[task[0]].name
            log.exception("controller failed", controller=name, request="/".join(task[1]))
            self._failed(task, error)
        self._reconciled += 1

    def _reconcile(self, task: Task) -> None:
        index, name = task
        controller = self._controllers[index]
        if timer := self._later.pop(task, None):
            timer.cancel()
        self._action = None
        result = controller.reconcile(Request(name, self._now_s()))
        for action in result.actions:
            self._action = action
            self._write(index, action)
        for event in result.events:
            self._note(controller, event)
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

    def _write(self, index: int, action: Action) -> None:
        meta = action.obj["metadata"]
        if action.verb == "delete":
            namespace = meta.get("namespace", "")
            stored = self._api.store.get(action.kind, (namespace, meta["name"]))
            if stored and stored.obj["metadata"]["uid"] == meta.get("uid"):
                self._api.delete(ApiRequest(action.kind, namespace, meta["name"]), options=action.options)
            return
        manager = self._controllers[index].name
        namespace, name = meta.get("namespace", ""), meta.get("name", "")
        request = ApiRequest(action.kind, namespace, name, action.subresource, manager=manager)
        write = self._api.create if action.verb == "create" else self._api.update
        stored = write(request, action.obj)
        self._own_writes[index, action.kind, stored.key] = stored.revision

    def _note(self, controller: Reconciler, event: Event) -> None:
        self._unrecorded.append((controller.name, event))
        if len(self._unrecorded) > _EVENTS_MAX:
            self._record(*self._unrecorded.popleft())

    def _record(self, component: str, event: Event) -> None:
        """Creates an Event, or counts up the Event that it repeats. A refused Event is only logged."""
        key = self._recorded.get(aggregate_key(event, component))
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
            self._recorded[aggregate_key(event, component)] = meta["namespace"], meta["name"]


class _PriorityQueue:
    """The tasks, deduplicated; those of controllers with low priority follow the others.

    One in `LOW_PRIORITY_TURNS` tasks has low priority in any case, so these never starve.
    """

    def __init__(self, low: AbstractSet[int]) -> None:
        self._low_controllers, self._turn = low, 0
        self._high: OrderedDict[Task, None] = OrderedDict()  # popping the first entry is O(1), unlike with dict
        self._low: OrderedDict[Task, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._high) + len(self._low)

    def add(self, task: Task) -> None:
        """A queued task keeps its position."""
        (self._low if task[0] in self._low_controllers else self._high).setdefault(task)

    def pop(self) -> Task:
        """Raises KeyError if the queue is empty."""
        self._turn += 1
        is_low = self._low and (not self._high or self._turn % LOW_PRIORITY_TURNS == 0)
        return (self._low if is_low else self._high).popitem(last=False)[0]


def _without_managers(obj: Json) -> Json:
    """managedFields are half of an object's memory; an update without them keeps the stored ones."""
    if "managedFields" not in obj["metadata"]:
        return obj
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


def _retry_s(failures: int) -> float:
    return float(min(FIRST_RETRY_S * 2.0 ** (failures - 1), LONGEST_RETRY_S))
