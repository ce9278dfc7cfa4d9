"""What an update of the status may change, what other updates leave of it, and refusals by their fields."""

import pytest
from object_api import Api, pod, refused, service

from kdns.controlplane.apimachinery.inert import API_SERVICE
from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, DEPLOYMENT, POD, REPLICA_SET, SERVICE, Json, Kind
from kdns.controlplane.schema.serialization import serialized

LABELS = {"app": "web"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
WORKLOAD = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}}
EXTENSION = {
    "metadata": {"name": "v1.a.test"},
    "spec": {"group": "a.test", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1},
}
SENT: Json = {
    "labels": {"a": "b"},
    "annotations": {"a": "b"},
    "finalizers": ["a.test/b"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}],
}


@pytest.mark.parametrize(
    ("kind", "obj", "kept"),
    [
        (DEPLOYMENT, WORKLOAD, {"labels"}),
        (REPLICA_SET, WORKLOAD, set()),
        (POD, pod("web"), {"ownerReferences"}),
        (SERVICE, service(), set()),
        (API_SERVICE, EXTENSION, set(SENT)),
    ],
)
def test_the_metadata_that_an_update_of_the_status_changes(kind: Kind, obj: Json, kept: set[str]) -> None:
    """As kube-apiserver's strategies: all of it for most kinds."""
    api = Api()
    namespace = "default" if kind.namespaced else ""
    made = api.create(kind, obj, namespace=namespace)
    sent = made | {"metadata": made["metadata"] | SENT}
    updated = api.update(kind, made["metadata"]["name"], sent, namespace=namespace, subresource="status")
    assert {name for name in SENT if updated["metadata"].get(name) != SENT[name]} == kept
    assert updated["spec"] == made["spec"]


def test_an_update_of_the_labels_may_leave_the_status_of_a_deployment() -> None:
    api = Api()
    made = api.create(DEPLOYMENT, WORKLOAD)
    api.update(DEPLOYMENT, "web", made | {"status": {"replicas": 1}}, subresource="status")
    patched = api.patch(DEPLOYMENT, "web", {"metadata": {"labels": {"a": "b"}}})
    assert (patched["metadata"]["labels"], patched["status"]) == ({"a": "b"}, {"replicas": 1})


def test_what_a_kubelet_leaves_out_of_a_pods_status() -> None:
    api = Api()
    made = api.create(POD, pod("web"))
    told = {"type": "Ready", "status": "True", "observedGeneration": 1}
    status = made["status"] | {"observedGeneration": 1, "conditions": [told, {"type": "X", "status": "True"}]}
    stored = api.update(POD, "web", made | {"status": status}, subresource="status")
    again = {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Y", "status": "True"}]}
    updated = api.update(POD, "web", stored | {"status": again}, subresource="status")["status"]
    assert (updated["qosClass"], updated["observedGeneration"]) == (made["status"]["qosClass"], 1)
    assert [row.get("observedGeneration") for row in updated["conditions"]] == [1, None]


@pytest.mark.parametrize("type_", ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"])
def test_a_new_label_leaves_the_conditions_of_a_service(type_: str) -> None:
    api = Api()
    obj = service()
    obj["spec"] |= {"type": type_} | ({"externalName": "a.test"} if type_ == "ExternalName" else {})
    made = api.create(SERVICE, obj)
    status = {"loadBalancer": {}, "conditions": [{"type": "a.test/B", "status": "True"}]}
    api.update(SERVICE, "web", made | {"status": status}, subresource="status")
    patched = api.patch(SERVICE, "web", {"metadata": {"labels": {"a": "b"}}})
    assert patched["status"] == serialized(SERVICE, {"status": status})["status"]


@pytest.mark.parametrize(
    ("kind", "obj", "patch", "is_about"),
    [
        (SERVICE, service(), {"metadata": {"labels": {"a": "field is immutable"}}}, False),
        (SERVICE, service(), {"spec": {"type": "ExternalName", "externalName": "may not change once set"}}, False),
        (SERVICE, service(), {"spec": {"clusterIP": "10.96.0.77", "clusterIPs": ["10.96.0.77"]}}, True),
        (DEPLOYMENT, WORKLOAD, {"metadata": {"labels": {"a": "updates to statefulset spec for fields"}}}, False),
        (POD, pod("web"), {"spec": {"schedulerName": "other"}}, True),
        (POD, pod("web"), {"spec": {"schedulerName": "x"}, "metadata": {"labels": {"a": "field is immutable"}}}, False),
        (CONFIG_MAP, {"metadata": {"name": "c"}, "immutable": True, "data": {}}, {"data": {"a": "b"}}, True),
    ],
)
def test_whether_a_refusal_is_about_immutable_fields(kind: Kind, obj: Json, patch: Json, is_about: bool) -> None:
    """Whatever the message quotes: an object whose manifest changes such fields alone is made anew."""
    api = Api()
    api.create(kind, obj)
    error = refused(422, "", api.patch, kind, obj["metadata"]["name"], patch)
    assert error.is_about_immutable_fields is is_about
