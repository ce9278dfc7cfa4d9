"""Kinds that nothing acts on: each is one row in kinds.py, and these tests derive from the table."""

from typing import Any

import pytest
from object_api import Api, named, refused
from served_kinds import CATALOGUE, GENERIC

from kdns.controlplane.apimachinery.inert import AUTOSCALER, AUTOSCALER_V1, LEASE, parsed
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds.generic import generic
from kdns.controlplane.schema.schema import type_of
from kdns.controlplane.schema.types import fields
from kdns.controlplane.server import discovery

RBAC = "rbac.authorization.k8s.io"
EACH = pytest.mark.parametrize("kind", GENERIC, ids=lambda kind: str(kind.kind))


def place(kind: Kind) -> str:
    return "default" if kind.namespaced else ""


@EACH
def test_it_is_stored_changed_and_deleted(kind: Kind) -> None:
    api = Api()
    made = api.create(kind, {"metadata": {"name": "a.b"}}, namespace=place(kind))
    assert (made["kind"], made["metadata"]["name"]) == (kind.kind, "a.b")
    patch: Json = {"metadata": {"labels": {"c": "d"}}}
    changed = api.patch(kind, "a.b", patch, namespace=place(kind))["metadata"]
    assert changed["labels"] == {"c": "d"}
    assert changed.get("generation") == made["metadata"].get("generation")
    (listed,) = api.items(kind, field_selector="metadata.name=a.b")
    assert listed["metadata"]["uid"] == made["metadata"]["uid"]
    api.delete(kind, "a.b", namespace=place(kind))
    assert api.items(kind) == []


@EACH
def test_its_metadata_is_checked(kind: Kind) -> None:
    error = refused(422, "", Api().create, kind, named("a/b", labels={"-": ""}), namespace=place(kind))
    assert {cause["field"] for cause in (error.details or {})["causes"]} == {"metadata.name", "metadata.labels"}


@EACH
def test_a_write_is_answered_with_a_warning(kind: Kind) -> None:
    expected = [] if kind is LEASE else [f"{kind.kind} is stored, but nothing in this control plane acts on it"]
    assert list(CATALOGUE[kind].warnings({})) == expected


@EACH
def test_it_is_in_the_schema_and_in_discovery(kind: Kind) -> None:
    assert {"apiVersion", "kind", "metadata"} <= set(fields(type_of(kind)))
    listed = discovery.resource_list(CATALOGUE, kind.group, kind.version)
    assert listed
    (row,) = [resource for resource in listed["resources"] if resource["name"] == kind.plural]
    assert (row["kind"], row["namespaced"], row.get("shortNames", [])) == (
        kind.kind,
        kind.namespaced,
        list(kind.short_names),
    )
    assert discovery.group(CATALOGUE, kind.group) or not kind.group


def test_names_of_rbac_are_path_segments() -> None:
    (role,) = [kind for kind in GENERIC if kind.kind == "ClusterRole"]
    assert Api().create(role, {"metadata": {"name": "system:node"}})["metadata"]["name"] == "system:node"


def test_autoscaling_v1_shows_the_autoscalers_of_v2() -> None:
    """kubectl before 1.32 makes autoscalers of v1 and lists those of v2."""
    api, spec = Api(), {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 3}
    made = api.create(AUTOSCALER, {"metadata": {"name": "a"}, "spec": spec}, served_version=AUTOSCALER_V1)
    assert (made["apiVersion"], made["spec"]) == ("autoscaling/v1", {**spec, "minReplicas": 1})
    stored = api.get(AUTOSCALER, "a")
    assert (stored["apiVersion"], stored["spec"]["maxReplicas"]) == ("autoscaling/v2", 3)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("StorageClass", {}, {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
        ("CronJob", {"spec": {"suspend": True}}, {"spec": {"suspend": True, "concurrencyPolicy": "Allow"}}),
        (
            "ValidatingWebhookConfiguration",
            {"webhooks": [{"rules": [{"scope": "Cluster"}, {}]}]},
            {"webhooks": [{"failurePolicy": "Fail", "rules": [{"scope": "Cluster"}, {"scope": "*"}]}]},
        ),
        ("CSIDriver", {}, {"spec": {"attachRequired": True, "volumeLifecycleModes": ["Persistent"]}}),
        ("PersistentVolumeClaim", {"spec": {}, "status": {"phase": "Bound"}}, {"status": {"phase": "Pending"}}),
    ],
)
def test_defaults_that_clients_read_back(name: str, given: Json, expected: Json) -> None:
    (kind,) = [kind for kind in GENERIC if kind.kind == name]
    made = Api().create(kind, {"metadata": {"name": "a"}, **given}, namespace=place(kind))
    assert contains(made, expected), made


def contains(found: Any, expected: Any) -> bool:
    """Whether the expected fields are there, at every level."""
    match found, expected:
        case dict(), dict():
            return all(name in found and contains(found[name], each) for name, each in expected.items())
        case list(), list():
            return len(found) == len(expected) and all(map(contains, found, expected))
    return bool(found == expected)


def test_a_deletion_is_answered_with_the_object_where_kubernetes_does() -> None:
    returned = {kind.kind for kind in GENERIC if CATALOGUE[kind].delete.returns_object}
    assert {"ResourceQuota", "StorageClass", "PodTemplate", "PersistentVolume"} <= returned
    assert not returned & {"Ingress", "CronJob", "Role", "PriorityClass"}


def test_generation_counts_only_where_kubernetes_counts() -> None:
    counted = {kind.kind for kind in GENERIC if CATALOGUE[kind].generation}
    assert {"CronJob", "FlowSchema", "Ingress", "NetworkPolicy", "PodTemplate"} <= counted
    assert not counted & {"CSINode", "ClusterRole", "HorizontalPodAutoscaler", "Lease", "LimitRange", "StorageClass"}


def test_a_row_is_a_kind() -> None:
    text = """
# a comment
example.com/v1 Gauge gauges cluster short=gg categories=all subresources=status uncounted returned
  column Size=spec.size|<none>
  column Parts=#spec.parts
  column Age
  default spec.size 1
  status {"phase":"New"}
"""
    (row,) = parsed(text)
    kind = row.kind
    assert (kind.api_version, kind.kind, kind.plural, kind.namespaced) == ("example.com/v1", "Gauge", "gauges", False)
    assert (kind.short_names, kind.categories, kind.subresources) == (("gg",), ("all",), ("status",))
    assert (row.is_counted, row.is_returned, row.defaults, row.status) == (
        False,
        True,
        {"spec.size": 1},
        {"phase": "New"},
    )
    strategy = generic(row)
    obj = strategy.defaults({"metadata": {"name": "a"}, "spec": {"parts": [1, 2]}})
    assert strategy.printer.cells(obj, 0.0)[:3] == ["a", "1", 2]
    assert strategy.printer.cells({"metadata": {"name": "a"}}, 0.0)[:3] == ["a", "<none>", 0]
    assert strategy.prepare(obj, None)["status"] == {"phase": "New"}
    with pytest.raises(ValueError, match="expected column, default or status"):
        parsed("v1 A as\n  colour x")
