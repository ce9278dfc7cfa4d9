"""Following manifests as their files come, change and go, against the API in memory."""

import asyncio
import json
import os
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path

import pytest
from object_api import Api, named
from structlog.testing import capture_logs
from widgets import definition, version, widget

from kdns.controlplane.apimachinery.annotations import LAST_APPLIED, MANIFEST
from kdns.controlplane.apimachinery.kinds import DEFINITION, IP_ADDRESS, NAMESPACE, POD, SERVICE, Json
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.manifests.changes import ChangeLog
from kdns.controlplane.manifests.io.follower import Applied, ManifestFollower
from kdns.controlplane.server.registry import Request
from kdns.controlplane.storage.store import StoredObject
from kdns.errors import ManifestError

EXAMPLES = Path(__file__).parents[4] / "examples"
CONFIG = ClusterConfig(service_cidrs=(ip_network("10.96.0.0/16"), ip_network("fd00:10:96::/112")))


@dataclass
class House:
    """A folder, an API and a follower between them."""

    folder: Path
    api: Api = field(default_factory=lambda: Api(config=CONFIG))
    problems: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    now_s: int = 1_700_000_000

    def __post_init__(self) -> None:
        self.follower = self.newly_started()

    def newly_started(self, *paths: Path) -> ManifestFollower:
        changes = ChangeLog(report=lambda line: self.lines.append(line.replace(f"{self.folder}/", "")))
        return ManifestFollower(self.api.registry, paths or [self.folder], report=self.report, changes=changes)

    async def start(self, name: str, text: str) -> Applied:
        """Start with one file."""
        self.write(name, text)
        return await self.follower.start()

    def write(self, name: str, text: str) -> None:
        """Each time a little later: the clock of a file system may be slower than the test."""
        self.now_s += 1
        (self.folder / name).write_text(text)
        os.utime(self.folder / name, (self.now_s, self.now_s))

    async def settle(self) -> Applied:
        """Two looks: the first sees the change, the second believes it."""
        await self.follower.scan()
        return await self.follower.scan()

    def told(self) -> list[str]:
        told, self.problems[:] = list(self.problems), []
        return told

    def names(self) -> str:
        return " ".join(self.api.names(SERVICE))

    def service(self, name: str = "web") -> Json:
        spec: Json = self.api.get(SERVICE, name)["spec"]
        return spec

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
  - name: http
    port: {port}
{extra}---
"""


def node_port(name: str, number: int, more: str = "") -> str:
    return service(name, extra=f"    nodePort: {number}\n  type: NodePort\n{more}")


NAMESPACE_TEXT = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n"
LEASES = "".join(f"apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {{name: p{n}}}\n---\n" for n in range(2))
PODS = "".join(
    f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p{n}}}\nspec: {{containers: [{{name: c, image: i}}]}}\n---\n"
    for n in range(2)
)


async def test_the_examples_apply_and_a_second_start_changes_nothing(house: House) -> None:
    done = await house.newly_started(EXAMPLES).start()
    assert (house.told(), done.refused, done.deleted, done.applied > 15) == ([], 0, 0, True)
    assert house.service("redis-master")["clusterIP"] == "10.96.0.11"
    assert house.service("dual-stack")["clusterIPs"] == ["10.96.0.40", "fd00:10:96::40"]
    assert house.api.get(POD, "my-app-1")["status"]["podIP"] == "10.244.1.11"
    before = house.api.store.revision
    assert await house.newly_started(EXAMPLES).start() == done
    assert house.api.store.revision == before


async def test_start_applies_all_namespaces_first(house: House) -> None:
    house.write("b.yaml", PODS)
    assert await house.start("a.yaml", service("cart", namespace="shop") + NAMESPACE_TEXT) == Applied(applied=4)
    assert house.told() == []
    annotations = house.api.get(SERVICE, "cart", namespace="shop")["metadata"]["annotations"]
    assert annotations[MANIFEST] == str(house.folder / "a.yaml")


async def test_an_edit_is_believed_at_the_second_look_and_what_others_set_stays(house: House) -> None:
    await house.start("a.yaml", service("a", extra="  type: NodePort\n  selector: {x: y}\n") + service("b"))
    first = house.service("a")
    house.api.patch(SERVICE, "a", {"metadata": {"labels": {"by": "hand"}}})
    edited = service("a", extra="    targetPort: 8080\n  - {name: https, port: 443}\n  type: NodePort\n") + service("b")
    house.write("a.yaml", edited)
    assert [await house.follower.scan() for _ in range(3)] == [Applied(), Applied(applied=1), Applied()]
    second = house.service("a")
    assert (second["clusterIP"], second["ports"][0]["nodePort"]) == (first["clusterIP"], first["ports"][0]["nodePort"])
    assert ([port["targetPort"] for port in second["ports"]], "selector" in second) == ([8080, 443], False)
    assert house.api.get(SERVICE, "a")["metadata"]["labels"] == {"by": "hand"}
    house.write("a.yaml", edited.replace("NodePort", "ClusterIP"))
    assert await house.settle() == Applied(applied=1)
    third = house.service("a")
    assert (third["type"], [port.get("nodePort") for port in third["ports"]]) == ("ClusterIP", [None, None])
    assert house.told() == []


async def test_an_edit_is_acknowledged_in_a_line_that_says_what_changed(house: House) -> None:
    await house.start("a.yaml", service("cart") + service("shop"))
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
    await house.start("a.yaml", service("cart", extra="  type: LoadBalancer\n") + PODS + LEASES)
    assert house.lines == [
        "Service default/cart: without --lb-pool its load balancer stays pending",
        "Pods are simulated: no containers run",
        "Lease default/p0: stored, nothing acts on it",
    ]
    house.write("b.yaml", LEASES.replace("p1", "p2"))
    await house.settle()
    assert house.lines[3:] == ["b.yaml: lease.coordination.k8s.io/p2 created"]


async def test_a_deleted_file_and_a_removed_document_delete_objects_before_new_ones_come(house: House) -> None:
    house.write("a.yaml", service("a"))
    text = service("b1") + node_port("b2", 30080)
    await house.start("b.yaml", text + NAMESPACE_TEXT + service("c", namespace="shop"))
    (house.folder / "a.yaml").unlink()
    house.write("b.yaml", text.replace("b2", "b3"))
    assert await house.settle() == Applied(applied=1, deleted=4)
    assert (house.names(), house.told()) == ("b1 b3", []), "b3 has the node port of b2"


async def test_what_a_broken_file_defined_stays_until_it_is_mended(house: House) -> None:
    await house.start("a.yaml", service("a") + service("b"))
    house.write("a.yaml", service("a") + "kind: [")
    assert await house.settle() == Applied()
    assert [text.startswith("a.yaml:11: not YAML: ") for text in house.told()] == [True]
    assert house.names() == "a b"
    assert await house.follower.scan() == Applied()
    assert house.told() == []
    house.write("a.yaml", service("a"))
    assert await house.settle() == Applied(deleted=1)
    assert house.names() == "a"
    house.write("a.yaml", service("a") + "kind: [")
    await house.settle()
    assert len(house.told()) == 1


async def test_a_document_with_a_mistake_spares_the_others(house: House) -> None:
    await house.start("a.yaml", service("a") + service("b") + service("c"))
    house.write("a.yaml", service("a") + "kind: Service\n---\n" + service("c", port=81) + service("d"))
    assert await house.settle() == Applied(applied=2)
    assert house.told() == ["a.yaml:11: apiVersion: expected a string, got nothing"]
    assert house.names() == "a b c d", "b may be what has the mistake"
    house.write("a.yaml", service("a") + service("c", port=81) + service("d"))
    assert await house.settle() == Applied(deleted=1)
    assert house.names() == "a c d"


async def test_a_duplicate_key_is_a_warning_of_an_applied_object(house: House) -> None:
    text = service("a").replace("metadata:", "metadata: {name: z}\nmetadata:") + service("b")
    assert await house.start("a.yaml", text) == Applied(applied=2)
    assert house.told() == ["a.yaml:4: metadata: duplicate key; the last value is used"]
    assert house.names() == "a b"


async def test_a_generated_name_stays_until_its_document_changes(house: House) -> None:
    document = service("a").replace("name: a\n", "generateName: a-\n")
    assert await house.start("a.yaml", document + document) == Applied(applied=2)
    names = house.names()
    assert [name[:2] for name in names.split()] == ["a-"] * 2
    assert await house.newly_started().start() == Applied(applied=2)
    assert house.names() == names, "a restart finds them"
    house.write("a.yaml", service("b") + document + document)
    assert await house.settle() == Applied(applied=1)
    house.write("a.yaml", document.replace("port: 80", "port: 81"))
    assert await house.settle() == Applied(applied=1, deleted=3)
    assert house.told() == []


async def test_a_file_that_is_mended_or_removed_gets_a_line(house: House) -> None:
    mended, removed = "a.yaml: no mistakes left", "a.yaml: removed, no mistakes left"
    await house.start("b.yaml", service("b"))
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
    house.api.create(
        SERVICE, {**named("other"), "spec": {"type": "NodePort", "ports": [{"port": 1, "nodePort": 30080}]}}
    )
    assert await house.start("a.yaml", node_port("bad", 30080) + service("good")) == Applied(applied=1, refused=1)
    taken = "a.yaml:10: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated"
    assert house.told() == [taken]
    assert await house.follower.scan() == Applied(refused=1)
    assert house.told() == []
    house.api.delete(SERVICE, "other")
    assert await house.follower.scan() == Applied(applied=1)
    assert house.names() == "bad good"
    house.write("a.yaml", node_port("bad", 1) + service("good"))
    assert (await house.settle()).refused == 1
    house.write("a.yaml", node_port("bad", 30080) + service("good"))
    assert await house.follower.scan() == Applied(refused=1)  # tried again
    assert await house.follower.scan() == Applied()  # what is stored is wanted again


async def test_every_mistake_of_an_object_is_reported_as_by_check(house: House) -> None:
    """Addresses and node ports are allocated before other rules are looked at, and unknown fields come first of all."""
    more = "    targetPort: a b\n  clusterIP: 192.0.2.1\n  sessionAffinity: x\n  typ: x\n"
    await house.start("a.yaml", service("web", extra=f"    nodePort: 80\n{more}  type: NodePort\n"))
    assert {problem.split(": ")[0]: problem.split(": ")[1] for problem in house.told()} == {
        "a.yaml:10": "spec.ports[0].nodePort",
        "a.yaml:11": "spec.ports[0].targetPort",
        "a.yaml:12": "spec.clusterIPs",
        "a.yaml:13": "spec.sessionAffinity",
        "a.yaml:14": "spec.typ",
    }
    assert house.names() == "", "nothing was stored"


async def test_a_missing_namespace_is_told_and_awaited(house: House) -> None:
    assert await house.start("a.yaml", service("cart", namespace="shop")) == Applied(refused=1)
    assert house.told() == ['a.yaml:1: namespaces "shop" not found']
    house.api.create(NAMESPACE, named("shop"))
    assert await house.follower.scan() == Applied(applied=1)


async def test_an_object_defined_twice_is_told_and_the_first_counts(house: House) -> None:
    house.write("a.yaml", service("a", port=1))
    await house.start("b.yaml", "\n" + service("a", port=2))
    assert house.told() == ["b.yaml:2: Service a is already defined at a.yaml:1; that definition is used"]
    assert house.service("a")["ports"][0]["port"] == 1
    (house.folder / "a.yaml").unlink()
    assert await house.settle() == Applied(applied=1)
    assert house.service("a")["ports"][0]["port"] == 2


async def test_unknown_kinds_are_told_once(house: House) -> None:
    other = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: d}\n---\n"
    assert await house.start("a.yaml", other + other + service("a")) == Applied(applied=1)
    house.write("b.yaml", other)
    await house.settle()
    assert house.told() == ["a.yaml:1: kind: skipped: example.com/v1 Widget is not served"]


async def test_a_restart_knows_what_was_applied_and_deletes_what_is_left_behind(house: House) -> None:
    house.write("c.yaml", service("c"))
    await house.start("a.yaml", service("a", extra="  selector: {x: y}\n") + service("b"))
    for obj in (named("by-hand"), named("elsewhere", annotations={MANIFEST: "/elsewhere/x.yaml"})):
        house.api.create(SERVICE, {**obj, "spec": {"ports": [{"port": 80}]}})
    house.write("a.yaml", service("a"))
    house.write("c.yaml", "[")
    assert await house.newly_started().start() == Applied(applied=1, deleted=1)
    assert house.names() == "a by-hand c elsewhere"
    assert "selector" not in house.service("a")


async def test_a_name_that_is_not_utf_8_is_followed_too(house: House) -> None:
    name = os.fsdecode(b"\xff.yaml")
    await house.start(name, service("a") + service("b"))
    house.write(name, service("a"))
    assert await house.newly_started().start() == Applied(applied=1, deleted=1)
    assert house.api.get(SERVICE, "a")["metadata"]["annotations"][MANIFEST] == f"{house.folder}/\\xff.yaml"


async def test_a_deletion_that_is_refused_is_told(house: House) -> None:
    await house.start("a.yaml", NAMESPACE_TEXT.replace("shop", "default"))
    (house.folder / "a.yaml").unlink()
    assert await house.settle() == Applied()
    why = 'namespaces "default" is forbidden: this namespace may not be deleted'
    assert house.told() == [f"a.yaml: Namespace default: cannot be deleted: {why}"]


def refuse(*_: object, **__: object) -> object:
    raise PermissionError(13, "Permission denied", "a folder")


async def test_a_folder_that_cannot_be_looked_into_deletes_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.start("a.yaml", service("a"))
    for broken in ("os.scandir", "pathlib.Path.stat"):
        with monkeypatch.context() as patch:
            patch.setattr(broken, refuse)
            patch.setattr("pathlib.Path.is_dir", lambda _: True)
            for _ in range(3):
                assert await house.follower.scan() == Applied()
        assert [text.endswith(": cannot be read: Permission denied") for text in house.told()] == [True]
        assert house.names() == "a"
        assert await house.settle() == Applied()
    house.follower = house.newly_started()
    with monkeypatch.context() as patch:
        patch.setattr("os.scandir", refuse)
        assert await house.follower.start() == Applied(), "nor does a start delete what an earlier run made"
    assert house.names() == "a"


AWAY = "the path no longer exists; its objects are kept until it returns"


async def test_a_file_that_cannot_be_looked_at_spares_the_others_and_keeps_its_objects(house: House) -> None:
    house.write("a.yaml", service("a"))
    await house.start("b.yaml", service("b"))
    (house.folder / "a.yaml").unlink()
    (house.folder / "a.yaml").symlink_to("a.yaml")
    house.write("b.yaml", service("b") + service("c"))
    await house.settle()
    assert house.names() == "a b c"
    assert house.told() == ["a.yaml: cannot be read: Too many levels of symbolic links"]


async def test_a_path_that_goes_away_keeps_its_objects_and_is_told_once(house: House) -> None:
    single, folder = house.folder / "single.yml", house.folder / "man"
    folder.mkdir()
    house.write(single.name, service("s"))
    house.write("man/a.yaml", service("a"))
    house.follower = house.newly_started(single, folder)
    await house.start("man/b.yaml", service("b"))
    single.rename(house.folder / "other")
    folder.rename(house.folder / "man2")
    for _ in range(4):
        assert await house.follower.scan() == Applied()
    assert house.told() == [f"man: {AWAY}", f"single.yml: {AWAY}"]
    assert house.names() == "a b s"
    (house.folder / "man2" / "b.yaml").unlink()
    (house.folder / "man2").rename(folder)
    house.write(single.name, service("s", port=81))
    assert await house.settle() == Applied(applied=1, deleted=1)
    assert (house.names(), house.told()) == ("a s", [])
    single.unlink()
    await house.settle()
    assert house.told() == [f"single.yml: {AWAY}"]


async def test_a_path_that_is_away_for_one_look_is_no_news(house: House) -> None:
    single = house.folder / "single.yaml"
    house.follower = house.newly_started(single)
    await house.start(single.name, service("s"))
    for port in (81, 82):
        single.rename(house.folder / "single.yaml~")
        assert await house.follower.scan() == Applied()
        house.write(single.name, service("s", port=port))
        assert await house.settle() == Applied(applied=1)
    assert house.told() == []


async def test_a_path_that_leads_nowhere_stops_the_start(house: House) -> None:
    with pytest.raises(ManifestError, match="nowhere: no such file or folder"):
        await house.newly_started(house.folder / "nowhere").start()


async def test_unchanged_objects_are_left_alone_after_a_touch(house: House) -> None:
    await house.start("a.yaml", service("a"))
    before = house.api.get(SERVICE, "a")
    assert LAST_APPLIED in before["metadata"]["annotations"]
    house.write("a.yaml", "# moved down by a comment\n" + service("a"))
    assert await house.settle() == Applied()
    assert house.api.get(SERVICE, "a") == before


async def test_a_deleted_object_returns_when_its_file_is_touched(house: House) -> None:
    house.write("b.yaml", service("b"))
    await house.start("a.yaml", service("a"))
    for name in "ab":
        house.api.delete(SERVICE, name)
    assert await house.settle() == Applied(), "it stays deleted until then"
    house.write("a.yaml", service("a"))
    assert await house.settle() == Applied(applied=1)
    assert house.names() == "a"


async def test_nothing_ends_the_following(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails is logged once while it lasts, and the rest of the files are applied as soon as it is over."""
    await house.start("a.yaml", service("a") + service("b"))
    update, failures, applied = house.api.registry.update, 0, asyncio.Event()

    def failing(request: Request, obj: Json) -> StoredObject:
        nonlocal failures
        if failures < 3:
            failures += 1
            raise RuntimeError("a defect")
        if request.name == "b":
            applied.set()
        return update(request, obj)

    monkeypatch.setattr(house.api.registry, "update", failing)
    house.write("a.yaml", service("a", port=81) + service("b", port=81))
    follower = ManifestFollower(house.api.registry, [house.folder], report=house.report, poll_s=0.001)
    with capture_logs() as logs:
        task = asyncio.create_task(follower.follow())
        async with asyncio.timeout(60):
            await applied.wait()
        task.cancel()
    assert failures == 3
    assert [house.service(name)["ports"][0]["port"] for name in "ab"] == [81, 81]
    assert [entry["event"] for entry in logs] == ["manifests not applied"]


async def test_readiness_of_a_pod_follows_its_manifest(house: House) -> None:
    text = (EXAMPLES / "redis-master.yaml").read_text()
    await house.start("pod.yaml", text)
    house.write("pod.yaml", text.replace('status: "True"', 'status: "False"'))
    assert await house.settle() == Applied(applied=1)
    conditions = house.api.get(POD, "redis-master")["status"]["conditions"]
    assert [row["status"] for row in conditions if row["type"] == "Ready"] == ["False"]
    assert house.told() == []


FIXED = node_port("web", 30080, "  clusterIP: 10.96.0.20\n")


async def test_another_cluster_ip_makes_the_service_anew_with_its_other_numbers(house: House) -> None:
    await house.start("web.yaml", FIXED)
    uid = house.api.get(SERVICE, "web")["metadata"]["uid"]
    house.write("web.yaml", FIXED.replace("0.20", "0.201"))
    assert await house.settle() == Applied(applied=1)
    assert house.api.get(SERVICE, "web")["metadata"]["uid"] != uid
    assert (house.service()["clusterIP"], house.service()["ports"][0]["nodePort"]) == ("10.96.0.201", 30080)
    assert (house.api.names(IP_ADDRESS), house.told()) == (["10.96.0.201"], [])


async def test_a_finalizer_delays_the_service_that_is_made_anew(house: House) -> None:
    await house.start("web.yaml", FIXED)
    house.api.patch(SERVICE, "web", {"metadata": {"finalizers": ["example.com/f"]}})
    house.write("web.yaml", FIXED.replace("0.20", "0.201"))
    await house.settle()
    going = house.api.get(SERVICE, "web")
    assert (going["spec"]["clusterIP"], "deletionTimestamp" in going["metadata"]) == ("10.96.0.20", True)
    assert ["being deleted" in problem for problem in house.told()] == [True]
    house.api.patch(SERVICE, "web", {"metadata": {"finalizers": None}})
    await house.follower.scan()
    assert house.service()["clusterIP"] == "10.96.0.201"


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("10.96.0.21", "already allocated"),
        ("192.0.2.1", "is not in the valid range"),
        ("10.96.99.999", "must be a valid IP address"),
    ],
)
async def test_an_address_that_cannot_be_allocated_leaves_the_service_as_it_was(
    house: House, address: str, reason: str
) -> None:
    await house.start("web.yaml", FIXED)
    house.api.create(SERVICE, {**named("other"), "spec": {"clusterIP": "10.96.0.21", "ports": [{"port": 80}]}})
    before = house.api.get(SERVICE, "web")
    house.write("web.yaml", FIXED.replace("10.96.0.20", address))
    await house.settle()
    assert house.api.get(SERVICE, "web") == before
    assert reason in house.told()[0]
    house.write("web.yaml", FIXED.replace("0.20", "0.201"))
    await house.settle()
    assert house.service()["clusterIP"] == "10.96.0.201"


OLD = {"apiVersion": "example.com/v1beta1"}


def as_text(*objects: Json) -> str:
    return "\n---\n".join(map(json.dumps, objects))


def widgets(house: House) -> list[str]:
    kind = house.api.kinds.by_type("example.com/v1", "Widget")
    return house.api.names(kind.stored_kind) if kind else []


async def test_objects_are_applied_after_the_definition_of_another_file(house: House) -> None:
    house.write("z.yaml", as_text(definition(version("v1beta1", storage=False), version())))
    assert await house.start("a.yaml", as_text(widget("one"), {**widget("two"), **OLD})) == Applied(3)
    assert (widgets(house), house.told()) == (["one", "two"], [])


async def test_objects_of_kinds_that_are_not_served_wait_for_these(house: House) -> None:
    await house.start("a.yaml", as_text(widget("one"), widget("bad", color="green")))
    assert house.told() == ["a.yaml:1: kind: skipped: example.com/v1 Widget is not served"]
    house.api.create(DEFINITION, definition())  # by a client
    await house.settle()
    assert widgets(house) == ["one"]
    assert house.told() == ['a.yaml:3: spec.color: Unsupported value: "green": supported values: "red", "blue"']


async def test_a_definition_that_leaves_its_file_takes_its_objects(house: House) -> None:
    house.write("a.yaml", as_text(widget("one")))
    await house.start("z.yaml", as_text(definition()))
    (house.folder / "z.yaml").unlink()
    await house.settle()
    assert house.api.items(DEFINITION) == []
    house.write("z.yaml", as_text(definition()))
    await house.settle()
    await house.settle()
    assert widgets(house) == ["one"]
