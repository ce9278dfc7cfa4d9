"""The work that follows from a deletion: what is done at once, what in batches, and what after a restart."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from served_kinds import KINDS
from verbs_api import new_registry

from kdns.controlplane.apimachinery.errors import StatusError, internal
from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, DEFINITION, NAMESPACE, Json
from kdns.controlplane.gc.backlog import AT_ONCE, Backlog
from kdns.controlplane.server.registry import Registry, Request
from kdns.controlplane.storage.object_meta import is_terminating
from kdns.controlplane.storage.store import Commit, Store

MANY = 3 * AT_ONCE
PIECE = 20


class Woken:
    """Counts its calls."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


def new_api(store: Store | None = None) -> Registry:
    api = new_registry(store)
    api.backlog.wake = Woken()
    return api


def restarted(api: Registry) -> Registry:
    """A new API over the same objects."""
    versions = [version for kind in KINDS for version in api.list(Request(kind)).stored]
    return new_api(Store(versions, revision=api.store.revision))


def made(api: Registry, namespace: str, how_many: int, owner: Json | None = None, *, blocking: bool = False) -> None:
    meta: Json = {}
    if owner:
        row = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
        meta = {"ownerReferences": [{**row, "blockOwnerDeletion": blocking}]}
    for number in range(how_many):
        api.create(Request(CONFIG_MAP, namespace), {"metadata": {"name": f"c{number:03}", **meta}})


@pytest.fixture
def api() -> Registry:
    api = new_api()
    api.create(Request(NAMESPACE), {"metadata": {"name": "x"}})
    return api


def left(api: Registry) -> int:
    return len(api.list(Request(CONFIG_MAP)).stored)


def finish(api: Registry) -> int:
    """Run all batches; returns their number."""
    pieces = 0
    while api.backlog.has_work:
        before = left(api)
        api.backlog.run(PIECE)
        assert before - left(api) <= PIECE
        pieces += 1
    return pieces


def test_a_small_namespace_goes_at_once(api: Registry) -> None:
    made(api, "x", AT_ONCE // 2)
    api.delete(Request(NAMESPACE, "", "x"))
    assert (left(api), api.backlog.has_work) == (0, False)
    assert [each["metadata"]["name"] for each in api.list(Request(NAMESPACE)).items] == ["default"]


def test_a_large_namespace_goes_in_pieces(api: Registry) -> None:
    made(api, "x", MANY)
    wake = api.backlog.wake = Woken()
    assert api.delete(Request(NAMESPACE, "", "x")).copy()["status"]["phase"] == "Terminating"
    assert MANY - AT_ONCE <= left(api) < MANY
    assert wake.times == 1
    with pytest.raises(StatusError, match="because it is being terminated"):
        api.create(Request(CONFIG_MAP, "x"), {"metadata": {"name": "late"}})
    still = left(api)
    api.create(Request(CONFIG_MAP, "default"), {"metadata": {"name": "other"}})
    api.delete(Request(CONFIG_MAP, "default", "other"))
    assert left(api) == still, "a request does its own work, not that of the one before"
    assert finish(api) >= (MANY - AT_ONCE) // PIECE
    with pytest.raises(StatusError, match='namespaces "x" not found'):
        api.get(Request(NAMESPACE, "", "x"))


@pytest.mark.parametrize(("policy", "dependents"), [("Background", 0), ("Foreground", 0), ("Orphan", MANY)], ids=str)
@pytest.mark.parametrize("stops_after", [None, 0, 3])
def test_dependents_go_in_pieces_and_a_restart_goes_on(
    api: Registry, policy: str, dependents: int, stops_after: int | None
) -> None:
    owner = api.create(Request(CONFIG_MAP, "default"), {"metadata": {"name": "owner"}}).copy()
    made(api, "default", MANY, owner, blocking=True)
    api.delete(Request(CONFIG_MAP, "default", "owner"), options={"propagationPolicy": policy})
    assert left(api) >= MANY - AT_ONCE
    if stops_after is not None:
        for _ in range(stops_after):
            api.backlog.run(PIECE)
        api = restarted(api)
    finish(api)
    found = api.list(Request(CONFIG_MAP)).items
    assert len(found) == dependents
    assert not any("ownerReferences" in obj["metadata"] or obj["metadata"]["name"] == "owner" for obj in found)


def test_a_restart_goes_on_with_a_namespace(api: Registry) -> None:
    made(api, "x", MANY)
    made(api, "default", 1)
    api.delete(Request(NAMESPACE, "", "x"))
    api = restarted(api)
    finish(api)
    assert [each["metadata"]["name"] for each in api.list(Request(NAMESPACE)).items] == ["default"]
    assert left(api) == 1


def test_a_namespace_made_anew_keeps_what_is_made_in_it(api: Registry) -> None:
    made(api, "x", MANY)
    api.delete(Request(NAMESPACE, "", "x"))
    api.update(
        Request(NAMESPACE, "", "x", subresource="finalize"), {**api.get(Request(NAMESPACE, "", "x")), "spec": {}}
    )
    api.create(Request(NAMESPACE), {"metadata": {"name": "x"}})
    for name in ("c299", "new"):
        if api.store.get(CONFIG_MAP, ("x", name)):
            api.delete(Request(CONFIG_MAP, "x", name))
        api.create(Request(CONFIG_MAP, "x"), {"metadata": {"name": name}})
    finish(api)
    assert [each["metadata"]["name"] for each in api.list(Request(CONFIG_MAP, "x")).items] == ["c299", "new"]


def test_what_fails_is_tried_again_after_the_rest() -> None:
    backlog, done = Backlog(), []
    refusals = iter([OSError("disk full")])

    def refused_once() -> None:
        for error in refusals:
            raise error
        done.append("a")

    backlog.add(refused_once)
    backlog.add(lambda: done.append("b"))
    backlog.add_last("x", lambda: done.append("x"))
    backlog.add_last("x", lambda: done.append("x"))
    with pytest.raises(OSError, match="disk full"):
        backlog.begin()
    backlog.begin()
    assert done == ["b", "a", "x"]


class FailingDisk:
    """Accepts the commits before the one of this number, then none until it is repaired."""

    def __init__(self, accepted: int) -> None:
        self.room: float = accepted

    def __call__(self, commit: Commit) -> None:
        if not self.room:
            raise internal(f"cannot write {commit.key}: disk full")
        self.room -= 1


DEFINED: Json = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}


def namespace_with_objects(api: Registry) -> Request:
    made(api, "x", 2)
    return Request(NAMESPACE, "", "x")


def definition_with_objects(api: Registry) -> Request:
    api.create(Request(DEFINITION), DEFINED)
    kind = api.kinds.by_type("example.com/v1", "Widget")
    assert kind
    api.create(Request(kind, "x"), {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}})
    return Request(DEFINITION, "", "widgets.example.com")


def owner_with_dependents(api: Registry) -> Request:
    owner = api.create(Request(CONFIG_MAP, "default"), {"metadata": {"name": "owner"}}).copy()
    made(api, "default", 2, owner, blocking=True)
    return Request(CONFIG_MAP, "default", "owner")


@pytest.mark.parametrize("accepted", range(8))
@pytest.mark.parametrize(
    ("setting", "policy"),
    [
        (namespace_with_objects, "Background"),
        (namespace_with_objects, "Foreground"),
        (definition_with_objects, "Background"),
        (definition_with_objects, "Foreground"),
        (owner_with_dependents, "Background"),
        (owner_with_dependents, "Foreground"),
    ],
)
def test_a_refused_write_delays_a_deletion_only(
    setting: Callable[[Registry], Request], policy: str, accepted: int
) -> None:
    disk = FailingDisk(1_000)
    api = new_api(Store(persist=disk))
    api.create(Request(NAMESPACE), {"metadata": {"name": "x"}})
    doomed = setting(api)
    disk.room = accepted
    with suppress(StatusError):
        api.delete(doomed, options={"propagationPolicy": policy})
    with suppress(StatusError):
        api.backlog.run(PIECE)
    disk.room = float("inf")
    finish(api)
    version = api.store.get(doomed.kind, doomed.key)
    if version and not is_terminating(version.obj):  # the deletion itself was refused
        api.delete(doomed, options={"propagationPolicy": policy})
        finish(api)
    assert api.store.get(doomed.kind, doomed.key) is None
    assert left(api) == 0


def test_an_object_whose_owner_is_gone_is_deleted_after_a_refused_write() -> None:
    disk = FailingDisk(2)
    api = new_api(Store(persist=disk))
    with pytest.raises(StatusError, match="disk full"):
        made(api, "default", 1, {"metadata": {"uid": "nobody"}})
    disk.room = float("inf")
    finish(api)
    assert left(api) == 0
