"""Following manifests against a small API that keeps objects in a dict and refuses what it is told to."""

import asyncio
import copy
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import msgspec
import pytest
from served_kinds import CATALOGUE
from structlog.testing import capture_logs

from kdns.controlplane.apimachinery.annotations import LAST_APPLIED, MANIFEST
from kdns.controlplane.apimachinery.errors import Cause, StatusError, already_exists, invalid, not_found
from kdns.controlplane.apimachinery.kinds import NAMESPACE, SERVICE, Json, Kind, Kinds
from kdns.controlplane.manifests.changes import ChangeLog
from kdns.controlplane.manifests.io.follower import Applied, ManifestFollower
from kdns.controlplane.server.registry import Registry, Request
from kdns.controlplane.storage.store import StoredObject
from kdns.errors import ManifestError


@dataclass
class Listed:
    items: list[Json]


@dataclass
class Stored:
    objects: dict[tuple[Kind, str, str], Json]

    def get(self, kind: Kind, key: tuple[str, str]) -> StoredObject | None:
        obj = self.objects.get((kind, *key))
        return _version(Request(kind, *key), obj) if obj else None


@dataclass
class DictApi:
    """Objects by kind, namespace and name; a namespaced object needs its namespace; a refused name is not stored."""

    objects: dict[tuple[Kind, str, str], Json] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    kinds: Kinds = CATALOGUE

    @property
    def store(self) -> Stored:
        return Stored(self.objects)

    def get(self, request: Request) -> Json:
        if _key(request) not in self.objects:
            raise not_found(request.kind, request.name)
        return copy.deepcopy(self.objects[_key(request)])

    def list(self, request: Request) -> Listed:
        assert request.namespace is None
        return Listed([copy.deepcopy(obj) for key, obj in self.objects.items() if key[0] is request.kind])

    def create(self, request: Request, obj: Json) -> StoredObject:
        assert request.manager
        request = msgspec.structs.replace(request, name=obj["metadata"]["name"])
        self._check(*_key(request))
        if _key(request) in self.objects:
            raise already_exists(request.kind, request.name)
        return self._put("create", request, obj)

    def update(self, request: Request, obj: Json) -> StoredObject:
        assert request.manager
        self._check(*_key(request))
        old, subresource = self.objects[_key(request)], request.subresource
        new = old | {"status": obj["status"]} if subresource else obj | {"status": old.get("status", {})}
        return self._put(f"update {subresource}".strip(), request, new)

    def delete(self, request: Request, options: Json | None = None) -> StoredObject:
        _ = options
        self.get(request)
        self.calls.append(f"delete {request.name}")
        return _version(request, self.objects.pop(_key(request)))

    def _check(self, kind: Kind, namespace: str, name: str) -> None:
        if kind.namespaced and namespace != "default" and (NAMESPACE, "", namespace) not in self.objects:
            raise not_found(NAMESPACE, namespace)
        if name in self.refused:
            raise invalid(kind, name, [Cause(self.refused[name], "Invalid value", "no")])

    def _put(self, verb: str, request: Request, obj: Json) -> StoredObject:
        if not request.dry_run:
            self.calls.append(f"{verb} {request.name}")
            self.objects[_key(request)] = copy.deepcopy(obj)
        return _version(request, obj)


def _key(request: Request) -> tuple[Kind, str, str]:
    return request.kind, *request.key


def _version(request: Request, obj: Json) -> StoredObject:
    return StoredObject(request.kind, request.key, 0, msgspec.json.encode(obj))


@dataclass
class House:
    """A folder, an API and a follower between them."""

    folder: Path
    api: DictApi = field(default_factory=DictApi)
    problems: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    now_s: int = 1_700_000_000

    def __post_init__(self) -> None:
        self.follower = self.newly_started()

    def newly_started(self) -> ManifestFollower:
        changes = ChangeLog(report=lambda line: self.lines.append(line.replace(f"{self.folder}/", "")))
        return ManifestFollower(cast("Registry", self.api), [self.folder], report=self.report, changes=changes)

    def write(self, name: str, text: str) -> None:
        """Each time a little later: the clock of a file system may be slower than the test."""
        self.now_s += 1
        (self.folder / name).write_text(text)
        os.utime(self.folder / name, (self.now_s, self.now_s))

    async def settle(self) -> Applied:
        """Two looks: the first sees the change, the second believes it."""
        self.api.calls.clear()
        assert await self.follower.scan() == Applied()
        return await self.follower.scan()

    def told(self) -> list[str]:
        told, self.problems[:] = list(self.problems), []
        return told

    def names(self) -> set[str]:
        return {name for _, _, name in self.api.objects}

    def report(self, problem: ManifestError) -> None:
        self.problems.append(str(problem).replace(f"{self.folder}/", ""))


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def service(name: str, port: int = 80, namespace: str = "default", extra: str = "") -> str:
    return f"""\
apiVersion: v1
kind: Service
metadata:
  name: {name}
  namespace: {namespace}
spec:
  ports:
  - port: {port}
{extra}---
"""


NAMESPACE_TEXT = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n"


async def test_start_applies_all_namespaces_first(house: House) -> None:
    house.write("a.yaml", service("cart", namespace="shop") + NAMESPACE_TEXT)
    house.write("b.json", '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}')
    assert await house.follower.start() == Applied(applied=3)
    assert house.api.calls == ["create shop", "create cart", "create p"]
    assert house.told() == []
    metadata = house.api.get(Request(SERVICE, "shop", "cart"))["metadata"]
    assert metadata["annotations"][MANIFEST] == str(house.folder / "a.yaml")


async def test_an_edit_is_believed_at_the_second_look_and_others_fields_stay(house: House) -> None:
    house.write("a.yaml", service("a", extra="  selector: {x: y}\n") + service("b"))
    await house.follower.start()
    house.api.objects[SERVICE, "default", "a"]["spec"]["ports"][0]["nodePort"] = 30080
    house.api.objects[SERVICE, "default", "a"]["metadata"]["labels"] = {"by": "hand"}
    house.write("a.yaml", service("a", extra="  type: NodePort\n") + service("b"))
    assert await house.settle() == Applied(applied=1)
    assert house.api.calls == ["update a"]
    stored = house.api.get(Request(SERVICE, "default", "a"))
    assert stored["spec"] == {"ports": [{"port": 80, "nodePort": 30080}], "type": "NodePort"}
    assert stored["metadata"]["labels"] == {"by": "hand"}
    assert await house.follower.scan() == Applied()


async def test_an_edit_is_acknowledged_in_a_line_that_says_what_changed(house: House) -> None:
    house.write("a.yaml", service("cart") + service("shop"))
    await house.follower.start()
    assert house.lines == []
    house.write("a.yaml", "# a remark\n" + service("cart", 81) + service("shop"))
    house.write("b.yaml", service("new"))
    await house.settle()
    assert house.lines == ["a.yaml: service/cart configured (spec.ports)", "b.yaml: service/new created"]
    house.lines.clear()
    (house.folder / "b.yaml").unlink()
    house.write("a.yaml", service("shop", extra="  selector: {app: shop}\n") + "".join(map(service, "abcdefghijkl")))
    await house.settle()
    assert house.lines[:3] == [
        "a.yaml: service/cart deleted",
        "b.yaml: service/new deleted",
        "a.yaml: service/shop configured (spec.selector)",
    ]
    assert house.lines[10:] == ["and 5 more: 5 created"]


async def test_what_has_no_effect_is_said_once_for_each_kind(house: House) -> None:
    balanced = service("cart", extra="  type: LoadBalancer\n")
    pods = "".join(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p{n}}}\n---\n" for n in range(2))
    leases = pods.replace("v1\nkind: Pod", "coordination.k8s.io/v1\nkind: Lease")
    house.write("a.yaml", balanced + pods + leases)
    await house.follower.start()
    assert house.lines == [
        "Service default/cart: without --lb-pool its load balancer stays pending",
        "Pods are simulated: no containers run",
        "Lease default/p0: stored, nothing acts on it",
    ]
    house.write("b.yaml", leases.replace("p1", "p2"))
    await house.settle()
    assert house.lines[3:] == ["b.yaml: lease.coordination.k8s.io/p2 created"]


async def test_a_deleted_file_and_a_removed_document_delete_objects_before_new_ones_come(house: House) -> None:
    house.write("a.yaml", service("a"))
    house.write("b.yaml", service("b1") + service("b2") + NAMESPACE_TEXT + service("c", namespace="shop"))
    await house.follower.start()
    (house.folder / "a.yaml").unlink()
    house.write("b.yaml", service("b1") + service("b3"))
    assert await house.settle() == Applied(applied=1, deleted=4)
    assert house.api.calls[-2:] == ["delete shop", "create b3"]
    assert house.names() == {"b1", "b3"}


async def test_what_a_broken_file_defined_stays_until_it_is_mended(house: House) -> None:
    house.write("a.yaml", service("a") + service("b"))
    await house.follower.start()
    house.write("a.yaml", service("a") + "kind: [")
    assert await house.settle() == Applied()
    assert [text.startswith("a.yaml:10: not YAML: ") for text in house.told()] == [True]
    assert house.names() == {"a", "b"}
    assert await house.follower.scan() == Applied()
    assert house.told() == []
    house.write("a.yaml", service("a"))
    assert await house.settle() == Applied(deleted=1)
    assert house.names() == {"a"}
    house.write("a.yaml", service("a") + "kind: [")
    await house.settle()
    assert len(house.told()) == 1


async def test_a_document_with_a_mistake_spares_the_others(house: House) -> None:
    house.write("a.yaml", service("a") + service("b") + service("c"))
    await house.follower.start()
    house.write("a.yaml", service("a") + "kind: Service\n---\n" + service("c", port=81) + service("d"))
    assert await house.settle() == Applied(applied=2)
    assert house.told() == ["a.yaml:10: apiVersion: expected a string, got nothing"]
    assert house.names() == {"a", "b", "c", "d"}, "b may be what has the mistake"
    house.write("a.yaml", service("a") + service("c", port=81) + service("d"))
    assert await house.settle() == Applied(deleted=1)
    assert house.names() == {"a", "c", "d"}


async def test_a_duplicate_key_is_a_warning_of_an_applied_object(house: House) -> None:
    house.write("a.yaml", service("a").replace("metadata:", "metadata: {name: z}\nmetadata:") + service("b"))
    assert await house.follower.start() == Applied(applied=2)
    assert house.told() == ["a.yaml:4: metadata: duplicate key; the last value is used"]
    assert house.names() == {"a", "b"}


async def test_a_generated_name_stays_until_its_document_changes(house: House) -> None:
    document = service("a").replace("name: a\n", "generateName: a-\n")
    house.write("a.yaml", document + document)
    assert await house.follower.start() == Applied(applied=2)
    names = house.names()
    assert {name[:2] for name in names} == {"a-"}
    assert await house.newly_started().start() == Applied(applied=2)
    assert house.names() == names, "a restart finds them"
    house.write("a.yaml", service("b") + document + document)
    assert await house.settle() == Applied(applied=1)
    house.write("a.yaml", document.replace("port: 80", "port: 81"))
    assert await house.settle() == Applied(applied=1, deleted=3)
    assert house.told() == []


async def test_a_file_that_is_mended_or_removed_gets_a_line(house: House) -> None:
    mended, removed = "a.yaml: no mistakes left", "a.yaml: removed, no mistakes left"
    house.write("b.yaml", service("b"))
    await house.follower.start()
    for text, lines in [
        (service("a") + "kind: [", ["a.yaml: service/a created"]),
        (service("a"), [mended]),
        (service("a") + "typ: x\n", []),
        (None, ["a.yaml: service/a deleted", removed]),
        ("apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n", []),
        (None, []),
    ]:
        house.lines.clear()
        if text is None:
            (house.folder / "a.yaml").unlink()
        else:
            house.write("a.yaml", text)
        await house.settle()
        await house.follower.scan()
        assert sorted(house.lines) == sorted(lines), text


async def test_a_refusal_names_the_fields_line_spares_the_rest_and_is_tried_again(house: House) -> None:
    house.api.refused = {"bad": "spec.ports[0].port"}
    house.write("a.yaml", service("bad", port=0) + service("good"))
    assert await house.follower.start() == Applied(applied=1, refused=1)
    assert house.told() == ["a.yaml:8: spec.ports[0].port: Invalid value: no"]
    assert await house.follower.scan() == Applied(refused=1)
    assert house.told() == []
    house.api.refused = {}
    assert await house.follower.scan() == Applied(applied=1)
    assert house.names() == {"good", "bad"}
    house.api.refused = {"bad": "spec.ports[0].port"}
    house.write("a.yaml", service("bad", port=99) + service("good"))
    assert (await house.settle()).refused == 1
    house.write("a.yaml", service("bad", port=0) + service("good"))
    assert await house.follower.scan() == Applied(refused=1)  # tried again
    assert await house.follower.scan() == Applied()  # what is stored is wanted again


async def test_a_missing_namespace_is_told_and_awaited(house: House) -> None:
    house.write("a.yaml", service("cart", namespace="shop"))
    assert await house.follower.start() == Applied(refused=1)
    assert house.told() == ['a.yaml:1: namespaces "shop" not found']
    house.api.objects[NAMESPACE, "", "shop"] = {"metadata": {"name": "shop"}}
    assert await house.follower.scan() == Applied(applied=1)


async def test_an_object_defined_twice_is_told_and_the_first_counts(house: House) -> None:
    house.write("a.yaml", service("a", port=1))
    house.write("b.yaml", "\n" + service("a", port=2))
    await house.follower.start()
    assert house.told() == ["b.yaml:2: Service a is already defined at a.yaml:1; that definition is used"]
    assert house.api.get(Request(SERVICE, "default", "a"))["spec"]["ports"] == [{"port": 1}]
    (house.folder / "a.yaml").unlink()
    assert await house.settle() == Applied(applied=1)
    assert house.api.get(Request(SERVICE, "default", "a"))["spec"]["ports"] == [{"port": 2}]


async def test_unknown_kinds_are_told_once(house: House) -> None:
    other = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: d}\n---\n"
    house.write("a.yaml", other + other + service("a"))
    assert await house.follower.start() == Applied(applied=1)
    house.write("b.yaml", other)
    await house.settle()
    assert house.told() == ["a.yaml:1: kind: skipped: example.com/v1 Widget is not served"]


def pod(status: str) -> str:
    return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\n{status}"


async def test_a_restart_knows_what_was_applied_and_deletes_what_is_left_behind(house: House) -> None:
    house.write("a.yaml", service("a", extra="  selector: {x: y}\n") + service("b"))
    house.write("c.yaml", service("c"))
    await house.follower.start()
    house.api.create(Request(SERVICE, "default", manager="kubectl"), {"metadata": {"name": "by-hand"}})
    elsewhere = {"metadata": {"name": "elsewhere", "annotations": {MANIFEST: "/elsewhere/x.yaml"}}}
    house.api.create(Request(SERVICE, "default", manager="kubectl"), elsewhere)
    house.write("a.yaml", service("a"))
    house.write("c.yaml", "[")
    assert await house.newly_started().start() == Applied(applied=1, deleted=1)
    assert house.names() == {"a", "c", "by-hand", "elsewhere"}
    assert house.api.get(Request(SERVICE, "default", "a"))["spec"] == {"ports": [{"port": 80}]}


async def test_a_name_that_is_not_utf_8_is_followed_too(house: House) -> None:
    name = os.fsdecode(b"\xff.yaml")
    house.write(name, service("a") + service("b"))
    await house.follower.start()
    house.write(name, service("a"))
    assert await house.newly_started().start() == Applied(applied=1, deleted=1)
    source = house.api.get(Request(SERVICE, "default", "a"))["metadata"]["annotations"][MANIFEST]
    assert source == f"{house.folder}/\\xff.yaml"


async def test_a_deletion_that_is_refused_is_told(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.write("a.yaml", NAMESPACE_TEXT)
    await house.follower.start()

    def refuse(request: Request, options: Json) -> StoredObject:
        raise StatusError(403, "Forbidden", f"{request.kind.plural} {request.name} stays", options)

    monkeypatch.setattr(house.api, "delete", refuse)
    (house.folder / "a.yaml").unlink()
    assert await house.settle() == Applied()
    assert house.told() == ["a.yaml: Namespace shop: cannot be deleted: namespaces shop stays"]


async def test_a_folder_that_cannot_be_looked_into_deletes_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.write("a.yaml", service("a"))
    await house.follower.start()

    def refuse(*_: object, **__: object) -> object:
        raise PermissionError(13, "Permission denied", str(house.folder))

    for broken in ("os.scandir", "pathlib.Path.stat"):
        with monkeypatch.context() as patch:
            patch.setattr(broken, refuse)
            patch.setattr("pathlib.Path.is_dir", lambda _: True)
            for _ in range(3):
                assert await house.follower.scan() == Applied()
        assert [text.endswith(": cannot be read: Permission denied") for text in house.told()] == [True]
        assert house.names() == {"a"}
        assert await house.settle() == Applied()


AWAY = "the path no longer exists; its objects are kept until it returns"


async def test_a_file_that_cannot_be_looked_at_spares_the_others_and_keeps_its_objects(house: House) -> None:
    house.write("a.yaml", service("a"))
    house.write("b.yaml", service("b"))
    await house.follower.start()
    (house.folder / "a.yaml").unlink()
    (house.folder / "a.yaml").symlink_to("a.yaml")
    house.write("b.yaml", service("b") + service("c"))
    await house.settle()
    assert house.names() == {"a", "b", "c"}
    assert house.told() == ["a.yaml: cannot be read: Too many levels of symbolic links"]


async def test_a_path_that_goes_away_keeps_its_objects_and_is_told_once(house: House) -> None:
    single, folder = house.folder / "single.yml", house.folder / "man"
    folder.mkdir()
    house.write(single.name, service("s"))
    house.write("man/a.yaml", service("a"))
    house.write("man/b.yaml", service("b"))
    house.follower = ManifestFollower(cast("Registry", house.api), [single, folder], report=house.report)
    await house.follower.start()
    single.rename(house.folder / "other")
    folder.rename(house.folder / "man2")
    for _ in range(4):
        assert await house.follower.scan() == Applied()
    assert house.told() == [f"man: {AWAY}", f"single.yml: {AWAY}"]
    assert house.names() == {"a", "b", "s"}
    (house.folder / "man2" / "b.yaml").unlink()
    (house.folder / "man2").rename(folder)
    house.write(single.name, service("s", port=81))
    assert await house.settle() == Applied(applied=1, deleted=1)
    assert (house.names(), house.told()) == ({"a", "s"}, [])
    single.unlink()
    await house.settle()
    assert house.told() == [f"single.yml: {AWAY}"]


async def test_a_path_that_is_away_for_one_look_is_no_news(house: House) -> None:
    single = house.folder / "single.yaml"
    house.write(single.name, service("s"))
    house.follower = ManifestFollower(cast("Registry", house.api), [single], report=house.report)
    await house.follower.start()
    for port in (81, 82):
        single.rename(house.folder / "single.yaml~")
        assert await house.follower.scan() == Applied()
        house.write(single.name, service("s", port=port))
        assert await house.settle() == Applied(applied=1)
    assert house.told() == []


async def test_what_an_earlier_run_made_stays_while_a_folder_cannot_be_looked_into(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.write("a.yaml", service("a"))
    await house.follower.start()

    def refuse(*_: object, **__: object) -> object:
        raise PermissionError(13, "Permission denied", str(house.folder))

    house.follower = house.newly_started()
    with monkeypatch.context() as patch:
        patch.setattr("os.scandir", refuse)
        assert await house.follower.start() == Applied()
    assert [text.endswith(": cannot be read: Permission denied") for text in house.told()] == [True]
    assert house.names() == {"a"}


async def test_a_path_that_leads_nowhere_stops_the_start(house: House) -> None:
    with pytest.raises(ManifestError, match="nowhere: no such file or folder"):
        await ManifestFollower(cast("Registry", house.api), [house.folder / "nowhere"], report=house.report).start()


async def test_unchanged_objects_are_left_alone_after_a_touch(house: House) -> None:
    house.write("a.yaml", service("a"))
    await house.follower.start()
    last = house.api.get(Request(SERVICE, "default", "a"))["metadata"]["annotations"][LAST_APPLIED]
    house.write("a.yaml", "# moved down by a comment\n" + service("a"))
    assert await house.settle() == Applied()
    assert house.api.calls == []
    assert house.api.get(Request(SERVICE, "default", "a"))["metadata"]["annotations"][LAST_APPLIED] == last


async def test_a_deleted_object_returns_when_its_file_is_touched(house: House) -> None:
    for name in "ab":
        house.write(f"{name}.yaml", service(name))
    await house.follower.start()
    house.api.objects.clear()
    assert await house.settle() == Applied(), "it stays deleted until then"
    house.write("a.yaml", service("a"))
    assert await house.settle() == Applied(applied=1)
    assert house.api.calls == ["create a"]


async def test_nothing_ends_the_following(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails is logged once while it lasts, and the rest of the files are applied as soon as it is over."""
    house.write("a.yaml", service("a") + service("b"))
    await house.follower.start()
    put, failures, applied = house.api._put, 0, asyncio.Event()  # noqa: SLF001 - the store

    def failing(verb: str, request: Request, obj: Json) -> StoredObject:
        nonlocal failures
        if failures < 3:
            failures += 1
            raise RuntimeError("a defect")
        if request.name == "b":
            applied.set()
        return put(verb, request, obj)

    monkeypatch.setattr(house.api, "_put", failing)
    house.write("a.yaml", service("a", port=81) + service("b", port=81))
    follower = ManifestFollower(cast("Registry", house.api), [house.folder], report=house.report, poll_s=0.001)
    follower._applied = house.follower._applied  # noqa: SLF001 - it goes on where that one was
    with capture_logs() as logs:
        task = asyncio.create_task(follower.follow())
        async with asyncio.timeout(60):
            await applied.wait()
        task.cancel()
    assert failures == 3
    assert {obj["spec"]["ports"][0]["port"] for obj in house.api.objects.values()} == {81}
    assert [entry["event"] for entry in logs] == ["manifests not applied"]
