"""Manifests of kinds that other manifests, or clients, define."""

import json
from pathlib import Path

from object_api import Api
from widgets import definition, version, widget

from kdns.controlplane.apimachinery.kinds import DEFINITION, Json
from kdns.controlplane.manifests.io.follower import Applied, ManifestFollower
from kdns.errors import ManifestError

OLD = {"apiVersion": "example.com/v1beta1"}


class House:
    """A folder, an API and a follower between them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.api = folder, Api()
        self.problems: list[str] = []
        self.seconds = 1_700_000_000
        self.follower = ManifestFollower(self.api.registry, [folder], report=self.report)

    def report(self, problem: ManifestError) -> None:
        self.problems.append(str(problem).replace(f"{self.folder}/", ""))

    def write(self, name: str, *objects: Json) -> None:
        (self.folder / name).write_text("\n---\n".join(map(json.dumps, objects)))

    async def scanned(self) -> Applied:
        await self.follower.scan()
        return await self.follower.scan()

    @property
    def widgets(self) -> list[str]:
        return names_of(self.api)


def names_of(api: Api) -> list[str]:
    kind = api.kinds.by_type("example.com/v1", "Widget")
    return api.names(kind.stored_kind) if kind else []


async def test_objects_are_applied_after_the_definition_of_another_file(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.write("a.yaml", widget("one"), {**widget("two"), **OLD})
    house.write("z.yaml", definition(version("v1beta1", storage=False), version()))
    assert await house.follower.start() == Applied(3)
    assert (house.widgets, house.problems) == (["one", "two"], [])


async def test_objects_of_kinds_that_are_not_served_wait_for_these(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.write("a.yaml", widget("one"), widget("bad", color="green"))
    await house.follower.start()
    assert house.problems == ["a.yaml:1: kind: skipped: example.com/v1 Widget is not served"]
    house.api.create(DEFINITION, definition())  # by a client
    await house.scanned()
    assert house.widgets == ["one"]
    assert house.problems[1:] == ['a.yaml:3: spec.color: Unsupported value: "green": supported values: "red", "blue"']


async def test_a_definition_that_leaves_its_file_takes_its_objects(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.write("a.yaml", widget("one"))
    house.write("z.yaml", definition())
    await house.follower.start()
    (tmp_path / "z.yaml").unlink()
    await house.scanned()
    assert house.api.items(DEFINITION) == []
    house.write("z.yaml", definition())
    await house.scanned()
    await house.scanned()
    assert house.widgets == ["one"]
