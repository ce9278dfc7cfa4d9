"""The OpenAPI of a Kubernetes release, as the package kubernetes-validate ships it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

GVK = "x-kubernetes-group-version-kind"
_REF = "#/$defs/"


def definitions(version: str) -> Mapping[str, Json]:
    """The definitions of a release such as 1.36.0, by name.

    PackageNotFoundError without the package; FileNotFoundError if its version does not ship the release.
    """
    file = f"kubernetes_validate/kubernetes-json-schema/v{version}-local/_definitions.json"
    text = Path(str(distribution("kubernetes-validate").locate_file(file))).read_text("utf-8")
    found: dict[str, Json] = json.loads(text)["$defs"]
    return found


def json_type(schema: Json) -> str:
    """The JSON type of a schema, or "" if it has none; kubernetes-validate adds null to what may be absent."""
    known = schema.get("type", "")
    return str(next(each for each in known if each != "null") if isinstance(known, list) else known)


def reference(schema: Json) -> str:
    """The name of the definition that a schema refers to, or ""."""
    return str(schema.get("$ref", "")).removeprefix(_REF)


def type_of(release: Mapping[str, Json], api_version: str, kind: str) -> str:
    """The definition of a kind's objects. LookupError if the release does not have exactly one."""
    group, _, version = api_version.rpartition("/")
    identity = {"group": group, "kind": kind, "version": version}
    found = [name for name, each in release.items() if identity in each.get(GVK, ()) and name.endswith(f".{kind}")]
    if len(found) != 1:
        raise LookupError(f"the release has {len(found)} definitions of {kind} in {api_version}, not one")
    return found[0]


def reachable(release: Mapping[str, Json], roots: Iterable[str]) -> list[str]:
    """The definitions that have fields among the roots and all they refer to, sorted."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in found and "properties" in release[name]:
            found.add(name)
            waiting += _references(release[name]["properties"])
    return sorted(found)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):  # JSONSchemaProps has a field of this name
            yield reference(value)
        for each in value.values():
            yield from _references(each)
