"""The verb delete: finalizers, dependents, and namespaces."""

from __future__ import annotations

import pytest
from verbs_api import NOW, new_api, pod, refused, service

from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, NAMESPACE, POD, SERVICE, Json
from kdns.controlplane.server.patch import MERGE_PATCH
from kdns.controlplane.server.registry import Request
from kdns.controlplane.storage.listing import ListOptions
from kdns.controlplane.storage.store import Store


def _with_ip(obj: Json, address: str) -> Json:
    return {**obj, "spec": {**obj["spec"], "clusterIP": address}}


def test_delete() -> None:
    api = new_api()
    created = api.create(Request(SERVICE, "default"), service()).copy()
    last = api.delete(Request(SERVICE, "default", "web")).copy()
    assert last["metadata"] == {**created["metadata"], "resourceVersion": "5"}
    refused(404, 'services "web" not found', lambda: api.get(Request(SERVICE, "default", "web")))
    refused(404, 'services "web" not found', lambda: api.delete(Request(SERVICE, "default", "web")))
    again = api.create(Request(SERVICE, "default"), _with_ip(service(), created["spec"]["clusterIP"])).copy()
    assert again["spec"]["clusterIP"] == created["spec"]["clusterIP"], "the address was released"


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ({"propagationPolicy": "Sideways"}, 422, 'propagationPolicy: Unsupported value: "Sideways"'),
    ],
)
def test_refused_deletes(options: Json, code: int, text: str) -> None:
    api = new_api()
    api.create(Request(SERVICE, "default"), service())
    refused(code, text, lambda: api.delete(Request(SERVICE, "default", "web"), options=options))
    assert api.get(Request(SERVICE, "default", "web"))


def test_finalizers_hold_an_object() -> None:
    api = new_api()
    api.create(Request(SERVICE, "default"), service(finalizers=["example.com/a"]))
    held = api.delete(Request(SERVICE, "default", "web")).copy()
    assert held["metadata"]["deletionTimestamp"] == NOW
    assert api.delete(Request(SERVICE, "default", "web")).copy() == held, "a second delete changes nothing"
    api.patch(Request(SERVICE, "default", "web"), MERGE_PATCH, {"metadata": {"finalizers": None}})
    refused(404, "not found", lambda: api.get(Request(SERVICE, "default", "web")))


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
    a, b = (api.create(Request(SERVICE, "default"), service(name)).copy() for name in "ab")
    api.create(Request(ENDPOINT_SLICE, "default"), owned("one", a))
    api.create(Request(ENDPOINT_SLICE, "default"), owned("both", a, b))
    api.delete(Request(SERVICE, "default", "a"), options={"propagationPolicy": policy})
    slices = {
        s["metadata"]["name"]: s["metadata"].get("ownerReferences") for s in api.list(Request(ENDPOINT_SLICE)).items
    }
    assert list(slices) == left
    assert [owner["name"] for owner in slices["both"] or []] == ["b"]
    api.delete(Request(SERVICE, "default", "b"))
    assert [s["metadata"]["name"] for s in api.list(Request(ENDPOINT_SLICE)).items] == left[1:]


def test_a_namespace_is_born_active() -> None:
    created = new_api().get(Request(NAMESPACE, "", "default"))
    assert created["metadata"]["labels"] == {"kubernetes.io/metadata.name": "default"}
    assert created["spec"] == {"finalizers": ["kubernetes"]}
    assert created["status"] == {"phase": "Active"}


def test_a_namespace_goes_with_its_content() -> None:
    api = new_api()
    api.create(Request(NAMESPACE), {"metadata": {"name": "x"}})
    api.create(Request(SERVICE, "x"), service())
    api.create(Request(POD, "x"), pod())
    api.create(Request(SERVICE, "default"), service())
    events = api.watch(Request(NAMESPACE), ListOptions(resource_version=str(api.store.revision)))
    assert api.delete(Request(NAMESPACE, "", "x")).copy()["status"]["phase"] == "Terminating"
    assert [event.type for event in events.take()] == ["MODIFIED", "DELETED"]
    assert [kept["metadata"]["namespace"] for kept in api.list(Request(SERVICE)).items] == ["default"]
    assert api.list(Request(POD)).items == []


def test_a_namespace_waits_for_what_is_held() -> None:
    api = new_api()
    api.create(Request(NAMESPACE), {"metadata": {"name": "x"}})
    api.create(Request(SERVICE, "x"), service(finalizers=["example.com/a"]))
    api.delete(Request(NAMESPACE, "", "x"))
    assert api.get(Request(NAMESPACE, "", "x"))["status"]["phase"] == "Terminating"
    error = refused(
        403,
        'services "late" is forbidden: unable to create new content in namespace x because it is being terminated',
        lambda: api.create(Request(SERVICE, "x"), service("late")),
    )
    assert error.body()["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    api.patch(Request(SERVICE, "x", "web"), MERGE_PATCH, {"metadata": {"finalizers": []}})
    refused(404, 'namespaces "x" not found', lambda: api.get(Request(NAMESPACE, "", "x")))


def test_some_namespaces_stay() -> None:
    api = new_api()
    refused(403, "this namespace may not be deleted", lambda: api.delete(Request(NAMESPACE, "", "default")))


def test_what_was_listed_is_deleted_as_far_as_it_is_there() -> None:
    api = new_api()
    for name, app in (("a", "x"), ("b", "y"), ("c", "x")):
        api.create(Request(SERVICE, "default"), service(name, labels={"app": app}))
    listed = api.list(Request(SERVICE, "default"), ListOptions(label_selector="app=x"))
    api.delete(Request(SERVICE, "default", "c"))
    api.delete_all(Request(SERVICE, dry_run=True), listed.stored)
    assert len(api.list(Request(SERVICE)).items) == 2
    api.delete_all(Request(SERVICE), listed.stored)
    assert [obj["metadata"]["name"] for obj in api.list(Request(SERVICE)).items] == ["b"]


def test_a_restart_knows_allocations_and_owners() -> None:
    first = new_api()
    owner = first.create(Request(SERVICE, "default"), _with_ip(service(), "10.96.0.9")).obj
    first.create(Request(ENDPOINT_SLICE, "default"), owned("one", owner))
    stored = [version for kind in (SERVICE, ENDPOINT_SLICE, NAMESPACE) for version in first.list(Request(kind)).stored]
    api = new_api(Store(stored, revision=first.store.revision))
    refused(
        422, "already allocated", lambda: api.create(Request(SERVICE, "default"), _with_ip(service("b"), "10.96.0.9"))
    )
    api.delete(Request(SERVICE, "default", "web"))
    assert api.list(Request(ENDPOINT_SLICE)).items == []
