"""The OpenAPI documents: well-formed, complete, and with what kubectl reads from them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from served_kinds import CATALOGUE, DOCUMENTS, REVIEWS, SERVED

from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.schema.types import types
from kdns.controlplane.server.discovery import verbs_of
from kdns.controlplane.server.openapi.paths import operations, root
from kdns.controlplane.server.openapi.types import type_name_of

GVK = "x-kubernetes-group-version-kind"
KEYS = sorted({root(kind) for kind in (*SERVED, *REVIEWS)})
METHODS = {"get", "put", "post", "delete", "patch"}


def _words(node: Any, word: str) -> Iterator[Any]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == word and isinstance(value, str):
                yield value
            yield from _words(value, word)
    elif isinstance(node, list):
        for value in node:
            yield from _words(value, word)


def _documents() -> list[tuple[Json, Json]]:
    """Each document, and its schemas."""
    documents = [DOCUMENTS.v3(key) for key in KEYS]
    return [(document, document["components"]["schemas"]) for document in documents]


def _operations(document: Json) -> list[tuple[str, str, Json]]:
    return [(path, method, each) for path, item in document["paths"].items() for method, each in item.items()]


@pytest.mark.parametrize("index", range(3))
def test_every_reference_is_defined_and_every_schema_used_or_a_kind(index: int) -> None:
    document, schemas = _documents()[index]
    referred = {each.removeprefix("#/components/schemas/") for each in _words(document, "$ref")}
    assert referred - set(schemas) == set()
    assert {name for name in set(schemas) - referred if GVK not in schemas[name]} == set()


@pytest.mark.parametrize("index", range(1, 3))
def test_operations_are_well_formed(index: int) -> None:
    document = _documents()[index][0]
    found = _operations(document)
    for path, method, each in found:
        assert method in METHODS
        in_path = [parameter["name"] for parameter in each["parameters"] if parameter["in"] == "path"]
        assert sorted(in_path) == sorted(part[1:-1] for part in path.split("/") if part.startswith("{"))
        names = [(parameter["in"], parameter["name"]) for parameter in each["parameters"]]
        assert len(set(names)) == len(names), (path, method)
        assert ("201" if method == "post" else "200") in each["responses"]


@pytest.mark.parametrize("index", range(3))
def test_schemas_are_well_formed(index: int) -> None:
    for name, schema in _documents()[index][1].items():
        assert schema["description"], name
        assert set(schema.get("required", [])) <= set(schema.get("properties", {})), name
        for field, each in schema.get("properties", {}).items():
            assert each["description"], (name, field)
            assert ("type" in each) + ("$ref" in each) + ("allOf" in each) == 1, (name, field)
            assert ("items" in each) == (each.get("type") == "array"), (name, field)


@pytest.mark.parametrize("kind", SERVED, ids=lambda kind: str(kind.kind))
def test_every_kind_is_described_completely(kind: Kind) -> None:
    document = DOCUMENTS.v3(root(kind))
    identity = {"group": kind.group, "kind": kind.kind, "version": kind.version}
    schemas = document["components"]["schemas"]
    assert schemas[type_name_of(kind)][GVK] == [identity]
    assert schemas[type_name_of(kind) + "List"][GVK] == [identity | {"kind": kind.list_kind}]
    assert set(schemas[type_name_of(kind)]["properties"]) == set(types()[type_name_of(kind)].fields)
    actions = {each["x-kubernetes-action"] for _, _, each in _operations(document) if each[GVK] == identity}
    of_collection = {"deletecollection"} & set(verbs_of(CATALOGUE, kind))
    assert actions == {"list", "post", "get", "put", "patch", "delete"} | of_collection


@pytest.mark.parametrize("kind", SERVED, ids=lambda kind: str(kind.kind))
def test_kubectl_finds_the_parameters_and_patch_types_it_asks_for(kind: Kind) -> None:
    """kubectl reads any PATCH of the kind: each needs dryRun and fieldValidation, or kubectl validates itself."""
    operations_found = _operations(DOCUMENTS.v3(root(kind)))
    patches = [each for _, method, each in operations_found if method == "patch" and each[GVK]["kind"] == kind.kind]
    assert patches
    for each in patches:
        assert {"dryRun", "fieldValidation", "force"} <= {
            one["name"] for one in each["parameters"] if one["in"] == "query"
        }
        media_types = each["requestBody"]["content"]
        assert {"application/strategic-merge-patch+json", "application/apply-patch+yaml"} <= set(media_types)


def test_kubectl_explain_finds_the_kind_by_its_path() -> None:
    for kind in SERVED:
        paths = DOCUMENTS.v3(root(kind))["paths"]
        namespaced = f"/{root(kind)}/namespaces/{{namespace}}/{kind.plural}"
        assert (namespaced in paths) == kind.namespaced
        assert paths[f"/{root(kind)}/{kind.plural}"]["get"][GVK]["kind"] == kind.kind


def test_subresources_have_paths() -> None:
    paths = {operation.path for kind in SERVED for operation in operations(CATALOGUE, kind)}
    assert "/api/v1/namespaces/{namespace}/services/{name}/status" in paths
    assert "/api/v1/namespaces/{name}/finalize" in paths
    assert "delete" not in DOCUMENTS.v3("api/v1")["paths"]["/api/v1/namespaces"]
    assert "/api/v1/namespaces/{namespace}/endpoints/{name}/status" not in paths


SERVICE_PORTS = {
    "description": "Ports that the Service listens on. Each needs a name if there is more than one. "
    "May be empty for a headless Service.",
    "type": "array",
    "x-kubernetes-list-map-keys": ["port", "protocol"],
    "x-kubernetes-list-type": "map",
    "x-kubernetes-patch-merge-key": "port",
    "x-kubernetes-patch-strategy": "merge",
}


def test_references_stand_alone() -> None:
    schemas = DOCUMENTS.v3("api/v1")["components"]["schemas"]
    spec, port = schemas["io.k8s.api.core.v1.ServiceSpec"], "io.k8s.api.core.v1.ServicePort"
    assert spec["properties"]["ports"] == SERVICE_PORTS | {"items": {"$ref": f"#/components/schemas/{port}"}}
    target = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
    assert schemas[port]["properties"]["targetPort"]["allOf"] == [{"$ref": f"#/components/schemas/{target}"}]
    assert schemas[target]["oneOf"] == [{"type": "integer"}, {"type": "string"}]


def test_map_types_enums_and_defaults() -> None:
    schemas = DOCUMENTS.v3("api/v1")["components"]["schemas"]
    selector = schemas["io.k8s.api.core.v1.ServiceSpec"]["properties"]["selector"]
    assert selector["additionalProperties"] == {"type": "string"}
    assert selector["x-kubernetes-map-type"] == "atomic"
    protocol = schemas["io.k8s.api.core.v1.ServicePort"]["properties"]["protocol"]
    assert (protocol["enum"], protocol["default"]) == (["SCTP", "TCP", "UDP"], "TCP")
    assert schemas["io.k8s.api.core.v1.EndpointAddress"]["x-kubernetes-map-type"] == "atomic"


def test_index_names_each_document_with_its_hash() -> None:
    assert DOCUMENTS.v3_index() == {
        "paths": {key: {"serverRelativeURL": f"/openapi/v3/{key}?hash={DOCUMENTS.v3_hash(key)}"} for key in KEYS}
    }
    with pytest.raises(KeyError):
        DOCUMENTS.v3("apis/apps/v0")


def test_hashes_are_the_same_in_another_process() -> None:
    program = (
        "from kdns.controlplane.kinds.catalogue import built_in\n"
        "from kdns.controlplane.server.openapi.documents import Documents\n"
        f"print(*map(Documents(built_in()).v3_hash, {KEYS!r}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=90)
    assert done.stdout.split() == [DOCUMENTS.v3_hash(key) for key in KEYS]
