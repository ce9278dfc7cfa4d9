"""The verbs that write and read: what the API does alike for every kind, with the real registry."""

from __future__ import annotations

import pytest
from verbs_api import NOW, new_api, pod, refused, service

from kdns.controlplane.apimachinery.inert import LEASE
from kdns.controlplane.apimachinery.kinds import (
    DEPLOYMENT,
    ENDPOINT_SLICE,
    ENDPOINTS,
    EVENT,
    NAMESPACE,
    NODE,
    POD,
    SERVICE,
    Json,
    Kind,
)
from kdns.controlplane.server.patch import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from kdns.controlplane.server.registry import Request
from kdns.controlplane.storage.listing import ListOptions


def test_create_fills_the_servers_metadata() -> None:
    api = new_api()
    sent = service(uid="mine", creationTimestamp="1999-01-01T00:00:00Z", generation=7, deletionTimestamp="x")
    created = api.create(Request(SERVICE, "default"), sent).copy()
    assert created["metadata"] == {
        "name": "web",
        "namespace": "default",
        "uid": "uid-2",
        "creationTimestamp": NOW,
        "resourceVersion": "3",
    }
    assert (created["kind"], created["apiVersion"]) == ("Service", "v1")
    assert sent["metadata"]["uid"] == "mine", "what the caller passes in is not changed"
    assert api.get(Request(SERVICE, "default", "web")) == created


def test_what_get_returns_is_the_callers() -> None:
    api = new_api()
    api.create(Request(SERVICE, "default"), service())
    api.get(Request(SERVICE, "default", "web"))["spec"]["type"] = "Changed"
    assert api.get(Request(SERVICE, "default", "web"))["spec"]["type"] == "ClusterIP"


def test_generate_name_avoids_what_is_there() -> None:
    api = new_api()
    api.create(Request(POD, "default"), pod("web-s0001"))
    generated = api.create(Request(POD, "default"), pod("", generateName="web-")).copy()
    assert generated["metadata"]["name"] == "web-s0002"
    long = api.create(Request(POD, "default"), pod("", generateName="a" * 70)).copy()
    assert long["metadata"]["name"] == "a" * 58 + "s0003"
    for number in range(4, 14):
        api.create(Request(POD, "default"), pod(f"web-s{number:04}"))
    why = 'pods "web-s0012" already exists, the server was not able to generate a unique name for the object'
    error = refused(409, why, lambda: api.create(Request(POD, "default"), pod("", generateName="web-")))
    assert error.details == {"name": "web-s0012", "kind": "pods", "retryAfterSeconds": 1}


@pytest.mark.parametrize(
    ("kind", "namespace", "obj", "code", "text"),
    [
        (
            SERVICE,
            "default",
            {**service(), "apiVersion": "v2"},
            400,
            "expected kind Service of v1, got kind Service of v2",
        ),
        (SERVICE, "default", {**service(), "kind": "Pod"}, 400, "expected kind Service of v1, got kind Pod of v1"),
        (SERVICE, "default", service(namespace="other"), 400, "the namespace of the provided object does not match"),
        (SERVICE, "default", service(resourceVersion="5"), 500, "resourceVersion should not be set"),
        (SERVICE, "default", {"metadata": [], "spec": {}}, 422, "metadata.name: Required value"),
        (
            SERVICE,
            "default",
            {"metadata": "x"},
            400,
            'metadata: expected an object, got "x"',
        ),
        (SERVICE, "default", service(labels={"a": 1}), 400, "metadata.labels: must be a map of strings"),
        (SERVICE, "default", service(""), 422, "metadata.name: Required value: name or generateName is required"),
        (SERVICE, "nowhere", service(), 404, 'namespaces "nowhere" not found'),
        (NODE, "", {"metadata": {"name": "n", "namespace": "x"}}, 400, "the namespace of the provided object"),
        (SERVICE, "default", service("taken"), 409, 'services "taken" already exists'),
        (NAMESPACE, "", {"metadata": {"name": "default"}}, 409, 'namespaces "default" already exists'),
    ],
)
def test_refused_creates(kind: Kind, namespace: str, obj: Json, code: int, text: str) -> None:
    api = new_api()
    api.create(Request(SERVICE, "default"), service("taken"))
    revision = api.store.revision
    refused(code, text, lambda: api.create(Request(kind, namespace), obj))
    assert api.store.revision == revision


def test_a_refused_create_holds_no_address() -> None:
    api = new_api()
    api.create(Request(SERVICE, "default"), service("a"))
    wanted = "10.96.0.7"
    refused(409, "already exists", lambda: api.create(Request(SERVICE, "default"), _with_ip(service("a"), wanted)))
    assert api.create(Request(SERVICE, "default"), _with_ip(service("b"), wanted)).copy()["spec"]["clusterIP"] == wanted


def _with_ip(obj: Json, address: str) -> Json:
    return {**obj, "spec": {**obj["spec"], "clusterIP": address}}


@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete"])
def test_dry_run_changes_nothing(verb: str) -> None:
    api = new_api()
    before = api.create(Request(SERVICE, "default"), service()).copy()
    revision = api.store.revision
    changed = {**before, "metadata": {**before["metadata"], "labels": {"a": "b"}}}
    shown = {
        "create": lambda: api.create(Request(SERVICE, "default", dry_run=True), service("new")),
        "update": lambda: api.update(Request(SERVICE, "default", "web", dry_run=True), changed),
        "patch": lambda: api.patch(
            Request(SERVICE, "default", "web", dry_run=True), MERGE_PATCH, {"metadata": {"labels": {"a": "b"}}}
        ),
        "delete": lambda: api.delete(Request(SERVICE, "default", "web", dry_run=True)),
    }[verb]()
    assert shown.obj["metadata"]["uid"]
    assert api.store.revision == revision
    assert api.list(Request(SERVICE)).items == [before]


def test_update_takes_the_content_and_keeps_the_servers_metadata() -> None:
    api = new_api()
    created = api.create(Request(POD, "default"), pod()).copy()
    sent = {**created, "metadata": {**created["metadata"], "labels": {"a": "1"}, "creationTimestamp": None}}
    updated = api.update(Request(POD, "default", "p"), {**sent, "status": {"phase": "Failed"}}).copy()
    assert updated["metadata"] == {**created["metadata"], "labels": {"a": "1"}, "resourceVersion": "4"}
    assert updated["status"] == created["status"], "status changes through its subresource only"


def test_an_update_that_changes_nothing_is_no_commit() -> None:
    api = new_api()
    created = api.create(Request(SERVICE, "default"), service()).copy()
    before = api.store.revision
    assert api.update(Request(SERVICE, "default", "web"), created).copy() == created
    assert api.store.revision == before


def test_status_takes_only_status() -> None:
    api = new_api()
    created = api.create(Request(POD, "default"), pod()).copy()
    sent: Json = {**created, "spec": {"nodeName": "elsewhere"}, "status": {"phase": "Running", "podIP": "10.244.0.9"}}
    updated = api.update(Request(POD, "default", "p", subresource="status"), sent).copy()
    assert updated["spec"] == created["spec"]
    assert updated["status"]["podIP"] == "10.244.0.9"
    patched = api.patch(
        Request(POD, "default", "p", subresource="status"), MERGE_PATCH, {"status": {"phase": "Failed"}, "spec": None}
    ).copy()
    assert (patched["spec"], patched["status"]["phase"]) == (created["spec"], "Failed")


@pytest.mark.parametrize(
    ("kind", "creates"),
    [(SERVICE, True), (ENDPOINTS, True), (EVENT, True), (LEASE, True), (POD, False), (ENDPOINT_SLICE, False)],
)
def test_put_of_a_new_name(kind: Kind, creates: bool) -> None:
    objects: dict[Kind, Json] = {
        SERVICE: service(),
        ENDPOINTS: {"metadata": {"name": "web"}, "subsets": []},
        EVENT: {"metadata": {"name": "web"}, "involvedObject": {"namespace": "default"}},
        LEASE: {"metadata": {"name": "web"}, "spec": {"holderIdentity": "me"}},
        POD: pod("web"),
        ENDPOINT_SLICE: {"metadata": {"name": "web"}, "addressType": "IPv4", "endpoints": []},
    }
    api = new_api()
    if creates:
        assert api.update(Request(kind, "default", "web"), objects[kind]).copy()["metadata"]["uid"] == "uid-2"
    else:
        refused(404, '"web" not found', lambda: api.update(Request(kind, "default", "web"), objects[kind]))


def test_generation_of_a_slice_counts_changes_of_content_and_labels() -> None:
    api = new_api()
    created = api.create(
        Request(ENDPOINT_SLICE, "default"), {"metadata": {"name": "e"}, "addressType": "IPv4", "endpoints": []}
    ).copy()
    assert created["metadata"]["generation"] == 1
    labelled = api.patch(
        Request(ENDPOINT_SLICE, "default", "e"), MERGE_PATCH, {"metadata": {"labels": {"a": "b"}}}
    ).copy()
    assert labelled["metadata"]["generation"] == 2
    noted = api.patch(
        Request(ENDPOINT_SLICE, "default", "e"), MERGE_PATCH, {"metadata": {"annotations": {"a": "b"}}}
    ).copy()
    assert noted["metadata"]["generation"] == 2
    endpoints = [{"addresses": ["10.1.2.3"]}]
    changed = api.patch(Request(ENDPOINT_SLICE, "default", "e"), MERGE_PATCH, {"endpoints": endpoints}).copy()
    assert changed["metadata"]["generation"] == 3


def test_a_strategic_patch_merges_by_the_schemas_keys() -> None:
    api = new_api()
    api.create(Request(SERVICE, "default"), {**service(), "spec": {"ports": [{"name": "a", "port": 80}]}})
    ports = [{"name": "b", "port": 81}]
    changed = api.patch(Request(SERVICE, "default", "web"), STRATEGIC_MERGE_PATCH, {"spec": {"ports": ports}}).copy()
    assert sorted(port["port"] for port in changed["spec"]["ports"]) == [80, 81]


def test_a_json_patch_sees_the_stored_object() -> None:
    api = new_api()
    created = api.create(Request(SERVICE, "default"), service()).copy()
    test = [{"op": "test", "path": "/spec/clusterIP", "value": created["spec"]["clusterIP"]}]
    add = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
    assert api.patch(Request(SERVICE, "default", "web"), JSON_PATCH, test + add).copy()["metadata"]["labels"] == {
        "a": "b"
    }


@pytest.mark.parametrize("status", [{"podIP": "soon"}, {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "soon"}]}])
def test_a_pod_has_no_address_that_is_none(status: Json) -> None:
    api = new_api()
    refused(422, 'Invalid value: "soon"', lambda: api.create(Request(POD, "default"), {**pod(), "status": status}))
    made = {**api.create(Request(POD, "default"), pod()).copy(), "status": status}
    refused(422, 'Invalid value: "soon"', lambda: api.update(Request(POD, "default", "p", subresource="status"), made))
    good = {**made, "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}}
    assert api.update(Request(POD, "default", "p", subresource="status"), good).copy()["status"]["podIP"] == "10.0.0.1"


@pytest.mark.parametrize("metadata", [{"labels": {"80%": "x"}}, {"ownerReferences": [{"uid": "a"}]}])
def test_metadata_is_checked_through_the_status_too(metadata: Json) -> None:
    api = new_api()
    made = api.create(Request(SERVICE, "default"), service()).copy()
    wrong = {**made, "metadata": {**made["metadata"], **metadata}}
    refused(422, "Invalid value", lambda: api.update(Request(SERVICE, "default", "web", subresource="status"), wrong))


def test_lists_and_watches_select() -> None:
    api = new_api()
    watch = api.watch(Request(POD, "default"), ListOptions(label_selector="app=x", field_selector="metadata.name!=b"))
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        api.create(Request(POD, "default"), pod(name, labels={"app": app}))
    found = api.list(Request(POD, "default"), ListOptions(label_selector="app=x", field_selector="metadata.name!=b"))
    assert [obj["metadata"]["name"] for obj in found.items] == ["a"]
    assert [event.stored.obj for event in watch.take()] == found.items
    refused(400, "unable to parse requirement", lambda: api.list(Request(POD), ListOptions(label_selector="a=b=c")))
    refused(400, "field label not supported", lambda: api.list(Request(POD), ListOptions(field_selector="spec.x=y")))


def test_the_status_leaves_generate_name_as_it_is() -> None:
    api = new_api()
    api.create(Request(POD, "default"), pod("p", generateName="web-"))
    api.patch(
        Request(POD, "default", "p", subresource="status"), MERGE_PATCH, {"metadata": {"generateName": "No Name"}}
    )
    assert api.get(Request(POD, "default", "p"))["metadata"]["generateName"] == "web-"
    api.patch(Request(POD, "default", "p"), MERGE_PATCH, {"metadata": {"labels": {"a": "b"}}})


def test_an_event_owns_nothing() -> None:
    owner = {"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}
    refused(
        422,
        'metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"e","uid":"u"}: '
        "/v1, Kind=Event is disallowed from being an owner",
        lambda: new_api().create(Request(POD, "default"), pod("p", ownerReferences=[owner])),
    )


def test_a_json_patch_finds_what_go_writes_of_absent_fields() -> None:
    """As with kube-apiserver, `resources` of a container is there to add limits to."""
    api = new_api()
    container = {"name": "c", "image": "i"}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    api.create(Request(DEPLOYMENT, "default"), {"metadata": {"name": "web"}, "spec": spec})
    path = "/spec/template/spec/containers/0/resources/limits"
    add = [{"op": "add", "path": path, "value": {"cpu": "1"}}]
    changed = api.patch(Request(DEPLOYMENT, "default", "web"), JSON_PATCH, add).copy()
    assert changed["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1"}
