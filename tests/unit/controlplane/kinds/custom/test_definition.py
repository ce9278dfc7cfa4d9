"""CustomResourceDefinitions: each row is a definition, and the fields and texts of what is wrong."""

# ruff: noqa: E501 - rows of tables
from typing import Any

import pytest
from widgets import COLUMNS, definition, version

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.custom.definition import default_definition, validate_definition


def causes(obj: Json, old: Json | None = None) -> list[str]:
    before = default_definition(old) if old else None
    return [f"{cause.field}: {cause.message}" for cause in validate_definition(default_definition(obj), before)]


def column(**changes: Any) -> Json:
    return definition(version(additionalPrinterColumns=[COLUMNS[0] | changes]))


def scaled(**changes: str) -> Json:
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"} | changes
    return definition(version(subresources={"scale": paths}))


def selectable(*paths: str) -> Json:
    return definition(version(selectableFields=[{"jsonPath": path} for path in paths]))


V = "spec.versions[0]"
ROWS: list[tuple[Json, list[str]]] = [
    (definition(), []),
    (definition(group="example"), ['spec.group: Invalid value: "example": should be a domain with at least one dot']),
    (definition(scope=""), ["spec.scope: Required value"]),
    (definition(scope="Galaxy"), ['spec.scope: Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced"']),
    (definition(conversion={"strategy": "Webhook"}), ['spec.conversion.strategy: Unsupported value: "Webhook": supported values: "None"']),
    (definition(names={"kind": ""}), ["spec.names.singular: Required value", "spec.names.kind: Required value", "spec.names.listKind: Required value"]),
    (definition(names={"listKind": "Widget"}), ['spec.names.listKind: Invalid value: "Widget": kind and listKind may not be the same']),
    (definition(version(storage=False)), ['spec.versions: Invalid value: ["v1"]: must have exactly one version marked as storage version']),
    (definition(version(), version("v2")), ['spec.versions: Invalid value: ["v1","v2"]: must have exactly one version marked as storage version']),
    (definition(version(), version(storage=False)), ['spec.versions: Invalid value: ["v1","v1"]: must contain unique version names']),
    (definition(version(schema={}, selectableFields=[])), [f"{V}.schema.openAPIV3Schema: Required value: schemas are required"]),
    (definition(version(schema={"type": "object", "properties": {"a": {}}}, selectableFields=[])), ["spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields"]),
    (definition(version(), version("v2", storage=False, schema={"type": "string"}, selectableFields=[])), ['spec.versions[1].schema.openAPIV3Schema.type: Invalid value: "string": must be object at the root']),
    (column(type="text"), [f'{V}.additionalPrinterColumns[0].type: Invalid value: "text": must be one of boolean,date,integer,number,string']),
    (column(jsonPath="spec"), [f'{V}.additionalPrinterColumns[0].jsonPath: Invalid value: "spec": must be a simple json path starting with .']),
    (column(jsonPath=".spec..[?("), []),
    (scaled(statusReplicasPath=".status.a[0]"), [f'{V}.subresources.scale.statusReplicasPath: Invalid value: ".status.a[0]": should be a simple json path']),
    (selectable(".spec.replicas", ".spec.name"), []),
    (selectable(".spec.none", ".metadata.name"), [f'{V}.selectableFields[{n}].jsonPath: Invalid value: "{path}": is an invalid path: does not refer to a valid field' for n, path in enumerate((".spec.none", ".metadata.name"))]),
    (selectable(".spec"), [f'{V}.selectableFields[0].jsonPath: Invalid value: ".spec": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.']),
    (selectable(*[".spec.name"] * 2), [f'{V}.selectableFields[1].jsonPath: Duplicate value: ".spec.name"']),
    (selectable(*(f".spec.labels.l{n}" for n in range(9))), [f"{V}.selectableFields: Too many: 9: must have at most 8 items"]),
    (selectable(".spec.rules[0]"), [f'{V}.selectableFields[0].jsonPath: Invalid value: ".spec.rules[0]": is an invalid path: must be a simple json path']),
]  # fmt: skip


@pytest.mark.parametrize(("obj", "expected"), ROWS)
def test_definitions(obj: Json, expected: list[str]) -> None:
    assert causes(obj) == expected


def test_the_name_is_that_of_the_resource() -> None:
    obj = {**definition(), "metadata": {"name": "gadgets.example.com"}}
    assert causes(obj) == [
        'metadata.name: Invalid value: "gadgets.example.com": must be spec.names.plural+"."+spec.group'
    ]


def test_updates_do_not_change_kind_scope_or_stored_versions() -> None:
    status = {"storedVersions": ["v0", "v1"], "conditions": [{"type": "Established", "status": "True"}]}
    old = {**definition(), "status": status}
    assert causes(definition(names={"plural": "gadgets"}), definition())[-1] == (
        'spec.names.plural: Invalid value: "gadgets": field is immutable'
    )
    found = causes(definition(names={"kind": "Gadget"}, scope="Cluster"), old)
    assert found == [
        'spec.scope: Invalid value: "Cluster": field is immutable',
        'spec.names.kind: Invalid value: "Gadget": field is immutable',
        'status.storedVersions[0]: Invalid value: "v0": must appear in spec.versions',
    ]


def test_names_follow_from_the_kind() -> None:
    names = default_definition(definition())["spec"]["names"]
    assert (names["singular"], names["listKind"]) == ("widget", "WidgetList")
