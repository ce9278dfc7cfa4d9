"""The verbs that write and read: what the API does alike for every kind, with the real registry."""

import pytest
from object_api import NOW, Api, pod, refused, service

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
from kdns.controlplane.server.patch import JSON_PATCH, STRATEGIC_MERGE_PATCH
from kdns.controlplane.server.registry import Request


def test_create_fills_the_servers_metadata() -> None:
    api = Api()
    sent = service(uid="mine", creationTimestamp="1999-01-01T00:00:00Z", generation=7, deletionTimestamp="x")
    created = api.create(SERVICE, sent)
    assert created["metadata"] == {
        "name": "web",
        "namespace": "default",
        "uid": "uid-2",
        "creationTimestamp": NOW,
        "resourceVersion": "3",
    }
    assert (created["kind"], created["apiVersion"]) == ("Service", "v1")
    assert sent["metadata"]["uid"] == "mine", "what the caller passes in is not changed"
    assert api.get(SERVICE, "web") == created


def test_what_get_returns_is_the_callers() -> None:
    api = Api()
    api.create(SERVICE, service())
    api.get(SERVICE, "web")["spec"]["type"] = "Changed"
    assert api.get(SERVICE, "web")["spec"]["type"] == "ClusterIP"


def test_generate_name_avoids_what_is_there() -> None:
    api = Api()
    api.create(POD, pod("web-s0001"))
    generated = api.create(POD, pod("", generateName="web-"))
    assert generated["metadata"]["name"] == "web-s0002"
    long = api.create(POD, pod("", generateName="a" * 70))
    assert long["metadata"]["name"] == "a" * 58 + "s0003"
    for number in range(4, 14):
        api.create(POD, pod(f"web-s{number:04}"))
    why = 'pods "web-s0012" already exists, the server was not able to generate a unique name for the object'
    error = refused(409, why, lambda: api.create(POD, pod("", generateName="web-")))
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
        (SERVICE, "default", {"metadata": "x"}, 400, 'metadata: expected an object, got "x"'),
        (SERVICE, "default", service(labels={"a": 1}), 400, "metadata.labels: must be a map of strings"),
        (SERVICE, "default", service(""), 422, "metadata.name: Required value: name or generateName is required"),
        (SERVICE, "nowhere", service(), 404, 'namespaces "nowhere" not found'),
        (NODE, "", {"metadata": {"name": "n", "namespace": "x"}}, 400, "the namespace of the provided object"),
        (SERVICE, "default", service("taken"), 409, 'services "taken" already exists'),
        (NAMESPACE, "", {"metadata": {"name": "default"}}, 409, 'namespaces "default" already exists'),
    ],
)
def test_refused_creates(kind: Kind, namespace: str, obj: Json, code: int, text: str) -> None:
    api = Api()
    api.create(SERVICE, service("taken"))
    revision = api.store.revision
    refused(code, text, lambda: api.create(kind, obj, namespace=namespace))
    assert api.store.revision == revision


def test_a_refused_create_holds_no_address() -> None:
    api = Api()
    api.create(SERVICE, service("a"))
    wanted = "10.96.0.7"
    refused(409, "already exists", lambda: api.create(SERVICE, _with_ip(service("a"), wanted)))
    assert api.create(SERVICE, _with_ip(service("b"), wanted))["spec"]["clusterIP"] == wanted


def _with_ip(obj: Json, address: str) -> Json:
    return {**obj, "spec": {**obj["spec"], "clusterIP": address}}


def test_the_trial_of_a_successor_frees_nothing() -> None:
    api = Api()
    address = api.create(SERVICE, service("a"))["spec"]["clusterIP"]
    api.registry.check_successor(Request(SERVICE, "default", "a"), _with_ip(service("a"), address))
    refused(422, "already allocated", api.create, SERVICE, _with_ip(service("b"), address))


@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete"])
def test_dry_run_changes_nothing(verb: str) -> None:
    api = Api()
    before = api.create(SERVICE, service())
    revision = api.store.revision
    changed = {**before, "metadata": {**before["metadata"], "labels": {"a": "b"}}}
    shown = {
        "create": lambda: api.create(SERVICE, service("new"), dry_run=True),
        "update": lambda: api.update(SERVICE, "web", changed, dry_run=True),
        "patch": lambda: api.patch(SERVICE, "web", {"metadata": {"labels": {"a": "b"}}}, dry_run=True),
        "delete": lambda: api.delete(SERVICE, "web", dry_run=True),
    }[verb]()
    assert shown["metadata"]["uid"]
    assert api.store.revision == revision
    assert api.items(SERVICE) == [before]


def test_update_takes_the_content_and_keeps_the_servers_metadata() -> None:
    api = Api()
    created = api.create(POD, pod())
    sent = {**created, "metadata": {**created["metadata"], "labels": {"a": "1"}, "creationTimestamp": None}}
    updated = api.update(POD, "p", {**sent, "status": {"phase": "Failed"}})
    assert updated["metadata"] == {**created["metadata"], "labels": {"a": "1"}, "resourceVersion": "4"}
    assert updated["status"] == created["status"], "status changes through its subresource only"


def test_an_update_that_changes_nothing_is_no_commit() -> None:
    api = Api()
    created = api.create(SERVICE, service())
    before = api.store.revision
    assert api.update(SERVICE, "web", created) == created
    assert api.store.revision == before


def test_status_takes_only_status() -> None:
    api = Api()
    created = api.create(POD, pod())
    sent: Json = {**created, "spec": {"nodeName": "elsewhere"}, "status": {"phase": "Running", "podIP": "10.244.0.9"}}
    updated = api.update(POD, "p", sent, subresource="status")
    assert updated["spec"] == created["spec"]
    assert updated["status"]["podIP"] == "10.244.0.9"
    patched = api.patch(POD, "p", {"status": {"phase": "Failed"}, "spec": None}, subresource="status")
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
    api = Api()
    if creates:
        assert api.update(kind, "web", objects[kind])["metadata"]["uid"] == "uid-2"
    else:
        refused(404, '"web" not found', lambda: api.update(kind, "web", objects[kind]))


def test_generation_of_a_slice_counts_changes_of_content_and_labels() -> None:
    api = Api()
    created = api.create(ENDPOINT_SLICE, {"metadata": {"name": "e"}, "addressType": "IPv4", "endpoints": []})
    assert created["metadata"]["generation"] == 1
    labelled = api.patch(ENDPOINT_SLICE, "e", {"metadata": {"labels": {"a": "b"}}})
    assert labelled["metadata"]["generation"] == 2
    noted = api.patch(ENDPOINT_SLICE, "e", {"metadata": {"annotations": {"a": "b"}}})
    assert noted["metadata"]["generation"] == 2
    endpoints = [{"addresses": ["10.1.2.3"]}]
    changed = api.patch(ENDPOINT_SLICE, "e", {"endpoints": endpoints})
    assert changed["metadata"]["generation"] == 3


def test_a_strategic_patch_merges_by_the_schemas_keys() -> None:
    api = Api()
    api.create(SERVICE, {**service(), "spec": {"ports": [{"name": "a", "port": 80}]}})
    ports = [{"name": "b", "port": 81}]
    changed = api.patch(SERVICE, "web", {"spec": {"ports": ports}}, STRATEGIC_MERGE_PATCH)
    assert sorted(port["port"] for port in changed["spec"]["ports"]) == [80, 81]


def test_a_json_patch_sees_the_stored_object() -> None:
    api = Api()
    created = api.create(SERVICE, service())
    test = [{"op": "test", "path": "/spec/clusterIP", "value": created["spec"]["clusterIP"]}]
    add = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
    assert api.patch(SERVICE, "web", test + add, JSON_PATCH)["metadata"]["labels"] == {"a": "b"}


@pytest.mark.parametrize("status", [{"podIP": "soon"}, {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "soon"}]}])
def test_a_pod_has_no_address_that_is_none(status: Json) -> None:
    api = Api()
    refused(422, 'Invalid value: "soon"', lambda: api.create(POD, {**pod(), "status": status}))
    made = {**api.create(POD, pod()), "status": status}
    refused(422, 'Invalid value: "soon"', lambda: api.update(POD, "p", made, subresource="status"))
    good = {**made, "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}}
    assert api.update(POD, "p", good, subresource="status")["status"]["podIP"] == "10.0.0.1"


@pytest.mark.parametrize("metadata", [{"labels": {"80%": "x"}}, {"ownerReferences": [{"uid": "a"}]}])
def test_metadata_is_checked_through_the_status_too(metadata: Json) -> None:
    api = Api()
    made = api.create(SERVICE, service())
    wrong = {**made, "metadata": {**made["metadata"], **metadata}}
    refused(422, "Invalid value", lambda: api.update(SERVICE, "web", wrong, subresource="status"))


def test_lists_and_watches_select() -> None:
    api = Api()
    watch = api.watch(POD, "default", label_selector="app=x", field_selector="metadata.name!=b")
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        api.create(POD, pod(name, labels={"app": app}))
    found = api.listed(POD, "default", label_selector="app=x", field_selector="metadata.name!=b")
    assert [obj["metadata"]["name"] for obj in found.items] == ["a"]
    assert [event.stored.obj for event in watch.take()] == found.items
    refused(400, "unable to parse requirement", lambda: api.listed(POD, label_selector="a=b=c"))
    refused(400, "field label not supported", lambda: api.listed(POD, field_selector="spec.x=y"))


def test_the_status_leaves_generate_name_as_it_is() -> None:
    api = Api()
    api.create(POD, pod("p", generateName="web-"))
    api.patch(POD, "p", {"metadata": {"generateName": "No Name"}}, subresource="status")
    assert api.get(POD, "p")["metadata"]["generateName"] == "web-"
    api.patch(POD, "p", {"metadata": {"labels": {"a": "b"}}})


def test_an_event_owns_nothing() -> None:
    owner = {"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}
    refused(
        422,
        'metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"e","uid":"u"}: '
        "/v1, Kind=Event is disallowed from being an owner",
        lambda: Api().create(POD, pod("p", ownerReferences=[owner])),
    )


def test_a_json_patch_finds_what_go_writes_of_absent_fields() -> None:
    """As with kube-apiserver, `resources` of a container is there to add limits to."""
    api = Api()
    container = {"name": "c", "image": "i"}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    api.create(DEPLOYMENT, {"metadata": {"name": "web"}, "spec": spec})
    path = "/spec/template/spec/containers/0/resources/limits"
    add = [{"op": "add", "path": path, "value": {"cpu": "1"}}]
    changed = api.patch(DEPLOYMENT, "web", add, JSON_PATCH)
    assert changed["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1"}
