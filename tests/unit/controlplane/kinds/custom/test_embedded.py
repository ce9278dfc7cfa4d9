"""Objects in custom resources: each row is one, and what is wrong with its type and metadata."""

from __future__ import annotations

from typing import Any

import pytest

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.apimachinery.structural import parsed
from kdns.controlplane.kinds.custom.embedded import embedded_causes
from kdns.controlplane.schema.custom.validation import Validator

EMBEDDED: Json = {
    "type": "object",
    "x-kubernetes-embedded-resource": True,
    "x-kubernetes-preserve-unknown-fields": True,
}
SCHEMA = parsed({"type": "object", "properties": {"list": {"type": "array", "items": EMBEDDED}}})
POD: Json = {"apiVersion": "v1", "kind": "Pod"}


@pytest.mark.parametrize(
    ("obj", "fields"),
    [
        (POD, []),
        ({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "labels": {"a": "b"}}}, []),
        (POD | {"metadata": None}, []),
        (POD | {"apiVersion": "a/b/c"}, ["apiVersion"]),
        (POD | {"apiVersion": 5}, ["apiVersion"]),
        (POD | {"kind": 5}, ["kind"]),
        (POD | {"kind": "a b"}, ["kind"]),
        (POD | {"metadata": 5}, ["metadata"]),
        (POD | {"metadata": {"name": 5, "labels": {"a": 5}}}, ["metadata.name", "metadata.labels[a]"]),
        (POD | {"metadata": {"annotations": []}}, ["metadata.annotations"]),
        (POD | {"metadata": {"labels": {"a b": "c"}}}, ["metadata.labels"]),
        (POD | {"metadata": {"name": "a/b"}}, ["metadata.name"]),
        (POD | {"metadata": {"namespace": "A"}}, ["metadata.namespace"]),
    ],
)
def test_embedded_resources(obj: Any, fields: list[str]) -> None:
    found = Validator(SCHEMA, embedded_causes).causes({"list": [obj]})
    assert [cause.field for cause in found] == [f"list[0].{each}" for each in fields]
