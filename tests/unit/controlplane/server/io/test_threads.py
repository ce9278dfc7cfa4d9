"""Large objects are made beside the event loop, Services too, and again where another write comes between."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest
from verbs_api import new_api

from kdns.controlplane.apimachinery.errors import StatusError, conflict
from kdns.controlplane.apimachinery.kinds import SERVICE, Json
from kdns.controlplane.kinds.service.allocator import Transaction
from kdns.controlplane.kinds.validation import validate_meta
from kdns.controlplane.server.io.threads import LARGE_BYTES, made_in_thread, turns_of_loop
from kdns.controlplane.server.request import Request
from kdns.controlplane.storage.watch import StoredObject

T = TypeVar("T")


@pytest.mark.parametrize(
    ("others", "in_threads"), [(0, [True]), (1, [True, True]), (4, [True] * 5), (9, [True] * 5 + [False])]
)
async def test_a_write_is_made_again_where_another_one_was_faster(others: int, in_threads: list[bool]) -> None:
    versions = [StoredObject(SERVICE, ("default", "a"), revision, b"") for revision in range(others + 1)]
    made: list[bool] = []

    def make() -> str:
        in_thread = threading.current_thread() is not threading.main_thread()
        made.append(in_thread)
        if in_thread and len(versions) > 1:
            versions.pop()
            raise conflict(SERVICE, "a", "modified")
        return "made"

    assert await made_in_thread(make, LARGE_BYTES, lambda: versions[-1]) == "made"
    assert made == in_threads


@pytest.mark.parametrize("error", [conflict(SERVICE, "a", "not what you read"), StatusError(422, "Invalid", "wrong")])
async def test_a_write_that_is_refused_is_made_once(error: StatusError) -> None:
    made: list[bool] = []

    def make() -> None:
        made.append(True)
        raise error

    with pytest.raises(StatusError, match=str(error)):
        await made_in_thread(make, LARGE_BYTES, lambda: None)
    assert len(made) == 1


async def test_a_large_service_gets_its_address_in_the_turn_of_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is allocated, kept and given back belongs to one thread; all else of a Service may be done in others."""
    api, owner = new_api(), threading.current_thread()
    api.share(turns_of_loop())
    threads: dict[str, set[threading.Thread]] = {}

    def noted(name: str, work: Callable[..., T]) -> Callable[..., T]:
        def run(*args: object, **options: object) -> T:
            threads.setdefault(name, set()).add(threading.current_thread())
            return work(*args, **options)

        return run

    for name in ("commit", "revert"):
        monkeypatch.setattr(Transaction, name, noted(name, getattr(Transaction, name)))
    for family in api.registry.services.addresses.values():
        monkeypatch.setattr(family, "allocate_next", noted("allocate_next", family.allocate_next))
    monkeypatch.setattr("kdns.controlplane.server.registry.validate_meta", noted("validate", validate_meta))

    async def aside(work: Callable[[], StoredObject]) -> StoredObject:
        return await asyncio.get_running_loop().run_in_executor(None, work)

    service: Json = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}
    made = (await aside(lambda: api.create(Request(SERVICE, "default"), service))).obj
    changed = {**made, "spec": {**made["spec"], "type": "NodePort"}}
    updated = await aside(lambda: api.update(Request(SERVICE, "default", "a"), changed))
    assert updated.obj["spec"]["ports"][0]["nodePort"]
    for wrong in (service, {"metadata": {"name": "b"}, "spec": {"ports": [{"port": -1}]}}):
        with pytest.raises(StatusError):
            await aside(lambda wrong=wrong: api.create(Request(SERVICE, "default"), wrong))  # type: ignore[misc]
    await aside(lambda: api.create(Request(SERVICE, "default", dry_run=True), {**service, "metadata": {"name": "c"}}))
    assert owner not in threads.pop("validate")
    assert threads == {name: {owner} for name in ("allocate_next", "commit", "revert")}
    assert len(api.registry.services.ports.owners) == 1
