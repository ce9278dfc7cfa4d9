"""Kinds that CustomResourceDefinitions add to a server while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from served_kinds import table
from verbs_api import NOW, NOW_S, new_api
from widgets import COLUMNS, SCHEMA, definition, version, widget

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, DEFINITION, NAMESPACE, Json, Kind
from kdns.controlplane.kinds.custom.kinds import warnings_of
from kdns.controlplane.schema.descriptions import common_description
from kdns.controlplane.schema.field_validation import FieldValidator
from kdns.controlplane.server import discovery
from kdns.controlplane.server.io.request import target
from kdns.controlplane.server.openapi import Documents
from kdns.controlplane.server.patch import MERGE_PATCH, STRATEGIC_MERGE_PATCH, patch_types
from kdns.controlplane.server.registry import Registry, Request
from kdns.controlplane.storage.listing import ListOptions


@pytest.fixture
def api() -> Registry:
    found = new_api()
    found.create(Request(DEFINITION), definition())
    return found


def kind_of(api: Registry, version: str = "v1") -> Kind:
    kind = api.kinds.by_type(f"example.com/{version}", "Widget")
    assert kind
    return kind


def conditions(api: Registry, name: str = "widgets.example.com") -> dict[str, tuple[str, str]]:
    status = api.get(Request(DEFINITION, "", name))["status"]
    return {row["type"]: (row["status"], row["reason"]) for row in status["conditions"]}


def refused(code: int, call: Any, *arguments: Any, **options: Any) -> StatusError:
    with pytest.raises(StatusError) as caught:
        call(*arguments, **options)
    assert caught.value.code == code
    return caught.value


def test_a_definition_adds_a_kind_at_once_and_everywhere(api: Registry) -> None:
    kind = kind_of(api)
    assert api.get(Request(DEFINITION, "", "widgets.example.com"))["metadata"]["finalizers"]
    assert conditions(api) == {
        "NamesAccepted": ("True", "NoConflicts"),
        "Established": ("True", "InitialNamesAccepted"),
    }
    found = target("/apis/example.com/v1/namespaces/default/widgets/one/scale", api.kinds, lambda _: None)
    assert (found.kind, found.name, found.subresource) == (kind, "one", "scale")
    listed = discovery.resource_list(api.kinds, "example.com", "v1") or {}
    assert [row["name"] for row in listed["resources"]] == ["widgets", "widgets/scale", "widgets/status"]
    row = listed["resources"][0]
    assert (row["shortNames"], row["singularName"], row["categories"]) == (["wd"], "widget", ["all"])
    names = [item["metadata"]["name"] for item in discovery.aggregated(api.kinds, core=False)["items"]]
    assert names[-1] == "example.com"
    documents = Documents(api.kinds)
    schema = documents["apis/example.com/v1"].content["components"]["schemas"]["com.example.v1.Widget"]
    assert schema["properties"]["spec"] == SCHEMA["properties"]["spec"]
    texts = [schema["properties"][name]["description"] for name in ("apiVersion", "kind", "metadata")]
    assert texts == [common_description(name) for name in ("apiVersion", "kind", "metadata")]


def test_objects_are_pruned_filled_with_defaults_counted_and_printed(api: Registry) -> None:
    kind = kind_of(api)
    made = api.create(Request(kind, "default"), {**widget(extra=1), "status": {"replicas": 3}}).copy()
    assert made["spec"] == {"color": "red", "replicas": 1}
    assert "status" not in made
    assert made["metadata"]["generation"] == 1
    changed = api.update(Request(kind, "default", "one"), {**made, "spec": {"color": "blue"}}).copy()
    assert (changed["metadata"]["generation"], changed["spec"]["replicas"]) == (2, 1)
    status = {"replicas": 2, "conditions": [{"type": "Ready", "status": "True"}]}
    shown = api.update(
        Request(kind, "default", "one", subresource="status"), {**changed, "spec": {}, "status": status}
    ).copy()
    assert (shown["spec"], shown["status"], shown["metadata"]["generation"]) == (changed["spec"], status, 2)
    printed = table(kind, [shown], kinds=api.kinds, now_s=NOW_S)
    assert [each["name"] for each in printed["columnDefinitions"]] == ["Name", *(each["name"] for each in COLUMNS)]
    assert [each["priority"] for each in printed["columnDefinitions"]] == [0, 0, 0, 1, 0]
    assert printed["rows"][0]["cells"] == ["one", "blue", 1, "True", "0s"]


def test_invalid_objects_are_refused_with_their_fields(api: Registry) -> None:
    kind = kind_of(api)
    error = refused(422, api.create, Request(kind, "default"), widget(color="green", replicas="x", name="ABCDEF"))
    causes = (error.details or {})["causes"]
    assert [(row["field"], row["reason"]) for row in causes] == [
        ("spec.color", "FieldValueNotSupported"),
        ("spec.replicas", "FieldValueTypeInvalid"),
        ("spec.name", "FieldValueTooLong"),
        ("spec.name", "FieldValueInvalid"),
    ]
    assert error.message.startswith('Widget.example.com "one" is invalid: [spec.color: Unsupported value: "green"')
    api.create(Request(kind, "default"), widget())
    refused(422, api.patch, Request(kind, "default", "one"), MERGE_PATCH, {"spec": {"replicas": 101}})
    refused(422, api.update, Request(kind, "default", "one"), widget())  # without a resourceVersion


@pytest.mark.parametrize("field", ["color", "replicas", "port", "rules", "free", "labels"])
@pytest.mark.parametrize("value", ["text", 5, ["text"], [["text"]], {"name": "text"}], ids=str)
def test_values_of_other_types_are_refused_or_stored_by_any_verb(api: Registry, field: str, value: Any) -> None:
    kind = kind_of(api)
    live = api.create(Request(kind, "default", manager="a"), widget()).copy()
    calls = (
        lambda: api.create(Request(kind, "default", manager="b"), widget("two", **{field: value})),
        lambda: api.update(
            Request(kind, "default", "one", manager="b"), {**live, "spec": {**live["spec"], field: value}}
        ),
        lambda: api.patch(Request(kind, "default", "one", manager="b"), MERGE_PATCH, {"spec": {field: value}}),
    )
    assert {outcome(call) for call in calls} <= {200, 422}


def outcome(call: Callable[[], object]) -> int:
    try:
        call()
    except StatusError as error:
        return error.code
    return 200


def test_a_refusal_names_the_first_hundred_causes(api: Registry) -> None:
    labels = {f"a{number}": number for number in range(1000)}
    error = refused(422, api.create, Request(kind_of(api), "default"), widget(labels=labels))
    assert len((error.details or {})["causes"]) == 100


def test_unknown_fields_are_errors_of_strict_validation(api: Registry) -> None:
    kind, sent = kind_of(api), widget(colour="red", free={"any": {"thing": 1}}, rules=[{"name": "a", "v": 1}])
    lenient = FieldValidator(kind, "Warn")
    assert lenient({**sent, "metadata": {**sent["metadata"], "label": {}}})["spec"].keys() == {"color", "free", "rules"}
    assert lenient.warnings == [
        'unknown field "metadata.label"',
        'unknown field "spec.colour"',
        'unknown field "spec.rules[0].v"',
    ]
    refused(400, FieldValidator(kind, "Strict"), sent)


def test_patches_are_merge_and_json_patches(api: Registry) -> None:
    assert STRATEGIC_MERGE_PATCH not in patch_types(kind_of(api))
    assert STRATEGIC_MERGE_PATCH in patch_types(CONFIG_MAP)


def test_the_scale_is_read_and_written_at_the_paths_of_the_definition(api: Registry) -> None:
    kind = kind_of(api)
    made = api.create(Request(kind, "default"), widget(replicas=3)).copy()
    api.update(
        Request(kind, "default", "one", subresource="status"), {**made, "status": {"replicas": 2, "selector": "app=a"}}
    )
    scale = api.get(Request(kind, "default", "one", subresource="scale"))
    assert (scale["spec"], scale["status"]) == ({"replicas": 3}, {"replicas": 2, "selector": "app=a"})
    api.update(Request(kind, "default", "one", subresource="scale"), {**scale, "spec": {"replicas": 7}})
    found = api.get(Request(kind, "default", "one"))
    assert (found["spec"]["replicas"], found["metadata"]["generation"]) == (7, 2)
    scale = api.get(Request(kind, "default", "one", subresource="scale"))
    refused(422, api.update, Request(kind, "default", "one", "scale"), {**scale, "spec": {"replicas": 101}})


def test_server_side_apply_follows_the_list_types_of_the_schema(api: Registry) -> None:
    kind = kind_of(api)
    api.apply(Request(kind, "default", "one", manager="a"), widget(rules=[{"name": "a", "value": "1"}]))
    api.apply(Request(kind, "default", "one", manager="b"), widget(rules=[{"name": "b", "value": "2"}]))
    found = api.get(Request(kind, "default", "one"))["spec"]["rules"]
    assert found == [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]
    error = refused(
        409, api.apply, Request(kind, "default", "one", manager="b"), widget(rules=[{"name": "a", "value": "3"}])
    )
    assert '.spec.rules[name="a"].value' in error.message
    api.apply(Request(kind, "default", "one", manager="a"), widget())
    assert [each["name"] for each in api.get(Request(kind, "default", "one"))["spec"]["rules"]] == ["b"]


def test_selectors_lists_and_watches(api: Registry) -> None:
    kind = kind_of(api)
    watch = api.watch(Request(kind))
    for name, color in (("one", "red"), ("two", "blue")):
        api.create(Request(kind, "default"), widget(name, color=color))
    assert [event.stored.key[1] for event in watch.take()] == ["one", "two"]
    found = api.list(Request(kind), ListOptions(field_selector="spec.color=blue")).items
    assert [obj["metadata"]["name"] for obj in found] == ["two"]
    refused(400, api.list, Request(kind), ListOptions(field_selector="spec.name=a"))


def test_deleting_a_definition_takes_its_objects_and_ends_its_watches(api: Registry) -> None:
    kind = kind_of(api)
    made = api.create(
        Request(kind, "default"), {**widget(), "metadata": {"name": "one", "finalizers": ["held.example.com"]}}
    ).copy()
    api.create(Request(kind, "default"), widget("two"))
    watch = api.watch(Request(kind))
    api.delete(Request(DEFINITION, "", "widgets.example.com"))
    assert conditions(api)["Terminating"] == ("True", "InstanceDeletionInProgress")
    refused(405, api.create, Request(kind, "default"), widget("three"))
    latest = api.get(Request(kind, "default", "one"))
    assert latest["metadata"]["uid"] == made["metadata"]["uid"]
    api.update(Request(kind, "default", "one"), {**latest, "metadata": {**latest["metadata"], "finalizers": []}})
    refused(404, api.get, Request(DEFINITION, "", "widgets.example.com"))
    assert watch.closed
    assert api.kinds.by_plural.get(("example.com/v1", "widgets")) is None
    assert discovery.group(api.kinds, "example.com") is None
    with pytest.raises(KeyError):
        _ = Documents(api.kinds)["apis/example.com/v1"]
    api.create(Request(DEFINITION), definition())
    assert kind_of(api) is kind  # watches that resume see that the objects went
    assert api.list(Request(kind)).items == []


def test_namespaces_and_owners_take_custom_resources(api: Registry) -> None:
    kind = kind_of(api)
    api.create(Request(NAMESPACE), {"metadata": {"name": "x"}})
    api.create(Request(kind, "x"), widget())
    owner = api.create(Request(kind, "default"), widget()).copy()
    reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "one", "uid": owner["metadata"]["uid"]}
    api.create(Request(CONFIG_MAP, "default"), {"metadata": {"name": "owned", "ownerReferences": [reference]}})
    api.delete(Request(NAMESPACE, "", "x"))
    api.delete(Request(kind, "default", "one"))
    assert api.list(Request(kind)).items == []
    assert api.list(Request(CONFIG_MAP), ListOptions(field_selector="metadata.name=owned")).items == []


def test_an_update_of_the_definition_changes_the_kind(api: Registry) -> None:
    kind = kind_of(api)
    api.create(Request(kind, "default"), widget())
    found = api.get(Request(DEFINITION, "", "widgets.example.com"))
    spec = {**found["spec"], "names": {**found["spec"]["names"], "shortNames": ["gizmo"]}}
    spec["versions"] = [{**version(), "subresources": {}, "additionalPrinterColumns": COLUMNS[:1]}]
    api.update(Request(DEFINITION, "", "widgets.example.com"), {**found, "spec": spec})
    assert kind_of(api) is kind
    assert (kind.short_names, kind.subresources) == (("gizmo",), ())
    assert table(kind, api.list(Request(kind)).items, kinds=api.kinds, now_s=NOW_S)["rows"][0]["cells"] == [
        "one",
        "red",
    ]


def test_a_schema_is_parsed_again_only_if_it_changes(api: Registry) -> None:
    kind = kind_of(api)
    before = kind.schema
    api.patch(Request(DEFINITION, "", "widgets.example.com"), MERGE_PATCH, {"metadata": {"labels": {"a": "b"}}})
    assert kind.schema is before
    changed = version(schema={**SCHEMA, "description": "Another."})
    api.patch(Request(DEFINITION, "", "widgets.example.com"), MERGE_PATCH, {"spec": {"versions": [changed]}})
    assert kind.schema is not before
    assert kind.schema
    assert kind.schema.description == "Another."


def test_a_definition_without_a_name_is_invalid() -> None:
    error = refused(422, new_api().create, Request(DEFINITION), {**definition(), "metadata": {"labels": {"a": "b"}}})
    assert "metadata.name: Required value" in str(error)


def test_names_in_conflict_are_not_accepted(api: Registry) -> None:
    names = {"plural": "gadgets", "kind": "Gadget", "shortNames": ["wd"]}
    api.create(Request(DEFINITION), definition(names=names))
    assert conditions(api, "gadgets.example.com") == {
        "NamesAccepted": ("False", "ShortNamesConflict"),
        "Established": ("False", "NotAccepted"),
    }
    assert api.kinds.by_type("example.com/v1", "Gadget") is None
    found = api.get(Request(DEFINITION, "", "gadgets.example.com"))
    found["spec"]["names"]["shortNames"] = ["gd"]
    api.update(Request(DEFINITION, "", "gadgets.example.com"), found)
    assert conditions(api, "gadgets.example.com")["Established"][0] == "True"
    assert api.kinds.by_type("example.com/v1", "Gadget")


def test_versions_differ_by_their_apiversion_alone() -> None:
    api = new_api()
    api.create(Request(DEFINITION), definition(version("v1alpha1", storage=False, deprecated=True), version("v1")))
    stored, old = kind_of(api), kind_of(api, "v1alpha1")
    assert (old.stored_kind, stored.stored_as, old.deprecation) == (
        stored,
        None,
        "example.com/v1alpha1 Widget is deprecated",
    )
    sent = {**widget(), "apiVersion": "example.com/v1alpha1"}
    made = api.create(Request(stored, "default", served_version=old), sent).copy()
    assert made["apiVersion"] == "example.com/v1alpha1"
    assert api.get(Request(stored, "default", "one"))["apiVersion"] == "example.com/v1"
    assert api.get(Request(stored, "default", "one", served_version=old)) == made
    versions = [each["version"] for each in (discovery.group(api.kinds, "example.com") or {})["versions"]]
    assert versions == ["v1", "v1alpha1"]
    definition_now = api.get(Request(DEFINITION, "", "widgets.example.com"))
    for each in definition_now["spec"]["versions"]:
        each["storage"] = each["name"] == "v1alpha1"
    api.update(Request(DEFINITION, "", "widgets.example.com"), definition_now)
    assert api.get(Request(DEFINITION, "", "widgets.example.com"))["status"]["storedVersions"] == ["v1", "v1alpha1"]
    shown = kind_of(api)
    assert (kind_of(api, "v1alpha1"), shown) == (old, stored)  # watches of both go on
    assert api.get(Request(shown.stored_kind, "default", "one", served_version=shown))["apiVersion"] == "example.com/v1"


def test_what_is_sent_has_the_rules_of_its_version() -> None:
    def of_names(*required: str) -> Json:
        fields: Json = {name: {"type": "string"} for name in "bc"}
        fields["a"] = {"type": "string", "default": required[0]}
        spec = {"type": "object", "required": [*required], "properties": fields}
        return {"type": "object", "properties": {"spec": spec}}

    api = new_api()
    old = version("v1alpha1", storage=False, schema=of_names("b"), selectableFields=[], subresources={})
    api.create(
        Request(DEFINITION), definition(old, version(schema=of_names("c"), selectableFields=[], subresources={}))
    )
    new, served = kind_of(api), kind_of(api, "v1alpha1")
    stored = new.stored_kind

    def sent(kind: Kind, name: str, **spec: str) -> Json:
        return {"apiVersion": kind.api_version, "kind": "Widget", "metadata": {"name": name}, "spec": spec}

    made = api.create(Request(stored, "default", served_version=served), sent(served, "one", b="x"))
    assert made.obj["spec"] == {"a": "b", "b": "x"}
    refused(422, api.create, Request(stored, "default", served_version=new), sent(new, "two", b="x"))
    refused(422, api.create, Request(stored, "default", served_version=served), sent(served, "two", c="x"))
    api.patch(Request(stored, "default", "one", served_version=served), MERGE_PATCH, {"spec": {"b": "y"}})
    refused(422, api.patch, Request(stored, "default", "one", served_version=new), MERGE_PATCH, {"spec": {"b": "z"}})


def test_fields_of_one_version_alone_are_stored() -> None:
    def of(name: str) -> Json:
        rows = {"type": "array", "items": {"type": "object", "properties": {name: {"type": "string"}}}}
        values = {"type": "object", "additionalProperties": rows["items"]}
        fields = {"rows": rows, "values": values, name: {"type": "string"}}
        return {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}

    api = new_api()
    old, new = (
        version(name, storage=name == "v1", schema=of(name), selectableFields=[], subresources={})
        for name in ("v1alpha1", "v1")
    )
    api.create(Request(DEFINITION), definition(old, new))
    served = kind_of(api, "v1alpha1")
    spec = {"rows": [{"v1alpha1": "a"}], "values": {"b": {"v1alpha1": "c"}}, "v1alpha1": "d"}
    sent = {"apiVersion": served.api_version, "kind": "Widget", "metadata": {"name": "one"}, "spec": spec}
    made = api.create(Request(served.stored_kind, "default", served_version=served), sent)
    assert made.obj["spec"] == spec
    assert api.get(Request(served.stored_kind, "default", "one", served_version=served))["spec"] == spec
    strict = FieldValidator(kind_of(api), "Strict")
    refused(400, strict, {**sent, "apiVersion": "example.com/v1"})


def test_columns_of_unsupported_paths_are_named_in_a_warning() -> None:
    column = {"name": "All", "type": "string", "jsonPath": ".spec..name"}
    found = list(warnings_of(definition(version(additionalPrinterColumns=[column]))))
    assert found[0] == "v1: column All stays empty: unsupported JSONPath .spec..name"


def test_rules_in_cel_are_named_in_a_warning() -> None:
    assert list(warnings_of(definition())) == ["v1: x-kubernetes-validations are not evaluated: those of the object"]


def test_kinds_of_two_servers_are_their_own(api: Registry) -> None:
    other = new_api()
    assert other.kinds.by_type("example.com/v1", "Widget") is None
    other.create(Request(DEFINITION), definition(version(schema={"type": "object"}, selectableFields=[])))
    assert kind_of(other) is not kind_of(api)
    assert other.create(Request(kind_of(other), "default"), widget()).metadata["creationTimestamp"] == NOW
    assert kind_of(api).schema is not kind_of(other).schema
