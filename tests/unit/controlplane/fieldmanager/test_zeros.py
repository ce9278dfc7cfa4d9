"""Writes of false, 0 and "" to fields where an absent value means the same change nothing, as with kube-apiserver."""

from typing import Any

import pytest
from object_api import Api

from kdns.controlplane.apimachinery.kinds import DEPLOYMENT, SERVICE, STATEFUL_SET, Json, Kind
from kdns.controlplane.fieldmanager.field_sets import path_text, paths
from kdns.controlplane.schema.field_validation import FieldValidator
from kdns.controlplane.server.patch import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH

POD: Json = {"containers": [{"name": "c", "image": "i"}]}
WORKLOAD: Json = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": POD},
    },
}
SILENT: Json = {"hostNetwork": False, "hostPID": False, "priorityClassName": "", "nodeName": ""}


@pytest.fixture
def api() -> Api:
    made = Api()
    made.create(DEPLOYMENT, FieldValidator(DEPLOYMENT, "Strict")(WORKLOAD), manager="maker")
    made.create(STATEFUL_SET, {**WORKLOAD, "kind": "StatefulSet"}, manager="maker")
    made.create(SERVICE, {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}})
    return made


PATCHES: list[tuple[str, Kind, str, Any, bool]] = [
    ("a Pod template", DEPLOYMENT, STRATEGIC_MERGE_PATCH, {"spec": {"template": {"spec": SILENT}}}, False),
    ("the same as a merge patch", DEPLOYMENT, MERGE_PATCH, {"spec": {"template": {"spec": SILENT}}}, False),
    ("a Deployment's own", DEPLOYMENT, MERGE_PATCH, {"spec": {"paused": False, "minReadySeconds": 0}}, False),
    ("a pointer", DEPLOYMENT, MERGE_PATCH, {"spec": {"template": {"spec": {"hostUsers": False}}}}, True),
    ("a number that is wanted", DEPLOYMENT, MERGE_PATCH, {"spec": {"replicas": 0}}, True),
    (
        "a container's",
        DEPLOYMENT,
        JSON_PATCH,
        [{"op": "add", "path": "/spec/template/spec/containers/0/stdin", "value": False}],
        False,
    ),
    ("a Service's", SERVICE, MERGE_PATCH, {"spec": {"publishNotReadyAddresses": False, "externalName": ""}}, False),
    ("a text that is always sent", STATEFUL_SET, MERGE_PATCH, {"spec": {"serviceName": ""}}, False),
    ("metadata", SERVICE, MERGE_PATCH, {"metadata": {"generateName": ""}}, False),
]


@pytest.mark.parametrize(
    ("kind", "patch_type", "patch", "changes"), [row[1:] for row in PATCHES], ids=[r[0] for r in PATCHES]
)
def test_patches(api: Api, kind: Kind, patch_type: str, patch: Any, *, changes: bool) -> None:
    before = api.get(kind, "web")
    after = api.patch(kind, "web", patch, patch_type, manager="me", validate=FieldValidator(kind, "Strict"))
    assert (after != before) == changes
    assert (after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]) == changes


def test_updates_own_what_is_stored_and_appliers_what_they_configure(api: Api) -> None:
    sent = {**WORKLOAD, "spec": {**WORKLOAD["spec"], "paused": False, "revisionHistoryLimit": 0}}
    validator = FieldValidator(DEPLOYMENT, "Strict")
    api.apply(DEPLOYMENT, "web", sent, manager="writer", force=True, validate=validator)
    applied = api.apply(DEPLOYMENT, "web", sent, manager="applier", force=True, validate=validator)
    owned = {
        entry["manager"]: {path_text(path) for path in paths(entry["fieldsV1"])}
        for entry in applied["metadata"]["managedFields"]
    }
    assert ("paused" in applied["spec"], applied["spec"]["revisionHistoryLimit"]) == (False, 0)
    assert {".spec.paused", ".spec.revisionHistoryLimit"} <= owned["applier"]
    assert [path for path in owned["writer"] if "paused" in path] == []
    again = api.apply(DEPLOYMENT, "web", sent, manager="applier", validate=validator)
    assert again["metadata"]["resourceVersion"] == applied["metadata"]["resourceVersion"]
