"""kubectl drives every kind of Service, and the API has what Kubernetes' documentation promises about it.

The promises stand in service_promises.yaml, page by page, each with the steps that show it. They share one `kdns up`
and have a namespace each. Objects are read, created and applied without kubectl, which takes a hundred times as long.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from expecting import until_as
from kdns_process import Running, kdns_up
from yaml_file import yaml_file

PROMISES = yaml_file(Path(__file__).with_name("service_promises.yaml"))
NAMES = [f"{row['page'].rpartition('/')[2]}: {row['says']}" for row in PROMISES]
NAMESPACES = [f"promise-{number}" for number in range(len(PROMISES))]
GROUPS = {"endpointslices": "apis/discovery.k8s.io/v1"}
"""Plural → where its group is served; all others are of the core group."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A dual-stack `kdns up` with addresses for load balancers."""
    ranges = ("--service-cidr", "10.96.0.0/16,fd00:10:96::/112", "--pod-cidr", "10.244.0.0/16,fd00:10:244::/64")
    with kdns_up(tmp_path_factory.mktemp("services"), *ranges, "--lb-pool", "192.0.2.0/24,2001:db8:1::/112") as running:
        namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES]
        running.kubectl(
            "create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": namespaces})
        )
        yield running


def manifest(row: dict[str, Any]) -> dict[str, Any]:
    """The object that a short row stands for; whole objects stay as they are."""
    if "name" not in row:
        return row
    meta = {key: row[key] for key in ("name", "labels", "annotations") if key in row}
    spec = dict(row.get("spec") or {})
    if row["kind"] == "Pod":
        spec["containers"] = [{"name": "c", "image": "i", "ports": row.get("ports") or []}]
    return {"apiVersion": "v1", "kind": row["kind"], "metadata": meta, "spec": spec}


class Steps:
    """What a promise's steps do, one method for each kind of step."""

    def __init__(self, cluster: Running, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    def run(self, step: dict[str, Any]) -> None:
        """Do one step: the key names the method."""
        ((verb, argument),) = step.items()
        verbs: dict[str, Callable[[Any], object]] = {
            "apply": self.apply,
            "refused": self.refused,
            "kubectl": self.kubectl,
            "fails": self.fails,
            "get": self.get,
            "list": self.items,
            "shows": self.shows,
            "dns": self.dns,
        }
        verbs[verb](argument)

    def apply(self, rows: list[dict[str, Any]]) -> None:
        """The objects are taken."""
        for obj in map(manifest, rows):
            path = f"{self._path(obj)}/{obj['metadata']['name']}?fieldManager=kubectl&force=true"
            answer = self.cluster.send("PATCH", path, obj, "application/apply-patch+yaml")
            assert answer["kind"] == obj["kind"], answer

    def refused(self, rows: list[Any]) -> None:
        """The first object is refused, and the Status says all the parts behind it."""
        row, *parts = rows
        obj = manifest(row)
        self._says(parts, self.cluster.send("POST", self._path(obj), obj).get("message", ""))

    def kubectl(self, command: str) -> str:
        """The output of a command that works."""
        return self._run(command)

    def fails(self, rows: list[str]) -> None:
        """The command fails, and says all the parts behind it."""
        command, *parts = rows
        self._says(parts, self._run(command, check=False))

    def get(self, wanted: dict[str, Any]) -> None:
        """Each object becomes what is wanted."""
        for path, value in wanted.items():
            until_as(value, partial(self._read, path), path)

    def items(self, wanted: dict[str, Any]) -> None:
        """The items of each list become what is wanted."""
        for path, rows in wanted.items():
            until_as(rows, partial(self._items, path), path)

    def shows(self, wanted: dict[str, list[str]]) -> None:
        """Each command says all its parts."""
        for command, parts in wanted.items():
            self._says(parts, self.kubectl(command))

    def dns(self, wanted: dict[str, list[str]]) -> None:
        """Each question comes to be answered so."""
        for question, rdata in wanted.items():
            name, qtype = question.split()
            full = name if name.endswith(".") else f"{name}.{self.namespace}.svc.cluster.local."
            until_as(rdata, partial(self.cluster.rdata, full, qtype), full)

    def _run(self, command: str, *, check: bool = True) -> str:
        return self.cluster.kubectl("-n", self.namespace, *command.split(" "), check=check)

    def _path(self, obj: dict[str, Any]) -> str:
        group, plural = obj["apiVersion"], obj["kind"].lower().removesuffix("s") + "s"
        root = f"/{'apis' if '/' in group else 'api'}/{group}"
        return f"{root}/{plural}" if obj["kind"] == "Node" else f"{root}/namespaces/{self.namespace}/{plural}"

    def _read(self, path: str) -> Any:
        plural = path.partition("/")[0].partition("?")[0]
        return self.cluster.read(f"/{GROUPS.get(plural, 'api/v1')}/namespaces/{self.namespace}/{path}")

    def _items(self, path: str) -> list[Any]:
        return sorted(self._read(path)["items"], key=lambda item: str(item.get("addressType")))

    def _says(self, parts: list[str], out: str) -> None:
        missing = [part for part in parts if part not in out]
        assert not missing, f"wanted {missing} in\n{out}"


@pytest.mark.parametrize("number", range(len(PROMISES)), ids=NAMES)
def test_the_documentation_holds(cluster: Running, number: int) -> None:
    steps = Steps(cluster, NAMESPACES[number])
    for step in json.loads(json.dumps(PROMISES[number]["steps"]).replace("NS", NAMESPACES[number])):
        steps.run(step)
