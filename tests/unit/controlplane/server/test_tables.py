"""Server-side printing compared with golden rows, and ages."""

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from served_kinds import CATALOGUE, KINDS, SERVED, table
from yaml_file import yaml_file

from kdns.controlplane.apimachinery.human_duration import human_duration, since
from kdns.controlplane.apimachinery.kinds import NAMESPACE, POD, SERVICE, Json
from kdns.controlplane.kinds.columns import printer_of
from kdns.controlplane.kinds.conversion import SCALE
from kdns.controlplane.server.representation import IncludeObject, Renderer, Representation
from kdns.controlplane.storage.listing import ListResult
from kdns.controlplane.storage.store import WatchEvent, stored_object_of

NOW_S = datetime.fromisoformat("2024-05-01T12:00:00Z").timestamp()
GOLDEN: list[dict[str, Any]] = yaml_file(Path(__file__).parents[3] / "golden" / "tables.yaml")
BY_KIND = {kind.kind: kind for kind in KINDS}
ROWS = [(group, row) for group in GOLDEN for row in group["rows"]]


@pytest.mark.parametrize(
    ("group", "row"), ROWS, ids=[f"{group['kind']}-{row['object']['metadata']['name']}" for group, row in ROWS]
)
def test_row_is_the_golden_one(group: dict[str, Any], row: dict[str, Any]) -> None:
    printed = table(BY_KIND[group["kind"]], [row["object"]])["rows"][0]
    assert " | ".join(map(str, printed["cells"])) == row["cells"]
    assert [condition["reason"] for condition in printed.get("conditions", [])] == (
        [row["completed"]] if "completed" in row else []
    )


@pytest.mark.parametrize("group", GOLDEN, ids=lambda group: str(group["kind"]))
def test_columns_are_the_golden_ones(group: dict[str, Any]) -> None:
    columns = table(BY_KIND[group["kind"]], [])["columnDefinitions"]
    assert " | ".join(column["name"] + "*" * column["priority"] for column in columns) == group["columns"]
    assert all(column["description"] for column in columns)
    assert [column["name"] for column in columns if column["format"] == "name"] == ["Name"]


def test_every_kind_that_acts_has_golden_rows() -> None:
    acting = {kind.kind for kind in KINDS if not kind.is_inert} - {"CustomResourceDefinition"}
    assert acting <= {group["kind"] for group in GOLDEN}


def test_every_row_has_a_cell_for_every_column_even_of_an_empty_object() -> None:
    for kind in SERVED:
        printed = table(kind, [{}, {"metadata": {"name": "x"}}])
        assert [len(row["cells"]) for row in printed["rows"]] == [len(printed["columnDefinitions"])] * 2


def test_columns_that_are_paths() -> None:
    printer = printer_of(("Value=value", "Age", "Default=spec.isDefault", "Modes=spec.modes"))
    assert [column.name for column in printer.columns] == ["Name", "Value", "Age", "Default", "Modes"]
    meta = {"name": "x", "creationTimestamp": "2024-05-01T11:00:00Z"}
    full = {"metadata": meta, "value": 3, "spec": {"isDefault": True, "modes": ["a", "b"]}}
    assert printer.cells(full, NOW_S) == ["x", "3", "60m", "true", "a,b"]
    assert printer.cells({"metadata": meta, "spec": None}, NOW_S) == ["x", "", "60m", "", ""]


def test_a_column_of_several_paths_and_one_of_wide_output() -> None:
    printer = printer_of(("Ready=status.ready|0/spec.size", "Hosts*=spec.rules.host|*"))
    assert [(column.name, column.priority) for column in printer.columns[1:]] == [("Ready", 0), ("Hosts", 1)]
    rules = [{"host": "a"}, {}, {"host": "b"}]
    assert printer.cells({"spec": {"size": 3, "rules": rules}}, NOW_S) == ["", "0/3", "a,b"]
    assert printer.cells({"status": {"ready": 2}}, NOW_S) == ["", "2/", "*"]


def test_a_kind_without_columns_shows_its_name_and_creation() -> None:
    printer = printer_of(())
    assert [column.name for column in printer.columns] == ["Name", "Created At"]
    obj = {"metadata": {"name": "x", "creationTimestamp": "2024-01-01T00:00:00Z"}}
    assert printer.cells(obj, NOW_S) == ["x", "2024-01-01T00:00:00Z"]


@pytest.mark.parametrize(
    ("include", "carried"),
    [
        ("None", None),
        (
            "Metadata",
            {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a", "uid": "u"}},
        ),
        (
            "Object",
            {
                "kind": "Service",
                "apiVersion": "v1",
                "metadata": {"name": "a", "uid": "u"},
                "spec": {},
                "status": {"loadBalancer": {}},
            },
        ),
    ],
)
def test_rows_carry_what_was_asked_for(include: IncludeObject, carried: object) -> None:
    service = {"kind": "Service", "metadata": {"name": "a", "uid": "u"}, "spec": {}}
    printed = table(SERVICE, [service], include)
    assert printed["rows"][0].get("object") == carried


def test_a_table_is_a_meta_v1_table_with_the_lists_metadata() -> None:
    printed = table(NAMESPACE, [], metadata={"resourceVersion": "7"})
    assert (printed["kind"], printed["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert printed["metadata"] == {"resourceVersion": "7"}
    assert printed["rows"] == []


def test_printing_leaves_the_object_alone() -> None:
    for group, row in ROWS:
        before = yaml.safe_dump(row["object"])
        table(BY_KIND[group["kind"]], [row["object"]], "Object")
        assert yaml.safe_dump(row["object"]) == before


MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1.9, "0s"),
        (-1, "0s"),
        (0, "0s"),
        (1.9, "1s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (2 * MINUTE + 30, "2m30s"),
        (10 * MINUTE - 1, "9m59s"),
        (10 * MINUTE + 30, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 20 * MINUTE, "3h20m"),
        (8 * HOUR + 20 * MINUTE, "8h"),
        (2 * DAY - 1, "47h"),
        (2 * DAY, "2d"),
        (5 * DAY + 2 * HOUR, "5d2h"),
        (8 * DAY + 2 * HOUR, "8d"),
        (2 * 365 * DAY - 1, "729d"),
        (2 * 365 * DAY, "2y"),
        (2 * 365 * DAY + 10 * DAY, "2y10d"),
        (8 * 365 * DAY + 10 * DAY, "8y"),
    ],
)
def test_durations_have_two_or_three_figures(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [(None, "<unknown>"), ("", "<unknown>"), ("soon", "<unknown>"), ("2024-05-01T13:00:00+02:00", "60m")],
)
def test_age_of_a_timestamp(timestamp: str | None, text: str) -> None:
    assert since(timestamp, NOW_S) == text


def test_a_pod_known_by_podip_alone_shows_it() -> None:
    pod = {"metadata": {"name": "a"}, "status": {"podIP": "10.1.0.9"}}
    assert table(POD, [pod])["rows"][0]["cells"][5] == "10.1.0.9"


def test_a_scale_is_a_table_too() -> None:
    scale = {"metadata": {"name": "web"}, "spec": {"replicas": 3}, "status": {"replicas": 2}}
    printed = table(SCALE, [scale])
    assert [column["name"] for column in printed["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    assert printed["rows"][0]["cells"][:3] == ["web", 3, 2]


def test_items_of_a_json_list_have_no_type() -> None:
    obj: Json = {"apiVersion": "v1", "metadata": {"name": "a"}, "kind": "Service", "spec": {}}
    version = stored_object_of(SERVICE, ("", "a"), obj, 7)
    item = {"metadata": {"name": "a", "resourceVersion": "7"}, "spec": {}, "status": {"loadBalancer": {}}}
    renderer = Renderer(CATALOGUE, SERVICE, Representation())
    body = msgspec.json.decode(renderer.list_body(ListResult((version, version), "9"), 0.0))
    assert body == {
        "kind": "ServiceList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "9"},
        "items": [item] * 2,
    }
    older = type(version)(SERVICE, ("", "a"), 7, msgspec.json.encode(obj | {"metadata": item["metadata"]}))
    body = msgspec.json.decode(renderer.list_body(ListResult((older,), "9"), 0.0))
    assert body["items"] == [item]
    assert msgspec.json.decode(renderer.list_body(ListResult((), "9"), 0.0))["items"] == []
    assert msgspec.json.decode(WatchEvent("ADDED", version).line)["object"]["kind"] == "Service"
