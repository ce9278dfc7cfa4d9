"""Writes kdns/controlplane/schema/release/*.txt: the types of the kinds that kdns serves, from one release's OpenAPI.

    python -m tools.schema.generate

The release is that of kdns.controlplane.schema.schema.KUBERNETES_VERSION. kdns.controlplane.schema.types describes the
format of the files.
Facts only are written: names, types and extensions, no descriptions. go.txt and markers.txt supply what OpenAPI lacks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kdns.controlplane.kinds.conversion import SCALE
from kdns.controlplane.kinds.served import ServedKinds
from kdns.controlplane.schema.schema import KUBERNETES_VERSION
from kdns.controlplane.schema.types import META
from kdns.controlplane.server.discovery import BINDING, EVICTION
from tools.schema import release
from tools.schema.go import GoField, go_types, short_name
from tools.schema.release import GVK, Json

DIRECTORY = Path(__file__).parents[2] / "kdns/controlplane/schema/release"

_MACHINERY = "io.k8s.apimachinery.pkg"
_EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_NAMED = {
    f"{META}.FieldsV1": "fieldsv1",
    f"{META}.MicroTime": "microtime",
    f"{META}.Time": "time",
    f"{_MACHINERY}.api.resource.Quantity": "quantity",
    f"{_MACHINERY}.runtime.RawExtension": "rawextension",
    f"{_MACHINERY}.util.intstr.IntOrString": "intorstr",
    **dict.fromkeys(
        (f"{_EXTENSIONS}.{name}" for name in ("JSON", "CustomResourceSubresourceStatus")),
        "rawextension",
    ),
    **{f"{_EXTENSIONS}.JSONSchemaPropsOr{name}": "rawextension" for name in ("Array", "Bool", "StringArray")},
}
"""Definitions without fields → the scalar that stands for them."""
_PLAIN = {
    ("boolean", ""): "bool",
    ("integer", "int32"): "int32",
    ("integer", "int64"): "int64",
    ("string", ""): "string",
    ("string", "byte"): "bytes",
    ("number", "double"): "number",
}
"""JSON type and format → the scalar."""


_META_ROOTS = ("APIGroupList", "APIResourceList", "APIVersions", "DeleteOptions", "ListMeta", "Status")
"""The types of meta/v1 that no kind refers to."""


def files() -> dict[str, str]:
    """The text of each file by its name."""
    known = release.definitions(KUBERNETES_VERSION)
    go = go_types()
    packages: dict[str, list[str]] = {}
    for name in release.reachable(known, _roots(known)):
        packages.setdefault(name.rpartition(".")[0], []).append(name)
    return {
        f"{_stem(package)}.txt": _file(package, names, {name: known[name] for name in names}, go)
        for package, names in packages.items()
    }


def _roots(known: Mapping[str, Json]) -> list[str]:
    kinds = [(kind.api_version, kind.kind) for kind in (*ServedKinds(), SCALE, EVICTION, BINDING)]
    roots = [release.type_of(known, api_version, kind) for api_version, kind in kinds]
    return [*roots, *(f"{META}.{name}" for name in _META_ROOTS)]


def _stem(package: str) -> str:
    return ".".join(package.split(".")[-2:])


def _file(package: str, names: list[str], known: Mapping[str, Json], go: Mapping[str, Mapping[str, GoField]]) -> str:
    blocks = [_type(name, known[name], go.get(name, {})) for name in names]
    imports = sorted(
        {
            reference.rpartition(".")[0]
            for each in known.values()
            for field in each["properties"].values()
            if (reference := release.reference(_element(field))) and reference not in _NAMED
        }
        - {package}
    )
    head = [
        f"# Kubernetes {KUBERNETES_VERSION}. Made by tools/schema from its OpenAPI: do not edit.",
        f"package {package} {_api_version(names, known)}",
        *(f"import {import_}" for import_ in imports),
    ]
    return "\n".join(head) + "\n" + "".join(f"\n{block}\n" for block in blocks)


def _api_version(names: list[str], known: Mapping[str, Json]) -> str:
    """The apiVersion of the package's kinds; "-" for the types that all kinds share."""
    found = {
        "/".join(filter(None, (each["group"], each["version"])))
        for name in names
        for each in known[name].get(GVK, ())
        if not name.startswith(META)
    }
    if len(found) > 1:
        raise ValueError(f"{names[0]} and its neighbours are of several API versions: {', '.join(sorted(found))}")
    return next(iter(found), "-")


def _type(name: str, schema: Json, go: Mapping[str, GoField]) -> str:
    """The type's line and one for each of its fields."""
    words = [name.rpartition(".")[2]]
    if map_type := schema.get("x-kubernetes-map-type"):
        words.append(f"map={map_type}")
    if unions := schema.get("x-kubernetes-unions"):
        words.append(f"unions={json.dumps(unions, separators=(',', ':'), sort_keys=True)}")
    package, required = name.rpartition(".")[0], schema.get("required", ())
    fields = (
        _field(package, f"{field}{'*' if field in required else ''}", each, go.get(field, GoField()))
        for field, each in sorted(schema["properties"].items())
    )
    return "\n  ".join([" ".join(words), *fields])


def _element(schema: Json) -> Json:
    """The schema of a list's or a map's elements, or of the single value."""
    element: Json = schema.get("items") or schema.get("additionalProperties") or schema
    return element


def _field(package: str, name: str, schema: Json, go: GoField) -> str:
    element = _element(schema)
    of = _NAMED.get(release.reference(element)) or release.reference(element)
    if not of and release.json_type(element) == "array":
        of = "strings"
    if not of:
        of = _PLAIN[release.json_type(element), element.get("format", "")]
    of = of.removeprefix(f"{package}.")
    of = short_name(of) if "." in of else of
    of = f"[{of}]" if "items" in schema else f"{{{of}}}" if "additionalProperties" in schema else of
    words = [name, of, ".".join(map(str, go.number)) or "-"]
    words += ["pointer"] * go.pointer + ["always"] * go.always + ["omitzero"] * go.omitzero
    if strategy := schema.get("x-kubernetes-patch-strategy"):
        words.append(_keyed("patch", strategy, schema.get("x-kubernetes-patch-merge-key")))
    if list_type := schema.get("x-kubernetes-list-type"):
        words.append(_keyed("list", list_type, ",".join(schema.get("x-kubernetes-list-map-keys", ()))))
    if map_type := schema.get("x-kubernetes-map-type"):
        words.append(f"map={map_type}")
    return " ".join([*words, go.markers] if go.markers else words)


def _keyed(word: str, value: str, keys: str | None) -> str:
    return f"{word}={value}:{keys}" if keys else f"{word}={value}"


def main() -> None:
    """Replaces the files."""
    texts = files()
    for file in DIRECTORY.glob("*.txt"):
        if file.name not in texts:
            file.unlink()
    for name, text in texts.items():
        (DIRECTORY / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
