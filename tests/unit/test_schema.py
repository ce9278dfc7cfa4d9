"""The schema is whole: every kind, every type, every field; and what it says of merging."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import pytest

from kdns.controlplane.kinds import NODE, POD, SERVED, SERVICE, Kind
from kdns.controlplane.patch import PatchNode
from kdns.controlplane.schema import META, PatchSchema, field_at, fields, patch_schema, type_of, types
from kdns.controlplane.schema_text import SCALARS, Field, Type, TypeName, parse
from kdns.controlplane.views import POSTED, SCALE

ALL_FIELDS = [(each, field) for each in types().values() for field in each.fields.values()]


@pytest.mark.parametrize("kind", SERVED, ids=lambda kind: str(kind.kind))
def test_every_kind_has_a_type_with_the_common_fields(kind: Kind) -> None:
    found = fields(type_of(kind))
    assert [*found][:3] == ["apiVersion", "kind", "metadata"]
    assert found["metadata"].type == f"{META}.ObjectMeta"


def test_a_kind_without_text_is_named() -> None:
    with pytest.raises(KeyError, match=r"no schema text defines Widget in example\.com/v1"):
        type_of(Kind("example.com", "v1", "Widget", "widgets"))


def test_every_type_referred_to_exists() -> None:
    assert [(each.name, field.type) for each, field in ALL_FIELDS if field.type not in {*SCALARS, *types()}] == []


def test_every_type_is_used_or_served() -> None:
    used = {field.type for _, field in ALL_FIELDS} | {type_of(kind) for kind in (*SERVED, SCALE)}
    roots = {f"{META}.{name}" for name in ("Object", "ListMeta", "Status", "DeleteOptions")}
    roots |= {type_of(kind) for kind in POSTED.values()}
    assert set(types()) - used - roots == set()


def test_every_type_and_field_is_documented_in_a_sentence() -> None:
    texts = [(each.short, each.doc) for each in types().values()]
    texts += [(f"{each.short}.{field.name}", field.doc) for each, field in ALL_FIELDS]
    sentence = re.compile(r"([A-Z0-9]|linux |cpu ).*[^ .]\.")
    assert [name for name, doc in texts if not sentence.fullmatch(doc)] == []


def test_map_lists_have_keys_and_only_they() -> None:
    for each, field in ALL_FIELDS:
        assert (field.list_type == "map") == bool(field.list_map_keys), (each.short, field.name)
        assert field.list_type in {"", "atomic", "set", "map"}
        assert field.list_of or not field.list_type, (each.short, field.name)


def test_lists_that_merge_name_a_key_unless_of_scalars() -> None:
    for each, field in ALL_FIELDS:
        assert set(field.patch_strategy) <= {"merge", "retainKeys"}, (each.short, field.name)
        if "merge" in field.patch_strategy and field.type not in SCALARS:
            assert field.merge_key, (each.short, field.name)


MODELS: Any = import_module("kubernetes.client.models")
SCALAR_WORDS = {
    "str": {"string", "quantity"},
    "int": {"int32", "int64"},
    "bool": {"bool"},
    "datetime": {"time", "microtime"},
    "object": {"intorstr", "json"},
}


LATER = {("JobSpec", "scheduling")}
"""What the package knows of releases after the one that is followed."""


def _model(described: Type) -> Any:
    group = described.name.split(".")[3]
    prefix = group.capitalize() if group in {"discovery", "events"} else "Core"
    for name in (f"{prefix}V1{described.short}", f"V1{described.short}"):
        if hasattr(MODELS, name):
            return getattr(MODELS, name)
    return None


def test_the_official_clients_models_agree_in_names_and_shapes() -> None:
    """What the kubernetes package knows of a type is what the schema says: the same fields, lists, maps and scalars."""
    compared = 0
    for described in types().values():
        model = _model(described)
        if model is None:
            continue
        known = {model.attribute_map[name]: shape for name, shape in model.openapi_types.items()}
        known = {name: shape for name, shape in known.items() if (described.short, name) not in LATER}
        assert set(known) - set(described.fields) == set(), described.name
        for name, shape in known.items():
            field = described.fields[name]
            found = re.fullmatch(r"(?P<list>[Ll]ist\[)?(?P<map>[Dd]ict[\[(]str, )?(?P<of>\w+)[\])]?", shape)
            assert found, shape
            assert (field.list_of, field.map_of) == (bool(found["list"]), bool(found["map"])), (described.name, name)
            if found["of"] in SCALAR_WORDS:
                assert field.type in SCALAR_WORDS[found["of"]], (described.name, name, shape)
            else:
                assert found["of"].endswith(field.type.rpartition(".")[2]), (described.name, name, shape)
            compared += 1
    assert compared > 800


CORE = "io.k8s.api.core.v1"


@pytest.mark.parametrize(
    ("kind", "path", "expected"),
    [
        (
            SERVICE,
            "spec.ports",
            {"merge_key": "port", "list_map_keys": ("port", "protocol"), "type": f"{CORE}.ServicePort"},
        ),
        (SERVICE, "spec.ports.port", {"type": "int32", "required": True}),
        (SERVICE, "spec.ports.targetPort", {"type": "intorstr", "required": False}),
        (SERVICE, "spec.ports.protocol", {"default": "TCP", "enum": ("TCP", "UDP", "SCTP")}),
        (SERVICE, "spec.selector", {"type": "string", "map_of": True, "map_type": "atomic"}),
        (POD, "spec.containers.env.name", {"type": "string", "required": True}),
        (POD, "spec.ephemeralContainers.env", {"merge_key": "name"}),
        (POD, "spec.ephemeralContainers.targetContainerName", {"type": "string"}),
        (POD, "spec.volumes", {"patch_strategy": ("merge", "retainKeys"), "merge_key": "name"}),
        (POD, "spec.containers.resources.limits", {"type": "quantity", "map_of": True}),
        (NODE, "status.daemonEndpoints.kubeletEndpoint.Port", {"type": "int32"}),
        (NODE, "metadata.finalizers", {"patch_strategy": ("merge",), "list_type": "set"}),
    ],
)
def test_known_fields(kind: Kind, path: str, expected: dict[str, object]) -> None:
    found = field_at(kind, path)
    assert {name: getattr(found, name) for name in expected} == expected


def test_a_field_that_does_not_exist_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="foo"):
        field_at(SERVICE, "spec.foo")


def _walk(kind: Kind, path: str) -> PatchSchema | None:
    node: PatchSchema | None = patch_schema(kind)
    for name in path.split("."):
        node = node.child(name) if node else None
    return node


@pytest.mark.parametrize(
    ("path", "strategy", "merge_key"),
    [
        ("spec", (), ""),
        ("spec.containers", ("merge",), "name"),
        ("spec.containers.ports", ("merge",), "containerPort"),
        ("spec.volumes", ("merge", "retainKeys"), "name"),
        ("spec.tolerations", (), ""),
        ("spec.nodeSelector", (), ""),
        ("spec.nodeSelector.disk", (), ""),
        ("metadata.finalizers", ("merge",), ""),
        ("metadata.ownerReferences", ("merge",), "uid"),
        ("status.conditions", ("merge",), "type"),
    ],
)
def test_patch_schema(path: str, strategy: tuple[str, ...], merge_key: str) -> None:
    found = _walk(POD, path)
    assert found
    assert (found.strategy, found.merge_key) == (strategy, merge_key)


def test_patch_schema_knows_nothing_below_what_it_does_not_know() -> None:
    assert _walk(POD, "spec.foo") is None
    assert _walk(POD, "spec.hostname.foo") is None


def test_patch_schema_is_what_patches_read() -> None:
    node: PatchNode = patch_schema(SERVICE)
    assert node.child("spec") is not None


TEXT = """\
package a io.a.v1 v1
Base : A base.
  name* string enum=x|y default="x" : A name.
Thing < Base map=atomic : A thing.
  parts [b.Part] patch=merge,retainKeys:key list=map:key : Its parts.
  marks {int32} map=atomic : Its marks.
"""
PARTS = "package b io.b - \n# a comment\n\nPart : A part.\n  key string : Its key.\n".replace("- \n", "-\n")


def test_text_becomes_types() -> None:
    found = parse([("a.txt", TEXT), ("b.txt", PARTS)])
    name: TypeName = "io.a.v1.Thing"
    assert found[name] == Type(
        name,
        "v1",
        "A thing.",
        {
            "name": Field("name", "string", "A name.", required=True, enum=("x", "y"), default="x"),
            "parts": Field(
                "parts",
                "io.b.Part",
                "Its parts.",
                list_of=True,
                patch_strategy=("merge", "retainKeys"),
                merge_key="key",
                list_type="map",
                list_map_keys=("key",),
            ),
            "marks": Field("marks", "int32", "Its marks.", map_of=True, map_type="atomic"),
        },
        atomic=True,
    )
    assert found["io.b.Part"].api_version == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Thing : No package yet.", r"a\.txt:1: not a package, type or field line: 'Thing : No package yet\.'"),
        ("package a io.a v1\nThing : A thing.\n  x string", r"a\.txt:3: not a package, type or field line"),
        ("package a io.a v1\n  x string : Homeless.", r"a\.txt:2: not a package, type or field line"),
        ("package a io.a v1\nT : One.\nT : Two.", r"a\.txt:3: io\.a\.T is defined twice, first in a\.txt:2"),
        ("package a io.a v1\nT : One.\n  x bool : 1.\n  x bool : 2.", r"a\.txt:4: field x is given twice"),
        ("package a io.a v1\nT : One.\n  x U : 1.", r"a\.txt:2: T\.x refers to io\.a\.U, which is not defined"),
        ("package a io.a v1\nT : One.\n  x b.U : 1.", r"a\.txt:2: b\.U names no package; known are a"),
        ("package a io.a v1\nT < U : One.", r"a\.txt:2: the base U is not defined"),
        ("package a io.a v1\nT : One.\n  x bool foo=1 : 1.", r"a\.txt:3: unknown word 'foo=1'; wanted patch=, list="),
        ("package a io.a v1\nT : One.\n  x bool zero=gone : 1.", r"a\.txt:3: unknown word 'zero=gone'; wanted patch="),
        ("package a io.a v1\nT : One.\n  x [T] list=map:y : 1.", r"a\.txt:2: T\.x merges by y, which io\.a\.T lacks"),
        ("package a io.a v1\npackage a io.b v1", r"a\.txt:2: package a is io\.a elsewhere"),
    ],
)
def test_bad_text_is_an_error_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse([("a.txt", text)])
