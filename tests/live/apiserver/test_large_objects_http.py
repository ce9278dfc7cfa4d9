"""Large objects over HTTP: other requests are served while one is checked, made or looked at."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import aiohttp
import pytest
from kdns.controlplane.server.io.threads import LARGE_BYTES, turns_of_loop
from verbs_api import new_api, service

from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, NAMESPACE, SERVICE, Json
from kdns.controlplane.server.io import server as rest
from kdns.controlplane.server.io import verbs
from kdns.controlplane.server.io.authentication import RestConfig
from kdns.controlplane.server.registry import Registry
from kdns.controlplane.server.request import Request

T = TypeVar("T")

MAPS = "/api/v1/namespaces/default/configmaps"
LARGE: Json = {"big": "x" * LARGE_BYTES}
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


class Server:
    """A server, its Registry, and the threads in which its objects are prepared, by kind and verb."""

    def __init__(self, api: Registry, session: aiohttp.ClientSession, url: str) -> None:
        self.api, self.session, self.url = api, session, url
        self.threads: list[tuple[str, bool]] = []

    async def __call__(self, method: str, path: str, body: Json, media_type: str = "application/json") -> Any:
        headers = {"Content-Type": media_type}
        async with self.session.request(method, self.url + path, data=json.dumps(body), headers=headers) as response:
            return response.status, await response.json()

    def data(self) -> set[str]:
        return {*self.api.get(Request(CONFIG_MAP, "default", "m"))["data"]}

    def interrupt(self, meanwhile: Callable[[], object]) -> None:
        """Do something once when a thread comes back to the loop with a write."""
        turns, left = turns_of_loop(), [meanwhile]

        def in_turn(work: Callable[[], T], /) -> T:
            if threading.current_thread() is threading.main_thread():
                return turns(work)
            return turns(lambda: (left.pop()() if left else None, work())[1])

        self.api.share(in_turn)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    api = new_api()
    running = await rest.start(api, RestConfig(port=0))
    async with aiohttp.ClientSession() as session:
        made = Server(api, session, "http://{}:{}".format(*running.address))
        for name in ("create", "update"):
            prepare = getattr(Registry, name)

            def prepared(registry: Registry, request: Request, *args: Any, _prepare: Any = prepare) -> Any:
                made.threads.append((request.kind.kind, threading.current_thread() is threading.main_thread()))
                return _prepare(registry, request, *args)

            monkeypatch.setattr(Registry, name, prepared)
        yield made
    await running.close()


def config_map(data: Json) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}


async def test_only_large_objects_are_prepared_beside_the_loop(server: Server) -> None:
    small, aside = ("ConfigMap", True), ("ConfigMap", False)
    assert (await server("POST", MAPS, config_map({"a": "1"})))[0] == 201
    assert (await server("PATCH", f"{MAPS}/m", {"data": {"b": "1"}}, MERGE))[0] == 200
    assert server.threads == [small, small]
    assert (await server("PUT", f"{MAPS}/m", config_map(LARGE)))[0] == 200
    status, shown = await server("PATCH", f"{MAPS}/m", {"data": {"c": "1"}}, MERGE)
    assert (status, shown["data"].keys()) == (200, {"big", "c"})
    assert (await server("PATCH", f"{MAPS}/m?fieldManager=me", config_map({"d": "1"}), APPLY))[0] == 200
    assert server.data() == {"big", "c", "d"}
    assert (await server("PUT", f"{MAPS}/m", config_map({"a": "1"})))[0] == 200
    assert (await server("POST", f"{MAPS}", {**config_map(LARGE), "metadata": {"name": "n"}}))[0] == 201
    assert server.threads[2:] == [aside] * 5
    refused, _ = await server("POST", f"{MAPS}", {**config_map(LARGE), "metadata": {"name": "A"}})
    assert refused == 422


async def test_services_are_made_beside_the_loop_too(server: Server) -> None:
    large = service(annotations={"a": "x" * LARGE_BYTES})
    assert (await server("POST", MAPS.replace("configmaps", "services"), large))[0] == 201
    assert server.threads == [("Service", False)]
    assert server.api.get(Request(SERVICE, "default", "web"))["spec"]["clusterIP"]


@pytest.mark.parametrize(
    ("method", "body", "media_type", "there"),
    [
        ("PATCH", {"data": {"a": "1"}}, MERGE, {"big", "a", "between"}),
        ("PATCH", [{"op": "add", "path": "/data/a", "value": "1"}], "application/json-patch+json", None),
        ("PATCH", config_map({"a": "1"}), f"{APPLY}", {"big", "a", "between"}),
        ("PUT", config_map({"a": "1"}), "application/json", {"a"}),
    ],
    ids=["merge patch", "JSON patch", "apply", "put"],
)
async def test_a_write_between_is_not_lost(
    server: Server, method: str, body: Any, media_type: str, there: set[str] | None
) -> None:
    server.api.create(Request(CONFIG_MAP, "default"), {"metadata": {"name": "m"}, "data": LARGE})
    other = {"data": {"between": "1"}}
    server.interrupt(lambda: server.api.patch(Request(CONFIG_MAP, "default", "m"), MERGE, other))
    status, shown = await server(method, f"{MAPS}/m?fieldManager=me", body, media_type)
    assert status == 200
    assert {*shown["data"]} == server.data() == (there or {"big", "a", "between"})


async def test_a_put_of_an_old_revision_is_refused_whenever_the_other_write_comes(server: Server) -> None:
    made = server.api.create(Request(CONFIG_MAP, "default"), {"metadata": {"name": "m"}, "data": LARGE}).copy()
    server.interrupt(lambda: server.api.patch(Request(CONFIG_MAP, "default", "m"), MERGE, {"data": {"between": "1"}}))
    status, refusal = await server("PUT", f"{MAPS}/m", {**made, "data": {"a": "1"}})
    assert (status, refusal["reason"]) == (409, "Conflict")
    assert server.data() == {"big", "between"}


async def test_a_new_object_meets_what_came_between(server: Server) -> None:
    server.interrupt(lambda: server.api.create(Request(CONFIG_MAP, "default"), {"metadata": {"name": "m"}}))
    status, refusal = await server("POST", MAPS, config_map(LARGE))
    assert (status, refusal["reason"]) == (409, "AlreadyExists")
    server.api.create(Request(NAMESPACE), {"metadata": {"name": "short"}})
    server.interrupt(lambda: server.api.delete(Request(NAMESPACE, "", "short")))
    status, refusal = await server("POST", MAPS.replace("default", "short"), config_map(LARGE))
    assert status in {403, 404}
    assert not server.api.list(Request(CONFIG_MAP, "short")).items


async def test_validation_is_not_lifted_for_a_thread_by_what_the_loop_does(server: Server) -> None:
    """The server's own objects are stored without validation, while a client's are prepared."""
    odd = config_map({"no key!": "x", **LARGE})
    with server.api.without_validation():
        status, _ = await server("POST", MAPS, odd)
    assert status == 422


@pytest.mark.parametrize("query", ["labelSelector=a", "fieldSelector=metadata.name!=m1", "watch=1&labelSelector=a"])
async def test_other_work_goes_on_while_selectors_look_at_objects_that_are_not_decoded(
    server: Server, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    for number in range(50):
        server.api.create(Request(CONFIG_MAP, "default"), {"metadata": {"name": f"m{number}"}})
    versions = server.api.list(Request(CONFIG_MAP, "default")).stored
    for version in versions:
        version.rest()
    monkeypatch.setattr(verbs, "TURN_S", 0.0)

    async def beside() -> int:
        steps = 0
        while not all(each.is_decoded for each in versions):
            steps += 1
            await asyncio.sleep(0)
        return steps

    counted = asyncio.create_task(beside())
    async with server.session.get(f"{server.url}{MAPS}?{query}&timeoutSeconds=1") as response:
        await response.read()
    assert response.status == 200
    assert await counted > len(versions) / 2
