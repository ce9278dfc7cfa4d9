"""The official Python client's lists, watches and informer against kdns: bookmarks, 410, pages, and nothing missed.

The server runs in a thread of its own, as the client blocks. Its history is short, so that revisions expire soon.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeAlias

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.informer import SharedInformer
from kubernetes.watch import Watch

from kdns.controlplane.apimachinery.kinds import NAMESPACE, SERVICE
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.server.io import server as rest
from kdns.controlplane.server.io.authentication import RestConfig
from kdns.controlplane.server.patch import MERGE_PATCH
from kdns.controlplane.server.registry import Registry, Request
from kdns.controlplane.storage.store import Store

CoreV1: TypeAlias = Any  # the package says of nearly everything that it may be None

DEADLINE_S = 60.0
HISTORY = 30


class Server:
    """A REST server in a thread, and the client's API object for it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.ended: asyncio.Event
        self.port, self._uids = 0, count()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self.loop.run_until_complete, args=(self._serve(),))

    async def _serve(self) -> None:
        self.ended = asyncio.Event()
        store = Store(history_commits=HISTORY)
        self.api = Registry(
            store,
            ClusterConfig(),
            lambda _: 0,
            time.time,
            lambda: f"uid-{next(self._uids)}",
            lambda: f"{next(self._uids)}",
        )
        self.api.create(Request(NAMESPACE), {"metadata": {"name": "default"}})
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


def names(found: Any) -> list[str]:
    return [item.metadata.name for item in found.items]


def seen(event: dict[str, Any]) -> tuple[str, str]:
    return event["type"], event["raw_object"]["metadata"].get("name", "")


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_pages(v1: CoreV1) -> None:
    create(v1, *"abcde")
    first = v1.list_namespaced_service("default", limit=2)
    assert (names(first), first.metadata.remaining_item_count) == (["a", "b"], 3)
    v1.delete_namespaced_service("c", "default")
    v1.delete_namespaced_service("a", "default")
    second = v1.list_namespaced_service("default", limit=2, _continue=first.metadata._continue)  # noqa: SLF001
    third = v1.list_namespaced_service("default", limit=2, _continue=second.metadata._continue)  # noqa: SLF001
    assert names(second) + names(third) == ["c", "d", "e"], "the snapshot of the first page"
    assert {page.metadata.resource_version for page in (first, second, third)} == {first.metadata.resource_version}
    assert names(v1.list_namespaced_service("default")) == ["b", "d", "e"]


def test_an_expired_page_offers_to_go_on(v1: CoreV1) -> None:
    create(v1, *"abc")
    first = v1.list_namespaced_service("default", limit=1)
    touch(v1, "c", HISTORY + 1)
    with pytest.raises(ApiException, match="The provided continue parameter is too old") as caught:
        v1.list_namespaced_service("default", limit=1, _continue=first.metadata._continue)  # noqa: SLF001
    assert caught.value.status == 410
    status = json.loads(caught.value.body or "")
    assert status["reason"] == "Expired"
    rest_of_it = v1.list_namespaced_service("default", _continue=status["metadata"]["continue"])
    assert names(rest_of_it) == ["b", "c"]


def test_a_watch_from_a_list(v1: CoreV1) -> None:
    create(v1, "a")
    listed = v1.list_namespaced_service("default")
    create(v1, "b")
    touch(v1, "b", 1)
    v1.delete_namespaced_service("a", "default")
    events = []
    for event in Watch().stream(
        v1.list_namespaced_service, "default", resource_version=listed.metadata.resource_version, timeout_seconds=1
    ):
        assert isinstance(event["object"], client.V1Service)
        events.append(seen(event))
    assert events == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a")]


def test_selectors_narrow_a_watch(v1: CoreV1) -> None:
    listed = v1.list_namespaced_service("default")
    create(v1, "a", "b", app="x")
    create(v1, "c", app="y")
    v1.patch_namespaced_service("a", "default", {"metadata": {"labels": {"app": "y"}}})
    stream = Watch().stream(
        v1.list_service_for_all_namespaces,
        label_selector="app=x",
        resource_version=listed.metadata.resource_version,
        timeout_seconds=1,
    )
    assert [seen(event) for event in stream] == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]


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


def test_initial_events_instead_of_a_list(v1: CoreV1) -> None:
    create(v1, "a", "b")
    stream = Watch().stream(
        v1.list_namespaced_service,
        "default",
        send_initial_events=True,
        resource_version_match="NotOlderThan",
        allow_watch_bookmarks=True,
        timeout_seconds=1,
    )
    events = [next(stream) for _ in range(3)]
    assert [seen(event) for event in events] == [("ADDED", "a"), ("ADDED", "b"), ("BOOKMARK", "")]
    stream.close()


def test_an_expired_watch_says_so(v1: CoreV1) -> None:
    created = create(v1, "a")[0]
    touch(v1, "a", HISTORY + 1)
    with pytest.raises(ApiException, match="too old resource version") as caught:
        next(Watch().stream(v1.list_namespaced_service, "default", resource_version=created.metadata.resource_version))
    assert caught.value.status == 410


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

    until(stopped)


def test_the_informer_follows(v1: CoreV1) -> None:
    create(v1, "a")
    with informed(v1) as (informer, told):
        until(lambda: ("ADDED", "a") in told)
        create(v1, "b")
        touch(v1, "b", HISTORY * 2)
        v1.delete_namespaced_service("a", "default")
        until(lambda: ("DELETED", "a") in told)
        assert told.count(("MODIFIED", "b")) == HISTORY * 2, "each change once"
        assert [obj.metadata.name for obj in informer.cache.list()] == ["b"]


@pytest.mark.parametrize(("writes", "listed_again"), [(HISTORY - 5, False), (HISTORY + 5, True)])
def test_the_informer_comes_back(server: Server, v1: CoreV1, writes: int, *, listed_again: bool) -> None:
    create(v1, "a", "b")
    with informed(v1) as (informer, told):
        errors: list[Any] = []
        informer.add_event_handler("ERROR", errors.append)
        until(lambda: ("ADDED", "b") in told)
        until(lambda: server.server.watching == 1)
        server.cut_off(writes)
        until(lambda: ("DELETED", "b") in told)
        until(lambda: ("MODIFIED", "a") in told)  # after a new list it comes behind what is gone
        assert [obj.metadata.name for obj in informer.cache.list()] == ["a"]
        assert [error.status for error in errors] == [410] * listed_again
        assert told.count(("MODIFIED", "a")) == (1 if listed_again else writes)


def test_any_list_and_watch_loop_ends_in_the_present(v1: CoreV1) -> None:
    """A client that is cut off again and again, sometimes for too long, and never trusts but what it was told."""
    create(v1, *"abc")
    state: dict[str, str] = {}
    revision, expired = "", 0
    for turn in range(12):
        if not revision:
            listed: Any = v1.list_namespaced_service("default")
            state = {item.metadata.name: item.metadata.resource_version for item in listed.items}
            revision = listed.metadata.resource_version
        touch(v1, "a", 3 if turn % 4 else HISTORY + 1)
        create(v1, f"n{turn}")
        if turn % 2:
            v1.delete_namespaced_service(f"n{turn - 1}", "default")
        stream = Watch().stream(v1.list_namespaced_service, "default", resource_version=revision, timeout_seconds=1)
        try:
            for event in stream:
                metadata: Any = event["object"].metadata
                assert int(metadata.resource_version) > int(revision)
                revision = metadata.resource_version
                if event["type"] == "DELETED":
                    del state[metadata.name]
                else:
                    assert (event["type"] == "ADDED") is (metadata.name not in state)
                    state[metadata.name] = revision
                if event["type"] == "ADDED" and turn % 2 == 0:
                    stream.close()
        except ApiException as error:
            assert error.status == 410  # noqa: PT017 - some turns expire, others do not
            revision, expired = "", expired + 1
    final = v1.list_namespaced_service("default")
    if revision:
        assert state == {item.metadata.name: item.metadata.resource_version for item in final.items}
    assert expired == 3
