"""The OpenAPI documents: well-formed, complete, and with what kubectl reads from them."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from served_kinds import DOCUMENTS, REVIEWS, SERVED

from kdns.controlplane.apimachinery.kinds import Kind
from kdns.controlplane.schema.types import types
from kdns.controlplane.server.openapi import root, type_name_of

GVK = "x-kubernetes-group-version-kind"
KEYS = sorted({root(kind) for kind in (*SERVED, *REVIEWS)})
QUERY = {"dryRun", "fieldValidation", "force"}


def _words(node: Any, word: str) -> Iterator[Any]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == word and isinstance(value, str):
                yield value
            yield from _words(value, word)
    elif isinstance(node, list):
        for value in node:
            yield from _words(value, word)


@pytest.mark.parametrize("key", KEYS)
def test_documents_are_well_formed(key: str) -> None:
    document = DOCUMENTS[key].content
    schemas = document["components"]["schemas"]
    referred = {word.removeprefix("#/components/schemas/") for word in _words(document, "$ref")}
    assert referred == set(schemas)
    for name, schema in schemas.items():
        assert schema["description"], name
        assert set(schema.get("required", [])) <= set(schema.get("properties", {})), name
        for field, each in schema.get("properties", {}).items():
            assert each["description"], (name, field)
            assert ("type" in each) + ("$ref" in each) + ("allOf" in each) == 1, (name, field)
            assert ("items" in each) == (each.get("type") == "array"), (name, field)
    for path, operation in ((path, each) for path, item in document["paths"].items() for each in item.values()):
        in_path = [parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"]
        assert sorted(in_path) == sorted(part[1:-1] for part in path.split("/") if part.startswith("{"))


@pytest.mark.parametrize("kind", SERVED, ids=lambda kind: str(kind.kind))
def test_kubectl_finds_the_type_of_every_kind_its_patch_types_and_its_parameters(kind: Kind) -> None:
    """kubectl reads any PATCH of the kind: it needs dryRun and fieldValidation, or kubectl validates itself."""
    document = DOCUMENTS[root(kind)].content
    identity = {"group": kind.group, "kind": kind.kind, "version": kind.version}
    schema = document["components"]["schemas"][type_name_of(kind)]
    assert (schema[GVK], set(schema["properties"])) == ([identity], set(types()[type_name_of(kind)].fields))
    item = document["paths"][f"/{root(kind)}/{'namespaces/{namespace}/' * kind.namespaced}{kind.plural}/{{name}}"]
    assert item["get"][GVK] == item["patch"][GVK] == identity
    assert {row["name"] for row in item["patch"]["parameters"] if row["in"] == "query"} >= QUERY
    media_types = item["patch"]["requestBody"]["content"]
    assert {"application/strategic-merge-patch+json", "application/apply-patch+yaml"} <= set(media_types)


def test_enums_and_defaults() -> None:
    schemas = DOCUMENTS["api/v1"].content["components"]["schemas"]
    protocol = schemas["io.k8s.api.core.v1.ServicePort"]["properties"]["protocol"]
    assert (protocol["enum"], protocol["default"]) == (["SCTP", "TCP", "UDP"], "TCP")


def test_index_names_each_document_with_its_hash() -> None:
    assert DOCUMENTS.index() == {
        "paths": {key: {"serverRelativeURL": f"/openapi/v3/{key}?hash={DOCUMENTS[key].digest}"} for key in KEYS}
    }
    with pytest.raises(KeyError):
        _ = DOCUMENTS["apis/apps/v0"]


def test_hashes_are_the_same_in_another_process() -> None:
    program = (
        "from kdns.controlplane.kinds.served import ServedKinds\n"
        "from kdns.controlplane.server.openapi import Documents\n"
        "documents = Documents(ServedKinds())\n"
        f"print(*[documents[key].digest for key in {KEYS!r}])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=90)
    assert done.stdout.split() == [DOCUMENTS[key].digest for key in KEYS]
