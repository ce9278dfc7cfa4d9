"""The work that follows from a deletion: what is done at once, what in batches, and what after a restart."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from object_api import Api, named, owned_by
from served_kinds import KINDS
from widgets import definition, widget

from kdns.controlplane.apimachinery.errors import StatusError, internal
from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, DEFINITION, NAMESPACE, Json
from kdns.controlplane.gc.backlog import AT_ONCE, Backlog
from kdns.controlplane.server.registry import Request
from kdns.controlplane.storage.object_meta import is_terminating
from kdns.controlplane.storage.store import Commit, Store

MANY = 3 * AT_ONCE
PIECE = 20


def in_batches(store: Store | None = None) -> Api:
    api = Api(store)
    api.registry.backlog.wake = lambda: None
    return api


def restarted(api: Api) -> Api:
    """A new API over the same objects."""
    versions = [version for kind in KINDS for version in api.listed(kind).stored]
    return in_batches(Store(versions, revision=api.store.revision))


def made(api: Api, namespace: str, how_many: int, owner: Json | None = None, *, blocking: bool = False) -> None:
    references = owned_by(owner, blocking=blocking) if owner else {}
    for number in range(how_many):
        api.create(CONFIG_MAP, named(f"c{number:03}", **references), namespace=namespace)


@pytest.fixture
def api() -> Api:
    api = in_batches()
    api.create(NAMESPACE, named("x"))
    return api


def left(api: Api) -> int:
    return len(api.listed(CONFIG_MAP).stored)


def finish(api: Api) -> int:
    """Run all batches; returns their number."""
    pieces = 0
    while api.registry.backlog.has_work:
        before = left(api)
        api.registry.backlog.run(PIECE)
        assert before - left(api) <= PIECE
        pieces += 1
    return pieces


def test_a_large_namespace_goes_in_pieces(api: Api) -> None:
    made(api, "x", MANY)
    woken: list[int] = []
    api.registry.backlog.wake = lambda: woken.append(left(api))
    assert api.delete(NAMESPACE, "x")["status"]["phase"] == "Terminating"
    assert MANY - AT_ONCE <= left(api) < MANY
    assert len(woken) == 1
    with pytest.raises(StatusError, match="because it is being terminated"):
        api.create(CONFIG_MAP, named("late"), namespace="x")
    still = left(api)
    api.create(CONFIG_MAP, named("other"))
    api.delete(CONFIG_MAP, "other")
    assert left(api) == still, "a request does its own work, not that of the one before"
    assert finish(api) >= (MANY - AT_ONCE) // PIECE
    with pytest.raises(StatusError, match='namespaces "x" not found'):
        api.get(NAMESPACE, "x")


@pytest.mark.parametrize(("policy", "dependents"), [("Background", 0), ("Foreground", 0), ("Orphan", MANY)], ids=str)
@pytest.mark.parametrize("stops_after", [None, 0, 3])
def test_dependents_go_in_pieces_and_a_restart_goes_on(
    api: Api, policy: str, dependents: int, stops_after: int | None
) -> None:
    owner = api.create(CONFIG_MAP, named("owner"))
    made(api, "default", MANY, owner, blocking=True)
    api.delete(CONFIG_MAP, "owner", {"propagationPolicy": policy})
    assert left(api) >= MANY - AT_ONCE
    if stops_after is not None:
        for _ in range(stops_after):
            api.registry.backlog.run(PIECE)
        api = restarted(api)
    finish(api)
    found = api.items(CONFIG_MAP)
    assert len(found) == dependents
    assert not any("ownerReferences" in obj["metadata"] or obj["metadata"]["name"] == "owner" for obj in found)


def test_a_restart_goes_on_with_a_namespace(api: Api) -> None:
    made(api, "x", MANY)
    made(api, "default", 1)
    api.delete(NAMESPACE, "x")
    api = restarted(api)
    finish(api)
    assert api.names(NAMESPACE) == ["default"]
    assert left(api) == 1


def test_a_namespace_made_anew_keeps_what_is_made_in_it(api: Api) -> None:
    made(api, "x", MANY)
    api.delete(NAMESPACE, "x")
    api.update(NAMESPACE, "x", {**api.get(NAMESPACE, "x"), "spec": {}}, subresource="finalize")
    api.create(NAMESPACE, named("x"))
    for name in ("c299", "new"):
        if api.store.get(CONFIG_MAP, ("x", name)):
            api.delete(CONFIG_MAP, name, namespace="x")
        api.create(CONFIG_MAP, named(name), namespace="x")
    finish(api)
    assert api.names(CONFIG_MAP, "x") == ["c299", "new"]


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


def namespace_with_objects(api: Api) -> Request:
    made(api, "x", 2)
    return Request(NAMESPACE, "", "x")


def definition_with_objects(api: Api) -> Request:
    api.create(DEFINITION, definition())
    kind = api.kinds.by_type("example.com/v1", "Widget")
    assert kind
    api.create(kind, widget("w"), namespace="x")
    return Request(DEFINITION, "", "widgets.example.com")


def owner_with_dependents(api: Api) -> Request:
    owner = api.create(CONFIG_MAP, named("owner"))
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
def test_a_refused_write_delays_a_deletion_only(setting: Callable[[Api], Request], policy: str, accepted: int) -> None:
    disk = FailingDisk(1_000)
    api = in_batches(Store(persist=disk))
    api.create(NAMESPACE, named("x"))
    doomed = setting(api)
    disk.room = accepted
    with suppress(StatusError):
        api.registry.delete(doomed, options={"propagationPolicy": policy})
    with suppress(StatusError):
        api.registry.backlog.run(PIECE)
    disk.room = float("inf")
    finish(api)
    version = api.store.get(doomed.kind, doomed.key)
    if version and not is_terminating(version.obj):  # the deletion itself was refused
        api.registry.delete(doomed, options={"propagationPolicy": policy})
        finish(api)
    assert api.store.get(doomed.kind, doomed.key) is None
    assert left(api) == 0


def test_an_object_whose_owner_is_gone_is_deleted_after_a_refused_write() -> None:
    disk = FailingDisk(2)
    api = in_batches(Store(persist=disk))
    with pytest.raises(StatusError, match="disk full"):
        made(api, "default", 1, {"kind": "ConfigMap", **named("gone", uid="nobody")})
    disk.room = float("inf")
    finish(api)
    assert left(api) == 0
