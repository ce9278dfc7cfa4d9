"""Runs the controllers inside the API server's process: events in, writes out, in the loop iteration of the change.

A change wakes the controllers once per iteration; events are drained, Pods simulated, and the Services concerned
reconciled until nothing is left or the time slice is used up, so that a large backlog does not starve the DNS server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from random import randrange
from time import monotonic, time

from kdns import logs
from kdns.cluster.objects import Key
from kdns.controlplane.api import Api
from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.controlplane.endpointpods import pod_ips
from kdns.controlplane.kinds import ENDPOINT_SLICE, ENDPOINTS, NODE, POD, SERVICE, Kind
from kdns.controlplane.pods import PodAddressError, PodAddresses, bound, is_waiting, lacks_status, running_status
from kdns.controlplane.reconcile import Action, reconcile
from kdns.controlplane.status import StatusError
from kdns.controlplane.tracking import Tracked
from kdns.controlplane.watch import Subscription, WatchEvent

FOLLOWED = (NODE, SERVICE, ENDPOINTS, ENDPOINT_SLICE, POD)
TIME_SLICE_S = 0.01
FIRST_RETRY_S = 0.005
LONGEST_RETRY_S = 30.0

Task = tuple[Kind, Key]
"""What is to be looked at: a Pod to simulate or a Service to reconcile."""

log = logs.get(__name__)


class Controllers:
    """All controllers of one cluster. They run between `start` and `close` on the loop that called `start`.

    `idle` is set whenever nothing is left to do but retries.
    """

    def __init__(
        self,
        api: Api,
        config: ClusterConfig,
        *,
        choose: Callable[[int], int] = randrange,
        now_s: Callable[[], float] = time,
    ) -> None:
        self._api, self._config, self._choose, self._now_s = api, config, choose, now_s
        self.idle = asyncio.Event()
        self._queue: dict[Task, str] = {}
        self._failures: dict[Task, int] = {}
        self._retries: dict[Task, asyncio.TimerHandle] = {}
        self._subscriptions: dict[Kind, Subscription] = {}
        self._scheduled = self._closed = False

    def start(self) -> None:
        """Look at everything there is, then follow changes; a second call forgets what was known and starts afresh."""
        self._unsubscribe()
        self._tracked, self._addresses = Tracked(), PodAddresses(self._config, self._choose)
        self._own_writes: dict[tuple[Kind, Key], int] = {}
        for kind in FOLLOWED:
            subscription = self._api.watch(kind, None)
            self._subscriptions[kind] = subscription
            subscription.wake = self._wake
        self._drain()
        now = self._now()
        self._queue |= dict.fromkeys(((SERVICE, key) for key in sorted(self._tracked.every_key())), now)
        self._wake()

    def close(self) -> None:
        """Follow nothing more and drop what is queued."""
        self._closed = True
        for retry in self._retries.values():
            retry.cancel()
        self._unsubscribe()

    def _unsubscribe(self) -> None:
        for subscription in self._subscriptions.values():
            subscription.wake = _nothing
            subscription.close()

    def _wake(self) -> None:
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self.idle.clear()
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        """One time slice of work."""
        self._scheduled = False
        if self._closed:
            return
        until = monotonic() + TIME_SLICE_S
        try:
            while True:
                self._drain()
                task = self._next()
                if task is None:
                    self.idle.set()
                    return
                self._attempt(*task)
                if monotonic() > until:
                    self._wake()
                    return
        except Exception:  # this is the controllers' boundary: whatever it was, following goes on
            log.exception("controllers failed, starting over")
            self._unsubscribe()
            asyncio.get_running_loop().call_later(FIRST_RETRY_S, self._start_over)

    def _next(self) -> tuple[Task, str] | None:
        if not self._queue:
            return None
        task = next(iter(self._queue))
        return task, self._queue.pop(task)

    def _start_over(self) -> None:
        if self._closed:
            return
        try:
            self.start()
        except Exception:  # the same boundary
            log.exception("controllers cannot start")
            asyncio.get_running_loop().call_later(LONGEST_RETRY_S, self._start_over)

    def _drain(self) -> None:
        for kind in FOLLOWED:
            subscription = self._subscriptions[kind]
            for event in subscription.take():
                self._learn(kind, event)
            if subscription.closed and not self._closed:
                log.info("controllers fell behind, starting over", kind=kind.kind)
                self.start()
                return

    def _learn(self, kind: Kind, event: WatchEvent) -> None:
        version = event.stored
        obj = None if event.type == "DELETED" else version.obj
        concerned = self._tracked.apply(kind, version.key, obj)
        if kind == POD:
            self._addresses.follow(version.obj["metadata"]["uid"], obj)
            if obj and self._config.simulate_pods and is_waiting(obj):
                self._queue.setdefault((POD, version.key), self._now())
        if kind == SERVICE and obj is None:
            self._forget_endpoints(version.key, version.revision)
        if self._own_writes.pop((kind, version.key), 0) == version.revision:
            return
        for key in concerned:
            self._queue.setdefault((SERVICE, key), self._now())

    def _forget_endpoints(self, key: Key, revision: int) -> None:
        """Endpoints go with the Service of their name, unless they were written after it was deleted."""
        stored = self._api.store.get(ENDPOINTS, key)
        if stored and stored.revision < revision:
            self._api.delete(ENDPOINTS, *key)

    def _attempt(self, task: Task, trigger: str) -> None:
        kind, key = task
        try:
            if kind == POD:
                self._simulate(key)
            else:
                for action in reconcile(self._tracked, key, trigger):
                    self._write(action)
        except (StatusError, PodAddressError) as error:
            self._retry_later(task, trigger, error)
        except Exception as error:  # one Service's trouble must not stop the others
            log.exception("controller failed", kind=kind.kind, namespace=key[0], name=key[1])
            self._retry_later(task, trigger, error)
        else:
            self._failures.pop(task, None)

    def _retry_later(self, task: Task, trigger: str, error: Exception) -> None:
        failures = self._failures[task] = self._failures.get(task, 0) + 1
        delay_s = min(FIRST_RETRY_S * 2.0 ** (failures - 1), LONGEST_RETRY_S)
        kind, key = task
        conflict = isinstance(error, StatusError) and error.code == 409
        write = log.debug if conflict else log.warning
        write("controller retries", kind=kind.kind, namespace=key[0], name=key[1], reason=str(error), delay_s=delay_s)
        if earlier := self._retries.pop(task, None):
            earlier.cancel()
        self._retries[task] = asyncio.get_running_loop().call_later(delay_s, self._retry, task, trigger)

    def _retry(self, task: Task, trigger: str) -> None:
        self._retries.pop(task, None)
        self._queue.setdefault(task, trigger)
        self._wake()

    def _write(self, action: Action) -> None:
        meta = action.obj["metadata"]
        namespace = meta.get("namespace", "")
        if action.verb == "delete":
            if self._api.store.get(action.kind, (namespace, meta["name"])):
                self._api.delete(action.kind, namespace, meta["name"])
            return
        if action.verb == "create":
            made = self._api.create(action.kind, namespace, action.obj)
        else:
            made = self._api.update(action.kind, namespace, meta["name"], action.obj)
        self._own_writes[action.kind, (namespace, made["metadata"]["name"])] = int(made["metadata"]["resourceVersion"])

    def _simulate(self, key: Key) -> None:
        """Put the Pod on the node and let it run, as scheduler and kubelet would."""
        pod = self._tracked.pods.get(key)
        if pod is None or not is_waiting(pod):
            return
        on_node = bound(pod, self._config)
        if on_node is not pod:
            pod = self._api.update(POD, *key, on_node)
        if not lacks_status(pod):
            return
        has_own = not (pod.get("spec") or {}).get("hostNetwork") and not pod_ips(pod)
        addresses = self._addresses.choose() if has_own else []
        status = running_status(pod, self._config, addresses, _timestamp(self._now_s()))
        self._api.update(POD, *key, {**pod, "status": status}, subresource="status")

    def _now(self) -> str:
        return datetime.fromtimestamp(self._now_s(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _nothing() -> None:
    pass


def _timestamp(now_s: float) -> str:
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def run_controllers(
    api: Api,
    config: ClusterConfig,
    *,
    choose: Callable[[int], int] = randrange,
    now_s: Callable[[], float] = time,
    synced: asyncio.Event | None = None,
) -> None:
    """Run all controllers until cancelled; `synced` is set once everything that was there has been looked at."""
    controllers = Controllers(api, config, choose=choose, now_s=now_s)
    controllers.start()
    try:
        await controllers.idle.wait()
        if synced:
            synced.set()
        await asyncio.Event().wait()
    finally:
        controllers.close()
