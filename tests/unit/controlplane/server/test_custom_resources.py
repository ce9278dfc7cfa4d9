"""Kinds that CustomResourceDefinitions add to a server while it runs."""

from collections.abc import Callable
from typing import Any

import pytest
from object_api import NOW, NOW_S, Api, refused
from served_kinds import table
from widgets import COLUMNS, SCHEMA, definition, version, widget

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, DEFINITION, ENDPOINT_SLICE, NAMESPACE, Json, Kind
from kdns.controlplane.kinds.custom.kinds import warnings_of
from kdns.controlplane.schema.descriptions import common_description
from kdns.controlplane.schema.field_validation import FieldValidator
from kdns.controlplane.server import discovery
from kdns.controlplane.server.io.request import target
from kdns.controlplane.server.openapi import Documents
from kdns.controlplane.server.patch import STRATEGIC_MERGE_PATCH, patch_types


@pytest.fixture
def api() -> Api:
    found = Api()
    found.create(DEFINITION, definition())
    return found


def kind_of(api: Api, version: str = "v1") -> Kind:
    kind = api.kinds.by_type(f"example.com/{version}", "Widget")
    assert kind
    return kind


def conditions(api: Api, name: str = "widgets.example.com") -> dict[str, tuple[str, str]]:
    status = api.get(DEFINITION, name)["status"]
    return {row["type"]: (row["status"], row["reason"]) for row in status["conditions"]}


def test_a_definition_adds_a_kind_at_once_and_everywhere(api: Api) -> None:
    kind = kind_of(api)
    assert api.get(DEFINITION, "widgets.example.com")["metadata"]["finalizers"]
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


def test_objects_are_pruned_filled_with_defaults_counted_and_printed(api: Api) -> None:
    kind = kind_of(api)
    made = api.create(kind, {**widget(extra=1), "status": {"replicas": 3}})
    assert made["spec"] == {"color": "red", "replicas": 1}
    assert "status" not in made
    assert made["metadata"]["generation"] == 1
    changed = api.update(kind, "one", {**made, "spec": {"color": "blue"}})
    assert (changed["metadata"]["generation"], changed["spec"]["replicas"]) == (2, 1)
    status = {"replicas": 2, "conditions": [{"type": "Ready", "status": "True"}]}
    shown = api.update(kind, "one", {**changed, "spec": {}, "status": status}, subresource="status")
    assert (shown["spec"], shown["status"], shown["metadata"]["generation"]) == (changed["spec"], status, 2)
    printed = table(kind, [shown], kinds=api.kinds, now_s=NOW_S)
    assert [column_definition["name"] for column_definition in printed["columnDefinitions"]] == [
        "Name",
        *(column["name"] for column in COLUMNS),
    ]
    assert [column_definition["priority"] for column_definition in printed["columnDefinitions"]] == [0, 0, 0, 1, 0]
    assert printed["rows"][0]["cells"] == ["one", "blue", 1, "True", "0s"]


def test_invalid_objects_are_refused_with_their_fields(api: Api) -> None:
    kind = kind_of(api)
    error = refused(422, "", api.create, kind, widget(color="green", replicas="x", name="ABCDEF"))
    causes = (error.details or {})["causes"]
    assert [(row["field"], row["reason"]) for row in causes] == [
        ("spec.color", "FieldValueNotSupported"),
        ("spec.replicas", "FieldValueTypeInvalid"),
        ("spec.name", "FieldValueTooLong"),
        ("spec.name", "FieldValueInvalid"),
    ]
    assert error.message.startswith('Widget.example.com "one" is invalid: [spec.color: Unsupported value: "green"')
    api.create(kind, widget())
    refused(422, "", api.patch, kind, "one", {"spec": {"replicas": 101}})
    refused(422, "", api.update, kind, "one", widget())  # without a resourceVersion


@pytest.mark.parametrize("field", ["color", "replicas", "port", "rules", "free", "labels"])
@pytest.mark.parametrize("value", ["text", 5, ["text"], [["text"]], {"name": "text"}], ids=str)
def test_values_of_other_types_are_refused_or_stored_by_any_verb(api: Api, field: str, value: Any) -> None:
    kind = kind_of(api)
    live = api.create(kind, widget(), manager="a")
    calls = (
        lambda: api.create(kind, widget("two", **{field: value}), manager="b"),
        lambda: api.update(kind, "one", {**live, "spec": {**live["spec"], field: value}}, manager="b"),
        lambda: api.patch(kind, "one", {"spec": {field: value}}, manager="b"),
    )
    assert {outcome(call) for call in calls} <= {200, 422}


def outcome(call: Callable[[], object]) -> int:
    try:
        call()
    except StatusError as error:
        return error.code
    return 200


def test_unknown_fields_are_errors_of_strict_validation(api: Api) -> None:
    kind, sent = kind_of(api), widget(colour="red", free={"any": {"thing": 1}}, rules=[{"name": "a", "v": 1}])
    lenient = FieldValidator(kind, "Warn")
    assert lenient({**sent, "metadata": {**sent["metadata"], "label": {}}})["spec"].keys() == {"color", "free", "rules"}
    assert lenient.warnings == [
        'unknown field "metadata.label"',
        'unknown field "spec.colour"',
        'unknown field "spec.rules[0].v"',
    ]
    refused(400, "", FieldValidator(kind, "Strict"), sent)


def test_patches_are_merge_and_json_patches(api: Api) -> None:
    assert STRATEGIC_MERGE_PATCH not in patch_types(kind_of(api))
    assert STRATEGIC_MERGE_PATCH in patch_types(CONFIG_MAP)


def test_the_scale_is_read_and_written_at_the_paths_of_the_definition(api: Api) -> None:
    kind = kind_of(api)
    made = api.create(kind, widget(replicas=3))
    api.update(kind, "one", {**made, "status": {"replicas": 2, "selector": "app=a"}}, subresource="status")
    scale = api.get(kind, "one", subresource="scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 3}, {"replicas": 2, "selector": "app=a"})
    api.update(kind, "one", {**scale, "spec": {"replicas": 7}}, subresource="scale")
    found = api.get(kind, "one")
    assert (found["spec"]["replicas"], found["metadata"]["generation"]) == (7, 2)
    scale = api.get(kind, "one", subresource="scale")
    refused(422, "", api.update, kind, "one", {**scale, "spec": {"replicas": 101}}, subresource="scale")


def test_server_side_apply_follows_the_list_types_of_the_schema(api: Api) -> None:
    kind = kind_of(api)
    api.apply(kind, "one", widget(rules=[{"name": "a", "value": "1"}]), manager="a")
    api.apply(kind, "one", widget(rules=[{"name": "b", "value": "2"}]), manager="b")
    found = api.get(kind, "one")["spec"]["rules"]
    assert found == [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]
    error = refused(409, "", api.apply, kind, "one", widget(rules=[{"name": "a", "value": "3"}]), manager="b")
    assert '.spec.rules[name="a"].value' in error.message
    api.apply(kind, "one", widget(), manager="a")
    assert [rule["name"] for rule in api.get(kind, "one")["spec"]["rules"]] == ["b"]


def test_server_side_apply_leaves_no_emptied_object(api: Api) -> None:
    kind = kind_of(api)
    api.apply(kind, "one", widget(labels={"a": "b"}), manager="a")
    assert "labels" not in api.apply(kind, "one", widget(), manager="a")["spec"]


def test_without_a_subresource_the_status_counts_as_content() -> None:
    api = Api()
    api.create(DEFINITION, definition(version(subresources={})))
    made = api.create(kind_of(api), {**widget(), "status": {"replicas": 1}})
    changed = api.update(kind_of(api), "one", {**made, "status": {"replicas": 2}})
    assert changed["metadata"]["generation"] == 2


def test_a_later_conflict_keeps_the_names_that_were_accepted(api: Api) -> None:
    api.create(DEFINITION, definition(names={"plural": "gadgets", "kind": "Gadget", "shortNames": ["gd"]}))
    found = api.get(DEFINITION, "widgets.example.com")
    found["spec"]["names"]["shortNames"] = ["gd"]
    status = api.update(DEFINITION, "widgets.example.com", found)["status"]
    assert (status["acceptedNames"]["kind"], status["acceptedNames"]["shortNames"]) == ("Widget", ["wd"])
    assert conditions(api)["NamesAccepted"] == ("False", "ShortNamesConflict")
    assert kind_of(api).short_names == ("wd",)


def test_selectors_lists_and_watches(api: Api) -> None:
    kind = kind_of(api)
    watch = api.watch(kind)
    for name, color in (("one", "red"), ("two", "blue")):
        api.create(kind, widget(name, color=color))
    assert [event.stored.key[1] for event in watch.take()] == ["one", "two"]
    found = api.items(kind, field_selector="spec.color=blue")
    assert [obj["metadata"]["name"] for obj in found] == ["two"]
    refused(400, "", api.listed, kind, field_selector="spec.name=a")


def test_deleting_a_definition_takes_its_objects_and_ends_its_watches(api: Api) -> None:
    kind = kind_of(api)
    made = api.create(kind, {**widget(), "metadata": {"name": "one", "finalizers": ["held.example.com"]}})
    api.create(kind, widget("two"))
    watch = api.watch(kind)
    api.delete(DEFINITION, "widgets.example.com")
    assert conditions(api)["Terminating"] == ("True", "InstanceDeletionInProgress")
    refused(405, "", api.create, kind, widget("three"))
    latest = api.get(kind, "one")
    assert latest["metadata"]["uid"] == made["metadata"]["uid"]
    api.update(kind, "one", {**latest, "metadata": {**latest["metadata"], "finalizers": []}})
    refused(404, "", api.get, DEFINITION, "widgets.example.com")
    assert watch.closed
    assert api.kinds.by_plural.get(("example.com/v1", "widgets")) is None
    assert discovery.group(api.kinds, "example.com") is None
    with pytest.raises(KeyError):
        _ = Documents(api.kinds)["apis/example.com/v1"]
    api.create(DEFINITION, definition())
    assert kind_of(api) is kind  # watches that resume see that the objects went
    assert api.items(kind) == []


def test_namespaces_and_owners_take_custom_resources(api: Api) -> None:
    kind = kind_of(api)
    api.create(NAMESPACE, {"metadata": {"name": "x"}})
    api.create(kind, widget(), namespace="x")
    owner = api.create(kind, widget())
    reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "one", "uid": owner["metadata"]["uid"]}
    api.create(CONFIG_MAP, {"metadata": {"name": "owned", "ownerReferences": [reference]}})
    api.delete(NAMESPACE, "x")
    api.delete(kind, "one")
    assert api.items(kind) == []
    assert api.items(CONFIG_MAP, field_selector="metadata.name=owned") == []


def test_an_update_of_the_definition_changes_the_kind(api: Api) -> None:
    kind = kind_of(api)
    api.create(kind, widget())
    found = api.get(DEFINITION, "widgets.example.com")
    spec = {**found["spec"], "names": {**found["spec"]["names"], "shortNames": ["gizmo"]}}
    spec["versions"] = [{**version(), "subresources": {}, "additionalPrinterColumns": COLUMNS[:1]}]
    api.update(DEFINITION, "widgets.example.com", {**found, "spec": spec})
    assert kind_of(api) is kind
    assert (kind.short_names, kind.subresources) == (("gizmo",), ())
    assert table(kind, api.items(kind), kinds=api.kinds, now_s=NOW_S)["rows"][0]["cells"] == ["one", "red"]


def test_a_schema_is_parsed_again_only_if_it_changes(api: Api) -> None:
    kind = kind_of(api)
    before = kind.schema
    api.patch(DEFINITION, "widgets.example.com", {"metadata": {"labels": {"a": "b"}}})
    assert kind.schema is before
    changed = version(schema={**SCHEMA, "description": "Another."})
    api.patch(DEFINITION, "widgets.example.com", {"spec": {"versions": [changed]}})
    assert kind.schema is not before
    assert kind.schema
    assert kind.schema.description == "Another."


def test_a_definition_without_a_name_is_invalid() -> None:
    error = refused(422, "", Api().create, DEFINITION, {**definition(), "metadata": {"labels": {"a": "b"}}})
    assert "metadata.name: Required value" in str(error)


def test_names_in_conflict_are_not_accepted(api: Api) -> None:
    names = {"plural": "gadgets", "kind": "Gadget", "shortNames": ["wd"]}
    api.create(DEFINITION, definition(names=names))
    assert conditions(api, "gadgets.example.com") == {
        "NamesAccepted": ("False", "ShortNamesConflict"),
        "Established": ("False", "NotAccepted"),
    }
    assert api.kinds.by_type("example.com/v1", "Gadget") is None
    found = api.get(DEFINITION, "gadgets.example.com")
    found["spec"]["names"]["shortNames"] = ["gd"]
    api.update(DEFINITION, "gadgets.example.com", found)
    assert conditions(api, "gadgets.example.com")["Established"][0] == "True"
    assert api.kinds.by_type("example.com/v1", "Gadget")


def test_a_definition_with_the_name_of_a_built_in_kind_takes_none_of_its_objects(api: Api) -> None:
    slice_ = {"metadata": {"name": "web"}, "addressType": "IPv4", "endpoints": []}
    api.create(ENDPOINT_SLICE, slice_)
    plural = {"plural": "endpointslices", "kind": "EndpointSlice", "shortNames": []}
    claim = definition(group="discovery.k8s.io", names=plural)
    claim["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for a test"}
    api.create(DEFINITION, claim)
    api.delete(DEFINITION, "endpointslices.discovery.k8s.io")
    assert [found["metadata"]["name"] for found in api.items(ENDPOINT_SLICE)] == ["web"]


def test_versions_differ_by_their_apiversion_alone() -> None:
    api = Api()
    api.create(DEFINITION, definition(version("v1alpha1", storage=False, deprecated=True), version("v1")))
    stored, old = kind_of(api), kind_of(api, "v1alpha1")
    assert (old.stored_kind, stored.stored_as, old.deprecation) == (
        stored,
        None,
        "example.com/v1alpha1 Widget is deprecated",
    )
    sent = {**widget(), "apiVersion": "example.com/v1alpha1"}
    made = api.create(stored, sent, served_version=old)
    assert made["apiVersion"] == "example.com/v1alpha1"
    assert api.get(stored, "one")["apiVersion"] == "example.com/v1"
    assert api.get(stored, "one", served_version=old) == made
    versions = [each["version"] for each in (discovery.group(api.kinds, "example.com") or {})["versions"]]
    assert versions == ["v1", "v1alpha1"]
    definition_now = api.get(DEFINITION, "widgets.example.com")
    for each in definition_now["spec"]["versions"]:
        each["storage"] = each["name"] == "v1alpha1"
    api.update(DEFINITION, "widgets.example.com", definition_now)
    assert api.get(DEFINITION, "widgets.example.com")["status"]["storedVersions"] == ["v1", "v1alpha1"]
    shown = kind_of(api)
    assert (kind_of(api, "v1alpha1"), shown) == (old, stored)  # watches of both go on
    assert api.get(shown.stored_kind, "one", served_version=shown)["apiVersion"] == "example.com/v1"


def test_what_is_sent_has_the_rules_of_its_version() -> None:
    def of_names(*required: str) -> Json:
        fields: Json = {name: {"type": "string"} for name in "bc"}
        fields["a"] = {"type": "string", "default": required[0]}
        spec = {"type": "object", "required": [*required], "properties": fields}
        return {"type": "object", "properties": {"spec": spec}}

    api = Api()
    old = version("v1alpha1", storage=False, schema=of_names("b"), selectableFields=[], subresources={})
    api.create(DEFINITION, definition(old, version(schema=of_names("c"), selectableFields=[], subresources={})))
    new, served = kind_of(api), kind_of(api, "v1alpha1")
    stored = new.stored_kind

    def sent(kind: Kind, name: str, **spec: str) -> Json:
        return {"apiVersion": kind.api_version, "kind": "Widget", "metadata": {"name": name}, "spec": spec}

    made = api.create(stored, sent(served, "one", b="x"), served_version=served)
    assert made["spec"] == {"a": "b", "b": "x"}
    refused(422, "", api.create, stored, sent(new, "two", b="x"), served_version=new)
    refused(422, "", api.create, stored, sent(served, "two", c="x"), served_version=served)
    api.patch(stored, "one", {"spec": {"b": "y"}}, served_version=served)
    refused(422, "", api.patch, stored, "one", {"spec": {"b": "z"}}, served_version=new)


def test_fields_of_one_version_alone_are_stored() -> None:
    def of(name: str) -> Json:
        rows = {"type": "array", "items": {"type": "object", "properties": {name: {"type": "string"}}}}
        values = {"type": "object", "additionalProperties": rows["items"]}
        fields = {"rows": rows, "values": values, name: {"type": "string"}}
        return {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}

    api = Api()
    old, new = (
        version(name, storage=name == "v1", schema=of(name), selectableFields=[], subresources={})
        for name in ("v1alpha1", "v1")
    )
    api.create(DEFINITION, definition(old, new))
    served = kind_of(api, "v1alpha1")
    spec = {"rows": [{"v1alpha1": "a"}], "values": {"b": {"v1alpha1": "c"}}, "v1alpha1": "d"}
    sent = {"apiVersion": served.api_version, "kind": "Widget", "metadata": {"name": "one"}, "spec": spec}
    made = api.create(served.stored_kind, sent, served_version=served)
    assert made["spec"] == spec
    assert api.get(served.stored_kind, "one", served_version=served)["spec"] == spec
    strict = FieldValidator(kind_of(api), "Strict")
    refused(400, "", strict, {**sent, "apiVersion": "example.com/v1"})


def test_columns_of_unsupported_paths_are_named_in_a_warning() -> None:
    column = {"name": "All", "type": "string", "jsonPath": ".spec..name"}
    found = list(warnings_of(definition(version(additionalPrinterColumns=[column]))))
    assert found[0] == "v1: column All stays empty: unsupported JSONPath .spec..name"


def test_rules_in_cel_are_named_in_a_warning() -> None:
    assert list(warnings_of(definition())) == ["v1: x-kubernetes-validations are not evaluated: those of the object"]


def test_kinds_of_two_servers_are_their_own(api: Api) -> None:
    other = Api()
    assert other.kinds.by_type("example.com/v1", "Widget") is None
    other.create(DEFINITION, definition(version(schema={"type": "object"}, selectableFields=[])))
    assert kind_of(other) is not kind_of(api)
    assert other.create(kind_of(other), widget())["metadata"]["creationTimestamp"] == NOW
    assert kind_of(api).schema is not kind_of(other).schema
