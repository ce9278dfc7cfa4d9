"""The official Python client's lists, watches and informer against kdns: bookmarks, 410, pages, and nothing missed.

The server runs in a thread of its own, as the client blocks. Its history is short, so that revisions expire soon.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest
from expecting import until_as
from kubernetes import client
from kubernetes.informer import SharedInformer
from kubernetes.watch import Watch
from object_api import Api

from kdns.controlplane.apimachinery.kinds import SERVICE
from kdns.controlplane.server.io import server as rest
from kdns.controlplane.server.io.authentication import RestConfig
from kdns.controlplane.server.patch import MERGE_PATCH
from kdns.controlplane.server.registry import Request
from kdns.controlplane.storage.store import Store

CoreV1: TypeAlias = Any  # the package says of nearly everything that it may be None

DEADLINE_S = 60.0
HISTORY = 30


class Server:
    """A REST server in a thread, and the client's API object for it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.ended: asyncio.Event
        self.port = 0
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self.loop.run_until_complete, args=(self._serve(),))

    async def _serve(self) -> None:
        self.ended = asyncio.Event()
        self.api = Api(Store(history_commits=HISTORY)).registry
        self.server = await rest.start(self.api, RestConfig(port=0, bookmark_interval_s=0.1))
        self.port = self.server.address[1]
        self._listening.set()
        await self.ended.wait()
        await self.server.close()

    def cut_off(self, writes: int) -> None:
        """End all watches and change Service a that often before their clients can come back."""
        done = threading.Event()

        def cut() -> None:
            for subscription in tuple(self.server._watches):  # noqa: SLF001 - a network that fails
                subscription.close()
            for number in range(writes):
                patch = {"metadata": {"annotations": {"n": str(number)}}}
                self.api.patch(Request(SERVICE, "default", "a"), MERGE_PATCH, patch)
            self.api.delete(Request(SERVICE, "default", "b"))
            done.set()

        self.loop.call_soon_threadsafe(cut)
        assert done.wait(DEADLINE_S)

    def __enter__(self) -> CoreV1:
        self._thread.start()
        assert self._listening.wait(DEADLINE_S)
        configuration = client.Configuration(host=f"http://127.0.0.1:{self.port}")
        self.client = client.ApiClient(configuration)
        return client.CoreV1Api(self.client)

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.loop.call_soon_threadsafe(self.ended.set)
        self._thread.join(DEADLINE_S)
        self.loop.close()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def v1(server: Server) -> Iterator[CoreV1]:
    with server as api:
        yield api


def service(name: str, **labels: str) -> client.V1Service:
    ports = [client.V1ServicePort(port=80, target_port=8080)]
    return client.V1Service(
        metadata=client.V1ObjectMeta(name=name, labels=labels or None), spec=client.V1ServiceSpec(ports=ports)
    )


def create(v1: CoreV1, *names: str, **labels: str) -> list[Any]:
    return [v1.create_namespaced_service("default", service(name, **labels)) for name in names]


def touch(v1: CoreV1, name: str, times: int) -> None:
    for number in range(times):
        v1.patch_namespaced_service(name, "default", {"metadata": {"annotations": {"n": str(number)}}})


def seen(event: dict[str, Any]) -> tuple[str, str]:
    return event["type"], event["raw_object"]["metadata"].get("name", "")


def test_bookmarks_move_an_idle_watch_on(v1: CoreV1) -> None:
    create(v1, "a")
    watch = Watch()
    events = []
    for event in watch.stream(
        v1.list_namespaced_service, "default", field_selector="metadata.name=a", allow_watch_bookmarks=True
    ):
        events.append(event)
        if len(events) == 2:
            other = int(create(v1, "b")[0].metadata.resource_version)
        elif len(events) > 2 and int(event["raw_object"]["metadata"]["resourceVersion"]) >= other:
            watch.stop()
    assert seen(events[0]) == ("ADDED", "a")
    first_bookmark = events[1]["raw_object"]["metadata"]
    assert events[1]["type"] == "BOOKMARK"
    assert first_bookmark["annotations"] == {"k8s.io/initial-events-end": "true"}
    touch(v1, "b", HISTORY - 2)
    resumed = list(
        Watch().stream(
            v1.list_namespaced_service, "default", resource_version=watch.resource_version, timeout_seconds=1
        )
    )
    assert len(resumed) == HISTORY - 2, "the bookmark's revision is still there, that of the last event may not be"


@contextmanager
def informed(v1: CoreV1) -> Iterator[tuple[SharedInformer, list[tuple[str, str]]]]:
    """A running informer, and what it told its handlers."""
    told: list[tuple[str, str]] = []
    informer = SharedInformer(v1.list_namespaced_service, namespace="default")
    for kind in ("ADDED", "MODIFIED", "DELETED"):
        informer.add_event_handler(kind, lambda obj, kind=kind: told.append((kind, obj.metadata.name)))
    informer.start()
    try:
        yield informer, told
    finally:
        stop(informer, v1)


def stop(informer: SharedInformer, v1: CoreV1) -> None:
    """Stop it, with events until it has noticed: one that is just taking up its watch again would wait for the next."""
    stopping = threading.Thread(target=informer.stop, daemon=True)
    stopping.start()

    def stopped() -> bool:
        v1.create_namespaced_service(
            "default", {"metadata": {"generateName": "end-"}, "spec": {"ports": [{"port": 80}]}}
        )
        stopping.join(0.1)
        return not stopping.is_alive()

    until_as(True, stopped, "it has stopped")


@pytest.mark.parametrize(("writes", "listed_again"), [(HISTORY - 5, False), (HISTORY + 5, True)])
def test_the_informer_comes_back(server: Server, v1: CoreV1, writes: int, *, listed_again: bool) -> None:
    create(v1, "a", "b")
    with informed(v1) as (informer, told):
        errors: list[Any] = []
        informer.add_event_handler("ERROR", errors.append)
        until_as(True, lambda: ("ADDED", "b") in told, "so far")
        until_as(True, lambda: server.server.watching == 1, "so far")
        server.cut_off(writes)
        until_as(True, lambda: ("DELETED", "b") in told, "so far")
        until_as(True, lambda: ("MODIFIED", "a") in told, "so far")  # after a new list it comes behind what is gone
        assert [obj.metadata.name for obj in informer.cache.list()] == ["a"]
        assert [error.status for error in errors] == [410] * listed_again
        assert told.count(("MODIFIED", "a")) == (1 if listed_again else writes)
