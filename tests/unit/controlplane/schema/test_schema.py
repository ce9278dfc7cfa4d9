"""The schema is complete: every kind, type and field; merge rules; the format of the data."""

import re

import msgspec
import pytest
from served_kinds import KINDS, SERVED

from kdns.controlplane.apimachinery.inert import VOLUME
from kdns.controlplane.apimachinery.kinds import NODE, POD, SERVICE, Kind
from kdns.controlplane.schema.descriptions import descriptions, field_description, type_description
from kdns.controlplane.schema.schema import field_at, type_of
from kdns.controlplane.schema.types import (
    META,
    SCALARS,
    Field,
    Type,
    TypeName,
    fields,
    name_of,
    parse_package,
    parse_type,
    type_named,
    types,
)

DISCOVERY = (
    *("APIGroup", "APIGroupList", "APIResource", "APIResourceList", "APIVersions"),
    *("GroupVersionForDiscovery", "ServerAddressByClientCIDR"),
)
ALL_FIELDS = [(type_, field) for type_ in types().values() for field in type_.fields.values()]


@pytest.mark.parametrize("kind", SERVED, ids=lambda kind: str(kind.kind))
def test_every_kind_has_a_type_with_the_common_fields(kind: Kind) -> None:
    found = fields(type_of(kind))
    assert {"apiVersion", "kind", "metadata"} <= {*found}
    assert found["metadata"].type == f"{META}.ObjectMeta"


@pytest.mark.parametrize("group", ["example.com", "apps", "apps.example.com", ""])
def test_a_kind_without_a_type_is_named(group: str) -> None:
    kind = Kind(group, "v1", "Widget", "widgets")
    with pytest.raises(KeyError, match=rf"the schema of Kubernetes 1\.36\.0 has no Widget in {kind.api_version}"):
        type_of(kind)


def test_every_type_referred_to_exists() -> None:
    assert [(each.name, field.type) for each, field in ALL_FIELDS if field.type not in {*SCALARS, *types()}] == []


def test_every_type_belongs_to_a_kind() -> None:
    """Kinds that are not served yet included; those of DISCOVERY, Status, ListMeta and DeleteOptions belong to all."""
    reached = {f"{META}.{name}" for name in (*DISCOVERY, "ListMeta", "Status", "DeleteOptions")}
    reached |= {type_.name for type_ in types().values() if {"apiVersion", "kind", "metadata"} <= set(type_.fields)}
    assert {name_of(type_of(kind)) for kind in SERVED} <= reached
    waiting = list(reached)
    while waiting:
        below = {field.type_name for field in fields(waiting.pop()).values()} - reached
        reached |= below
        waiting += below
    assert set(types()) - reached == set()


def test_every_type_and_field_is_described_in_a_sentence() -> None:
    shown = [type_ for type_ in types().values() if type_.short not in DISCOVERY]
    texts = {each.name: type_description(each.name) for each in shown}
    texts |= {f"{each.short}.{name}": field_description(each.name, name) for each in shown for name in each.fields}
    sentence = re.compile(r"([A-Z0-9]|linux |cpu ).*[^ .]\.")
    assert [name for name, text in texts.items() if not sentence.fullmatch(text)] == []


def test_every_description_is_of_a_type_or_field() -> None:
    own = {name: each for name, each in descriptions().items() if name != "*.Object"}
    assert set(own) - set(types()) == set()
    assert [(name, field) for name, each in own.items() for field in each.fields if field not in fields(name)] == []


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
        (SERVICE, "spec.ports.protocol", {"default": "TCP", "enum": ("SCTP", "TCP", "UDP")}),
        (SERVICE, "spec.selector", {"type": "string", "map_of": True, "map_type": "atomic"}),
        (POD, "spec.containers.env.name", {"type": "string", "required": True}),
        (POD, "spec.ephemeralContainers.env", {"merge_key": "name"}),
        (POD, "spec.ephemeralContainers.targetContainerName", {"type": "string"}),
        (POD, "spec.volumes", {"strategy": ("merge", "retainKeys"), "merge_key": "name"}),
        (POD, "spec.containers.resources.limits", {"type": "quantity", "map_of": True}),
        (NODE, "status.daemonEndpoints.kubeletEndpoint.Port", {"type": "int32"}),
        (NODE, "metadata.finalizers", {"strategy": ("merge",), "list_type": "set"}),
    ],
)
def test_known_fields(kind: Kind, path: str, expected: dict[str, object]) -> None:
    found = field_at(kind, path)
    assert {name: getattr(found, name) for name in expected} == expected


def test_a_field_that_does_not_exist_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="foo"):
        field_at(SERVICE, "spec.foo")


BUDGET = next(kind for kind in KINDS if kind.kind == "PodDisruptionBudget")


@pytest.mark.parametrize(
    ("kind", "path", "form"),
    [
        (SERVICE, "spec", "struct"),
        (SERVICE, "spec.type", "atomic"),
        (SERVICE, "spec.selector", "atomic"),
        (SERVICE, "spec.ports", "list"),
        (SERVICE, "metadata.labels", "map"),
        (SERVICE, "metadata.labels.any", "atomic"),
        (SERVICE, "metadata.finalizers", "set"),
        (POD, "spec.tolerations", "atomic"),
        (BUDGET, "spec.selector", "atomic"),
        pytest.param(VOLUME, "spec.claimRef", "struct", id="granular by its field"),
    ],
)
def test_forms_of_ownership(kind: Kind, path: str, form: str) -> None:
    assert field_at(kind, path).form == form


def test_keys_of_lists_have_their_defaults() -> None:
    assert dict(field_at(SERVICE, "spec.ports").key_defaults) == {"port": None, "protocol": "TCP"}


DATA = """\
# a comment
package io.a.v1 a/v1
import io.b.v1

Part
  key string 1

Thing map=atomic unions=[{"discriminator":"kind"}]
  kind* string 1 always default="x" enum=x|y
  marks {int32} 2.1 map=atomic
  own Part 2.3 pointer map=granular
  parts [b.v1.Part] - patch=merge,retainKeys:key list=map:key
"""


def test_data_become_types() -> None:
    package = parse_package(DATA)
    assert (package.name, package.api_version, set(package.blocks)) == ("io.a.v1", "a/v1", {"Part", "Thing"})
    assert msgspec.structs.asdict(parse_type(package, "Thing")) == msgspec.structs.asdict(
        Type(
            "io.a.v1.Thing",
            {
                "kind": Field("kind", "string", required=True, number=(1,), always=True, enum=("x", "y"), default="x"),
                "marks": Field("marks", "int32", map_of=True, number=(2, 1), map_type="atomic"),
                "own": Field("own", "io.a.v1.Part", number=(2, 3), pointer=True, map_type="granular"),
                "parts": Field(
                    "parts",
                    "io.b.v1.Part",
                    list_of=True,
                    strategy=("merge", "retainKeys"),
                    merge_key="key",
                    list_type="map",
                    list_map_keys=("key",),
                ),
            },
            atomic=True,
            unions=({"discriminator": "kind"},),
        )
    )


@pytest.mark.parametrize("name", ["io.k8s.api.core.v1.Widget", "io.k8s.api.toys.v1.Widget", "Widget"])
def test_a_type_that_does_not_exist_is_a_key_error(name: TypeName) -> None:
    with pytest.raises(KeyError, match="Widget"):
        type_named(name)


def test_an_unknown_word_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"io\.a\.v1: unknown word 'colour=red' in 'kind string 1 colour=red'"):
        parse_type(parse_package("package io.a.v1 -\n\nThing\n  kind string 1 colour=red\n"), "Thing")
