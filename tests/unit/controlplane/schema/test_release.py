"""The committed data are what tools/schema makes of the release's OpenAPI, and one release is named everywhere."""

import json
import re
from collections.abc import Mapping
from importlib import resources
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from served_kinds import DOCUMENTS, SERVED

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.schema.schema import KUBERNETES_VERSION
from kdns.controlplane.schema.types import types
from kdns.controlplane.server import discovery
from kdns.controlplane.server.openapi import GVK, type_name_of
from kdns.runtime.http import zpages
from tools.schema import generate, go, release

MINOR = KUBERNETES_VERSION.rpartition(".")[0]


@pytest.fixture(scope="module")
def definitions() -> Mapping[str, Json]:
    try:
        distribution("kubernetes-validate")
    except PackageNotFoundError:
        pytest.skip("the development dependency kubernetes-validate is not installed")
    return release.definitions(KUBERNETES_VERSION)


def _committed() -> dict[str, str]:
    directory = resources.files("kdns.controlplane.schema") / "release"
    return {file.name: file.read_text("utf-8") for file in directory.iterdir()}


def test_the_data_are_what_the_generator_makes(definitions: Mapping[str, Json]) -> None:
    assert definitions
    assert generate.files() == _committed()


def test_the_go_facts_are_of_fields_that_exist(definitions: Mapping[str, Json]) -> None:
    """Every field but apiVersion and kind has its facts; structs that are only inlined are not OpenAPI types."""
    known = go.go_types()
    for name, described in types().items():
        assert set(described.fields) - set(known[name]) <= {"apiVersion", "kind"}, name
        assert set(known[name]) <= set(definitions[name]["properties"]), name
    fields = {(go.short_name(name), field) for name, each in known.items() for field in each}
    markers = [tuple(line.split(" ")[:2]) for line in go.lines("markers.txt")]
    assert set(markers) <= fields
    assert len(set(markers)) == len(markers)


def test_one_release_is_named_everywhere() -> None:
    assert {text.partition(". ")[0] for text in _committed().values()} == {f"# Kubernetes {KUBERNETES_VERSION}"}
    directory = resources.files("tools.schema")
    tables = {(directory / name).read_text("utf-8").partition(". ")[0] for name in ("go.txt", "markers.txt")}
    assert tables == {f"# Kubernetes {KUBERNETES_VERSION}"}
    version = discovery.version("1", ("linux", "arm64"))
    assert version["gitVersion"].partition("+")[0] == f"v{KUBERNETES_VERSION}"
    assert f"{version['major']}.{version['minor']}" == MINOR == zpages.EMULATED
    keys = [key.removeprefix("/openapi/v3/") for key in DOCUMENTS.index()["paths"]]
    assert {DOCUMENTS[key].content["info"]["version"] for key in keys} == {f"v{KUBERNETES_VERSION}"}
    assert f"Kubernetes {MINOR}" in (Path(__file__).parents[4] / "docs/up.md").read_text("utf-8")


def _facts(schema: Any) -> Any:
    """A schema without descriptions, defaults and enums, and without null, which kubernetes-validate adds to types."""
    if isinstance(schema, list):
        return [_facts(each) for each in schema]
    if not isinstance(schema, dict):
        return schema.replace("#/$defs/", "#/components/schemas/") if isinstance(schema, str) else schema
    referred: list[Json] = schema.get("allOf") or []
    if len(referred) == 1:
        schema = {word: each for word, each in schema.items() if word != "allOf"} | referred[0]
    facts = {
        word: _facts(each)
        for word, each in schema.items()
        if not (word == "description" and isinstance(each, str)) and word not in {"default", "enum"}
    }
    if isinstance(facts.get("type"), list):
        facts["type"] = next(each for each in facts["type"] if each != "null")
    return facts


def _definition_facts(schema: Json) -> Json:
    """The same for a definition, whose properties may be called `enum` or `default`."""
    facts: Json = _facts({word: each for word, each in schema.items() if word != "properties"})
    facts["required"] = sorted(facts.get("required", ()))
    if "properties" in schema:
        facts["properties"] = {name: _facts(each) for name, each in schema["properties"].items()}
    return facts


SCALARS = {"io.k8s.apimachinery.pkg.api.resource.Quantity", "io.k8s.apimachinery.pkg.util.intstr.IntOrString"}
"""Definitions of values of two types, which kubernetes-validate writes in another way."""


def _any_json(schema: Json) -> Json:
    """The schema with one definition for values of any type, of which CustomResourceDefinitions have several."""
    text = re.sub(
        r"io.k8s.apiextensions[^\"]*v1.(JSON|JSONSchemaPropsOr\w+|CustomResourceSubresourceStatus)\"",
        f'{ANY}"',
        json.dumps(schema),
    )
    found: Json = json.loads(text)
    return found


ANY = "io.k8s.apimachinery.pkg.runtime.RawExtension"


def test_served_definitions_are_those_of_the_release(definitions: Mapping[str, Json]) -> None:
    """Properties, types, formats, required fields and every x-kubernetes extension, of lists too."""
    served: dict[str, Json] = {}
    for key in DOCUMENTS.index()["paths"]:
        for name, schema in DOCUMENTS[key].content["components"]["schemas"].items():
            if name not in served or GVK in schema:
                served[name] = schema
    assert {type_name_of(kind) for kind in SERVED} <= set(served)
    for name in set(served) - SCALARS:
        ours, theirs = _definition_facts(served[name]), _definition_facts(_any_json(definitions[name]))
        assert ours == theirs, name
