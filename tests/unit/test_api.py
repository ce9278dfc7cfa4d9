"""The verbs: what the API does alike for every kind, over the real strategies."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from kdns.controlplane.api import Api
from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.controlplane.kinds import ENDPOINT_SLICE, ENDPOINTS, EVENT, NAMESPACE, NODE, POD, SERVICE, Json, Kind
from kdns.controlplane.patch import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from kdns.controlplane.status import StatusError
from kdns.controlplane.store import Store
from kdns.controlplane.strategy import Strategies

HEADLESS: Json = {"clusterIP": "None", "ports": [{"port": 80}]}
NOW_S = 1_700_000_000.0
NOW = "2023-11-14T22:13:20Z"


def new_api(store: Store | None = None, grace_s: Callable[[Kind, Json, int | None], int] | None = None) -> Api:
    uids, suffixes = count(1), count(1)
    options: dict[str, Any] = {"grace_s": grace_s} if grace_s else {}
    strategies = Strategies(ClusterConfig(), lambda _: 0)
    if store is None:
        store = Store()
    api = Api(store, strategies, lambda: NOW_S, lambda: f"uid-{next(uids)}", lambda: f"s{next(suffixes):04}", **options)
    if not api.list(NAMESPACE, None).items:
        api.create(NAMESPACE, "", {"metadata": {"name": "default"}})
    return api


def service(name: str = "web", **metadata: Any) -> Json:
    return {"metadata": {"name": name, **metadata}, "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}}


def pod(name: str = "p", **metadata: Any) -> Json:
    return {"metadata": {"name": name, **metadata}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def refused(code: int, text: str, call: Callable[[], object]) -> StatusError:
    with pytest.raises(StatusError) as caught:
        call()
    assert (caught.value.code, text in caught.value.message) == (code, True), caught.value.message
    return caught.value


def test_create_fills_the_servers_metadata() -> None:
    api = new_api()
    sent = service(uid="mine", creationTimestamp="1999-01-01T00:00:00Z", generation=7, deletionTimestamp="x")
    created = api.create(SERVICE, "default", sent)
    assert created["metadata"] == {
        "name": "web",
        "namespace": "default",
        "uid": "uid-2",
        "creationTimestamp": NOW,
        "resourceVersion": "3",
    }
    assert (created["kind"], created["apiVersion"]) == ("Service", "v1")
    assert sent["metadata"]["uid"] == "mine", "what the caller passes in is not changed"
    assert api.get(SERVICE, "default", "web") == created


def test_what_get_returns_is_the_callers() -> None:
    api = new_api()
    api.create(SERVICE, "default", service())
    api.get(SERVICE, "default", "web")["spec"]["type"] = "Changed"
    assert api.get(SERVICE, "default", "web")["spec"]["type"] == "ClusterIP"


def test_generate_name_avoids_what_is_there() -> None:
    api = new_api()
    api.create(POD, "default", pod("web-s0001"))
    generated = api.create(POD, "default", pod("", generateName="web-"))
    assert generated["metadata"]["name"] == "web-s0002"
    long = api.create(POD, "default", pod("", generateName="a" * 70))
    assert long["metadata"]["name"] == "a" * 58 + "s0003"


@pytest.mark.parametrize(
    ("kind", "namespace", "obj", "code", "text"),
    [
        (
            SERVICE,
            "default",
            {**service(), "apiVersion": "v2"},
            400,
            "(v2) does not match the expected API version (v1)",
        ),
        (SERVICE, "default", {**service(), "kind": "Pod"}, 400, 'Pod in version "v1" cannot be handled as a Service'),
        (SERVICE, "default", service(namespace="other"), 400, "the namespace of the provided object does not match"),
        (SERVICE, "default", service(resourceVersion="5"), 500, "resourceVersion should not be set"),
        (SERVICE, "default", {"metadata": [], "spec": {}}, 422, "metadata.name: Required value"),
        (SERVICE, "default", {"metadata": "x"}, 400, "metadata: found str, wanted an object"),
        (SERVICE, "default", service(labels={"a": 1}), 400, "metadata.labels: wanted an object of texts"),
        (SERVICE, "default", service(""), 422, "metadata.name: Required value: name or generateName is required"),
        (SERVICE, "nowhere", service(), 404, 'namespaces "nowhere" not found'),
        (NODE, "", {"metadata": {"name": "n", "namespace": "x"}}, 400, "the namespace of the provided object"),
        (SERVICE, "default", service("taken"), 409, 'services "taken" already exists'),
        (NAMESPACE, "", {"metadata": {"name": "default"}}, 409, 'namespaces "default" already exists'),
    ],
)
def test_refused_creates(kind: Kind, namespace: str, obj: Json, code: int, text: str) -> None:
    api = new_api()
    api.create(SERVICE, "default", service("taken"))
    revision = api.store.revision
    refused(code, text, lambda: api.create(kind, namespace, obj))
    assert api.store.revision == revision


def test_a_refused_create_holds_no_address() -> None:
    api = new_api()
    api.create(SERVICE, "default", service("a"))
    wanted = "10.96.0.7"
    refused(409, "already exists", lambda: api.create(SERVICE, "default", _with_ip(service("a"), wanted)))
    assert api.create(SERVICE, "default", _with_ip(service("b"), wanted))["spec"]["clusterIP"] == wanted


def _with_ip(obj: Json, address: str) -> Json:
    return {**obj, "spec": {**obj["spec"], "clusterIP": address}}


@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete"])
def test_dry_run_changes_nothing(verb: str) -> None:
    api = new_api()
    before = api.create(SERVICE, "default", service())
    revision = api.store.revision
    changed = {**before, "metadata": {**before["metadata"], "labels": {"a": "b"}}}
    shown = {
        "create": lambda: api.create(SERVICE, "default", service("new"), dry_run=True),
        "update": lambda: api.update(SERVICE, "default", "web", changed, dry_run=True),
        "patch": lambda: api.patch(
            SERVICE, "default", "web", MERGE_PATCH, {"metadata": {"labels": {"a": "b"}}}, dry_run=True
        ),
        "delete": lambda: api.delete(SERVICE, "default", "web", dry_run=True),
    }[verb]()
    assert shown["metadata"]["uid"]
    assert api.store.revision == revision
    assert api.list(SERVICE, None).items == [before]


def test_update_takes_the_content_and_keeps_the_servers_metadata() -> None:
    api = new_api()
    created = api.create(POD, "default", pod())
    sent = {**created, "metadata": {**created["metadata"], "labels": {"a": "1"}, "creationTimestamp": None}}
    updated = api.update(POD, "default", "p", {**sent, "status": {"phase": "Failed"}})
    assert updated["metadata"] == {**created["metadata"], "labels": {"a": "1"}, "resourceVersion": "4"}
    assert updated["status"] == created["status"], "status changes through its subresource only"


def test_an_update_that_changes_nothing_is_no_commit() -> None:
    api = new_api()
    created = api.create(SERVICE, "default", service())
    before = api.store.revision
    assert api.update(SERVICE, "default", "web", created) == created
    assert api.store.revision == before


def test_status_takes_only_status() -> None:
    api = new_api()
    created = api.create(POD, "default", pod())
    sent: Json = {**created, "spec": {"nodeName": "elsewhere"}, "status": {"phase": "Running", "podIP": "10.244.0.9"}}
    updated = api.update(POD, "default", "p", sent, subresource="status")
    assert updated["spec"] == created["spec"]
    assert updated["status"]["podIP"] == "10.244.0.9"
    patched = api.patch(
        POD, "default", "p", MERGE_PATCH, {"status": {"phase": "Failed"}, "spec": None}, subresource="status"
    )
    assert (patched["spec"], patched["status"]["phase"]) == (created["spec"], "Failed")


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (
            {"resourceVersion": "2"},
            409,
            "the object has been modified; please apply your changes to the latest version",
        ),
        ({"resourceVersion": "x"}, 500, "invalid syntax"),
        ({"uid": "another"}, 409, "Precondition failed: UID in precondition: another, UID in object meta: uid-2"),
        ({"name": "other"}, 400, "the name of the object (other) does not match the name on the URL (web)"),
        ({"namespace": "other"}, 400, "the namespace of the provided object does not match"),
    ],
)
def test_refused_updates(change: Json, code: int, text: str) -> None:
    api = new_api()
    created = api.create(SERVICE, "default", service())
    api.patch(SERVICE, "default", "web", MERGE_PATCH, {"metadata": {"labels": {"a": "b"}}})
    sent = {**created, "metadata": {**created["metadata"], "resourceVersion": "", **change}}
    refused(code, text, lambda: api.update(SERVICE, "default", "web", sent))
    refused(code, text, lambda: api.patch(SERVICE, "default", "web", MERGE_PATCH, {"metadata": change}))


def test_an_update_without_revision_is_unconditional() -> None:
    api = new_api()
    created = api.create(SERVICE, "default", service())
    del created["metadata"]["resourceVersion"]
    created["metadata"]["labels"] = {"a": "b"}
    assert api.update(SERVICE, "default", "web", created)["metadata"]["labels"] == {"a": "b"}


@pytest.mark.parametrize(
    ("kind", "creates"), [(SERVICE, True), (ENDPOINTS, True), (EVENT, True), (POD, False), (ENDPOINT_SLICE, False)]
)
def test_put_of_a_new_name(kind: Kind, creates: bool) -> None:
    objects: dict[Kind, Json] = {
        SERVICE: service(),
        ENDPOINTS: {"metadata": {"name": "web"}, "subsets": []},
        EVENT: {"metadata": {"name": "web"}, "involvedObject": {"namespace": "default"}},
        POD: pod("web"),
        ENDPOINT_SLICE: {"metadata": {"name": "web"}, "addressType": "IPv4", "endpoints": []},
    }
    api = new_api()
    if creates:
        assert api.update(kind, "default", "web", objects[kind])["metadata"]["uid"] == "uid-2"
    else:
        refused(404, '"web" not found', lambda: api.update(kind, "default", "web", objects[kind]))


def test_generation_counts_changes_of_content() -> None:
    api = new_api()
    created = api.create(ENDPOINT_SLICE, "default", {"metadata": {"name": "e"}, "addressType": "IPv4", "endpoints": []})
    assert created["metadata"]["generation"] == 1
    labelled = api.patch(ENDPOINT_SLICE, "default", "e", MERGE_PATCH, {"metadata": {"labels": {"a": "b"}}})
    assert labelled["metadata"]["generation"] == 1
    endpoints = [{"addresses": ["10.1.2.3"]}]
    changed = api.patch(ENDPOINT_SLICE, "default", "e", MERGE_PATCH, {"endpoints": endpoints})
    assert changed["metadata"]["generation"] == 2


def test_a_strategic_patch_merges_by_the_schemas_keys() -> None:
    api = new_api()
    api.create(SERVICE, "default", {**service(), "spec": {"ports": [{"name": "a", "port": 80}]}})
    ports = [{"name": "b", "port": 81}]
    changed = api.patch(SERVICE, "default", "web", STRATEGIC_MERGE_PATCH, {"spec": {"ports": ports}})
    assert sorted(port["port"] for port in changed["spec"]["ports"]) == [80, 81]


def test_a_json_patch_sees_the_stored_object() -> None:
    api = new_api()
    created = api.create(SERVICE, "default", service())
    test = [{"op": "test", "path": "/spec/clusterIP", "value": created["spec"]["clusterIP"]}]
    add = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
    assert api.patch(SERVICE, "default", "web", JSON_PATCH, test + add)["metadata"]["labels"] == {"a": "b"}


def test_delete() -> None:
    api = new_api()
    created = api.create(SERVICE, "default", service())
    last = api.delete(SERVICE, "default", "web")
    assert last["metadata"] == {**created["metadata"], "resourceVersion": "5"}
    refused(404, 'services "web" not found', lambda: api.get(SERVICE, "default", "web"))
    refused(404, 'services "web" not found', lambda: api.delete(SERVICE, "default", "web"))
    again = api.create(SERVICE, "default", _with_ip(service(), created["spec"]["clusterIP"]))
    assert again["spec"]["clusterIP"] == created["spec"]["clusterIP"], "the address was released"


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ({"preconditions": {"uid": "u"}}, 409, "UID in precondition: u, UID in object meta: uid-2"),
        ({"preconditions": {"resourceVersion": "1"}}, 409, "ResourceVersion in precondition: 1"),
        ({"propagationPolicy": "Sideways"}, 422, 'propagationPolicy: Unsupported value: "Sideways"'),
    ],
)
def test_refused_deletes(options: Json, code: int, text: str) -> None:
    api = new_api()
    api.create(SERVICE, "default", service())
    refused(code, text, lambda: api.delete(SERVICE, "default", "web", options=options))
    assert api.get(SERVICE, "default", "web")


def test_finalizers_hold_an_object() -> None:
    api = new_api()
    api.create(SERVICE, "default", service(finalizers=["example.com/a"]))
    held = api.delete(SERVICE, "default", "web")
    assert held["metadata"]["deletionTimestamp"] == NOW
    assert api.delete(SERVICE, "default", "web") == held, "a second delete changes nothing"
    api.patch(SERVICE, "default", "web", MERGE_PATCH, {"metadata": {"finalizers": None}})
    refused(404, "not found", lambda: api.get(SERVICE, "default", "web"))


def test_a_grace_period_holds_an_object_until_it_is_forced() -> None:
    api = new_api(grace_s=lambda kind, _, asked: (30 if asked is None else asked) if kind == POD else 0)
    api.create(POD, "default", pod())
    held = api.delete(POD, "default", "p")
    assert held["metadata"]["deletionTimestamp"] == "2023-11-14T22:13:50Z"
    assert held["metadata"]["deletionGracePeriodSeconds"] == 30
    api.patch(POD, "default", "p", MERGE_PATCH, {"metadata": {"labels": {"a": "b"}}})
    api.delete(POD, "default", "p", options={"gracePeriodSeconds": 0})
    assert api.list(POD, None).items == []


def owned(name: str, *owners: Json) -> Json:
    references = [
        {"apiVersion": "v1", "kind": "Service", "name": o["metadata"]["name"], "uid": o["metadata"]["uid"]}
        for o in owners
    ]
    metadata = {"name": name, "ownerReferences": references}
    return {"metadata": metadata, "addressType": "IPv4", "endpoints": []}


@pytest.mark.parametrize(
    ("policy", "left"),
    [("Background", ["both"]), ("Foreground", ["both"]), ("Orphan", ["both", "one"])],
)
def test_dependents_go_with_their_last_owner(policy: str, left: list[str]) -> None:
    api = new_api()
    a, b = (api.create(SERVICE, "default", service(name)) for name in "ab")
    api.create(ENDPOINT_SLICE, "default", owned("one", a))
    api.create(ENDPOINT_SLICE, "default", owned("both", a, b))
    api.delete(SERVICE, "default", "a", options={"propagationPolicy": policy})
    slices = {s["metadata"]["name"]: s["metadata"].get("ownerReferences") for s in api.list(ENDPOINT_SLICE, None).items}
    assert list(slices) == left
    assert [owner["name"] for owner in slices["both"] or []] == ["b"]
    api.delete(SERVICE, "default", "b")
    assert [s["metadata"]["name"] for s in api.list(ENDPOINT_SLICE, None).items] == left[1:]


@pytest.mark.parametrize("status", [{"podIP": "soon"}, {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "soon"}]}])
def test_a_pod_has_no_address_that_is_none(status: Json) -> None:
    api = new_api()
    refused(422, 'Invalid value: "soon"', lambda: api.create(POD, "default", {**pod(), "status": status}))
    made = {**api.create(POD, "default", pod()), "status": status}
    refused(422, 'Invalid value: "soon"', lambda: api.update(POD, "default", "p", made, subresource="status"))
    good = {**made, "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}}
    assert api.update(POD, "default", "p", good, subresource="status")["status"]["podIP"] == "10.0.0.1"


@pytest.mark.parametrize("marks", [{"labels": {"80%": "x"}}, {"ownerReferences": [{"uid": "a"}]}])
def test_metadata_is_checked_through_the_status_too(marks: Json) -> None:
    api = new_api()
    made = api.create(SERVICE, "default", service())
    wrong = {**made, "metadata": {**made["metadata"], **marks}}
    refused(422, "Invalid value", lambda: api.update(SERVICE, "default", "web", wrong, subresource="status"))


def test_a_long_chain_of_owners_goes_whole() -> None:
    api, references = new_api(), list[Json]()
    for number in range(1200):
        name = f"s{number}"
        made = api.create(SERVICE, "default", {**service(name, ownerReferences=references), "spec": HEADLESS})
        references = [{"apiVersion": "v1", "kind": "Service", "name": name, "uid": made["metadata"]["uid"]}]
    api.delete(SERVICE, "default", "s0")
    assert api.list(SERVICE, None).items == []


def test_a_namespace_is_born_active() -> None:
    created = new_api().get(NAMESPACE, "", "default")
    assert created["metadata"]["labels"] == {"kubernetes.io/metadata.name": "default"}
    assert created["spec"] == {"finalizers": ["kubernetes"]}
    assert created["status"] == {"phase": "Active"}


def test_a_namespace_goes_with_its_content() -> None:
    api = new_api()
    api.create(NAMESPACE, "", {"metadata": {"name": "x"}})
    api.create(SERVICE, "x", service())
    api.create(POD, "x", pod())
    api.create(SERVICE, "default", service())
    events = api.watch(NAMESPACE, None, resource_version=str(api.store.revision))
    assert api.delete(NAMESPACE, "", "x")["status"]["phase"] == "Terminating"
    assert [event.type for event in events.take()] == ["MODIFIED", "DELETED"]
    assert [kept["metadata"]["namespace"] for kept in api.list(SERVICE, None).items] == ["default"]
    assert api.list(POD, None).items == []


def test_a_namespace_waits_for_what_is_held() -> None:
    api = new_api()
    api.create(NAMESPACE, "", {"metadata": {"name": "x"}})
    api.create(SERVICE, "x", service(finalizers=["example.com/a"]))
    api.delete(NAMESPACE, "", "x")
    assert api.get(NAMESPACE, "", "x")["status"]["phase"] == "Terminating"
    error = refused(
        403,
        'services "late" is forbidden: unable to create new content in namespace x because it is being terminated',
        lambda: api.create(SERVICE, "x", service("late")),
    )
    assert error.body()["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    api.patch(SERVICE, "x", "web", MERGE_PATCH, {"metadata": {"finalizers": []}})
    refused(404, 'namespaces "x" not found', lambda: api.get(NAMESPACE, "", "x"))


@pytest.mark.parametrize(
    ("born_with", "subresource", "freed"),
    [
        ({"metadata": {"finalizers": ["example.com/a"]}}, "", {"metadata": {"finalizers": []}}),
        ({"spec": {"finalizers": ["example.com/a"]}}, "finalize", {"spec": {"finalizers": []}}),
    ],
)
def test_a_namespace_waits_for_its_own_finalizers(born_with: Json, subresource: str, freed: Json) -> None:
    api = new_api()
    api.create(NAMESPACE, "", {**born_with, "metadata": {"name": "x", **born_with.get("metadata", {})}})
    api.delete(NAMESPACE, "", "x")
    terminating = api.get(NAMESPACE, "", "x")
    assert terminating["status"]["phase"] == "Terminating"
    changed = {**terminating, **freed, "metadata": {**terminating["metadata"], **freed.get("metadata", {})}}
    api.update(NAMESPACE, "", "x", changed, subresource=subresource)
    refused(404, 'namespaces "x" not found', lambda: api.get(NAMESPACE, "", "x"))


def test_some_namespaces_stay() -> None:
    api = new_api()
    refused(403, "this namespace may not be deleted", lambda: api.delete(NAMESPACE, "", "default"))


def test_what_was_listed_is_deleted_as_far_as_it_is_there() -> None:
    api = new_api()
    for name, app in (("a", "x"), ("b", "y"), ("c", "x")):
        api.create(SERVICE, "default", service(name, labels={"app": app}))
    listed = api.list(SERVICE, "default", label_selector="app=x")
    api.delete(SERVICE, "default", "c")
    api.delete_all(SERVICE, listed.stored, dry_run=True)
    assert len(api.list(SERVICE, None).items) == 2
    api.delete_all(SERVICE, listed.stored)
    assert [obj["metadata"]["name"] for obj in api.list(SERVICE, None).items] == ["b"]


def test_lists_and_watches_select() -> None:
    api = new_api()
    watch = api.watch(POD, "default", label_selector="app=x", field_selector="metadata.name!=b")
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        api.create(POD, "default", pod(name, labels={"app": app}))
    found = api.list(POD, "default", label_selector="app=x", field_selector="metadata.name!=b")
    assert [obj["metadata"]["name"] for obj in found.items] == ["a"]
    assert [event.stored.obj for event in watch.take()] == found.items
    refused(400, "unable to parse requirement", lambda: api.list(POD, None, label_selector="a=b=c"))
    refused(400, "field label not supported", lambda: api.list(POD, None, field_selector="spec.x=y"))


def test_a_restart_knows_allocations_and_owners() -> None:
    first = new_api()
    owner = first.create(SERVICE, "default", _with_ip(service(), "10.96.0.9"))
    first.create(ENDPOINT_SLICE, "default", owned("one", owner))
    stored = [*first.list(SERVICE, None).stored, *first.list(ENDPOINT_SLICE, None).stored]
    stored += first.list(NAMESPACE, None).stored
    api = new_api(Store(stored, revision=first.store.revision))
    refused(422, "already allocated", lambda: api.create(SERVICE, "default", _with_ip(service("b"), "10.96.0.9")))
    api.delete(SERVICE, "default", "web")
    assert api.list(ENDPOINT_SLICE, None).items == []
