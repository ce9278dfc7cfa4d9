"""Deletion: grace periods, finalizers, owners and dependents, namespaces; with a clock of the test."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from verbs_api import new_registry, refused

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.inert import LEASE
from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, JOB, NAMESPACE, POD, Json, Kind
from kdns.controlplane.server.patch import MERGE_PATCH
from kdns.controlplane.server.registry import Registry, Request

START_S = 1_700_000_000


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = float(START_S)

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def api(clock: Clock) -> Registry:
    api = new_registry(now_s=clock, grace=True)
    for name in "xy":
        api.create(Request(NAMESPACE), {"metadata": {"name": name}})
    return api


def pod(name: str = "p", node: str = "n", phase: str = "", **spec: object) -> Json:
    given = {"nodeName": node} if node else {}
    status = {"status": {"phase": phase}} if phase else {}
    containers = [{"name": "c", "image": "i"}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **given, **spec}, **status}


def plain(name: str, *owners: Json, blocking: bool = False, **meta: object) -> Json:
    references = [
        {
            "apiVersion": "v1",
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            **({"blockOwnerDeletion": True} if blocking else {}),
        }
        for owner in owners
    ]
    return {"metadata": {"name": name, **({"ownerReferences": references} if references else {}), **meta}}


def names(api: Registry, kind: Kind = CONFIG_MAP, namespace: str | None = None) -> list[str]:
    return [obj["metadata"]["name"] for obj in api.list(Request(kind, namespace)).items]


def gone(api: Registry, kind: Kind, name: str) -> bool:
    try:
        api.get(Request(kind, "default", name))
    except StatusError as error:
        return error.code == 404
    return False


@pytest.mark.parametrize(
    ("obj", "asked_s", "granted_s"),
    [
        (pod(), None, 30),
        (pod(), 5, 5),
        (pod(), 0, 0),
        (pod(), -7, 1),
        (pod(terminationGracePeriodSeconds=3), None, 3),
        (pod(terminationGracePeriodSeconds=0), None, 0),
        (pod(terminationGracePeriodSeconds=3), 60, 60),
        (pod(node=""), None, 0),
        (pod(node=""), 60, 0),
        (pod(phase="Succeeded"), None, 0),
        (pod(phase="Failed"), 60, 0),
    ],
)
def test_grace(api: Registry, obj: Json, asked_s: int | None, granted_s: int) -> None:
    api.create(Request(POD, "default"), obj)
    held = api.delete(
        Request(POD, "default", "p"), options={} if asked_s is None else {"gracePeriodSeconds": asked_s}
    ).copy()
    assert gone(api, POD, "p") == (granted_s == 0)
    if granted_s:
        assert held["metadata"]["deletionGracePeriodSeconds"] == granted_s
        assert held["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("asked_s", "end", "grace_s"),
    [
        (None, "2023-11-14T22:13:50Z", 30),
        (30, "2023-11-14T22:13:50Z", 30),
        (60, "2023-11-14T22:13:50Z", 30),
        (7, "2023-11-14T22:13:27Z", 7),
        (-1, "2023-11-14T22:13:21Z", 1),
    ],
)
def test_grace_may_be_shortened_not_lengthened(
    api: Registry, clock: Clock, asked_s: int | None, end: str, grace_s: int
) -> None:
    api.create(Request(POD, "default"), pod())
    api.delete(Request(POD, "default", "p"))
    clock.now_s += 10
    held = api.delete(
        Request(POD, "default", "p"), options={} if asked_s is None else {"gracePeriodSeconds": asked_s}
    ).copy()
    marks = held["metadata"]
    assert (marks["deletionTimestamp"], marks["deletionGracePeriodSeconds"]) == (end, grace_s)
    api.delete(Request(POD, "default", "p"), options={"gracePeriodSeconds": 0})
    assert gone(api, POD, "p")


def test_a_pod_with_a_finalizer_outlives_its_grace(api: Registry) -> None:
    api.create(Request(POD, "default"), {**pod(), "metadata": {"name": "p", "finalizers": ["example.com/a"]}})
    api.delete(Request(POD, "default", "p"))
    api.delete(Request(POD, "default", "p"), options={"gracePeriodSeconds": 0})
    assert api.get(Request(POD, "default", "p"))["metadata"]["deletionGracePeriodSeconds"] == 0
    api.patch(Request(POD, "default", "p"), MERGE_PATCH, {"metadata": {"finalizers": None}})
    assert gone(api, POD, "p")


def test_what_goes_is_held_by_nobody_new(api: Registry) -> None:
    api.create(Request(CONFIG_MAP, "default"), plain("a", finalizers=["example.com/a"]))
    api.delete(Request(CONFIG_MAP, "default", "a"))
    with pytest.raises(StatusError) as refused:
        api.patch(
            Request(CONFIG_MAP, "default", "a"), MERGE_PATCH, {"metadata": {"finalizers": ["example.com/a", "b.c/d"]}}
        )
    assert refused.value.message == (
        'ConfigMap "a" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is '
        'being deleted, found new finalizers "b.c/d"'
    )
    api.create(Request(POD, "default"), {**pod(), "metadata": {"name": "p", "finalizers": ["example.com/a"]}})
    api.delete(Request(POD, "default", "p"))
    more = {"metadata": {"finalizers": ["example.com/a", "b.c/d"]}}
    with pytest.raises(StatusError, match="no new finalizers can be added"):
        api.patch(Request(POD, "default", "p", subresource="status"), MERGE_PATCH, more)
    api.patch(Request(CONFIG_MAP, "default", "a"), MERGE_PATCH, {"metadata": {"finalizers": []}})
    assert not api.list(Request(CONFIG_MAP, "default")).items


def test_a_finalizer_taken_early_does_not_end_the_grace(api: Registry) -> None:
    api.create(Request(POD, "default"), {**pod(), "metadata": {"name": "p", "finalizers": ["example.com/a"]}})
    api.delete(Request(POD, "default", "p"))
    api.patch(Request(POD, "default", "p"), MERGE_PATCH, {"metadata": {"finalizers": None}})
    assert not gone(api, POD, "p")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (
            {"propagationPolicy": "Sideways"},
            422,
            'Unsupported value: "Sideways": supported values: "Foreground", "Background", "Orphan", "nil"',
        ),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422, "cannot be both set"),
    ],
)
def test_refused(api: Registry, options: Json, code: int, message: str) -> None:
    api.create(Request(CONFIG_MAP, "default"), plain("a"))
    with pytest.raises(StatusError) as caught:
        api.delete(Request(CONFIG_MAP, "default", "a"), options=options)
    assert caught.value.code == code
    assert message in caught.value.message
    assert names(api) == ["a"]


def test_background_takes_dependents_and_theirs(api: Registry) -> None:
    a = api.create(Request(CONFIG_MAP, "default"), plain("a")).copy()
    b = api.create(Request(CONFIG_MAP, "default"), plain("b", a)).copy()
    api.create(Request(CONFIG_MAP, "default"), plain("c", b))
    api.delete(Request(CONFIG_MAP, "default", "a"))
    assert names(api) == []


@pytest.mark.parametrize("options", [{"propagationPolicy": "Orphan"}, {"orphanDependents": True}])
def test_orphans_stay_and_forget_their_owner(api: Registry, options: Json) -> None:
    a = api.create(Request(CONFIG_MAP, "default"), plain("a")).copy()
    api.create(Request(CONFIG_MAP, "default"), plain("b", a))
    api.delete(Request(CONFIG_MAP, "default", "a"), options=options)
    assert names(api) == ["b"]
    assert "ownerReferences" not in api.get(Request(CONFIG_MAP, "default", "b"))["metadata"]


def test_an_orphan_finalizer_is_the_same_wish(api: Registry) -> None:
    a = api.create(Request(CONFIG_MAP, "default"), plain("a", finalizers=["orphan"])).copy()
    api.create(Request(CONFIG_MAP, "default"), plain("b", a))
    api.delete(Request(CONFIG_MAP, "default", "a"))
    assert names(api) == ["b"]


def test_foreground_waits_for_what_blocks(api: Registry) -> None:
    a = api.create(Request(CONFIG_MAP, "default"), plain("a")).copy()
    b = api.create(Request(CONFIG_MAP, "default"), plain("b", a, blocking=True)).copy()
    api.create(Request(CONFIG_MAP, "default"), plain("c", b, blocking=True, finalizers=["example.com/a"]))
    api.create(Request(CONFIG_MAP, "default"), plain("loose", a))
    held = api.delete(Request(CONFIG_MAP, "default", "a"), options={"propagationPolicy": "Foreground"}).copy()
    assert held["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert api.get(Request(CONFIG_MAP, "default", "b"))["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert names(api) == ["a", "b", "c", "loose"]
    api.patch(Request(CONFIG_MAP, "default", "c"), MERGE_PATCH, {"metadata": {"finalizers": None}})
    assert names(api) == []


def test_foreground_ends_when_the_last_dependent_lets_go(api: Registry) -> None:
    a = api.create(Request(CONFIG_MAP, "default"), plain("a")).copy()
    api.create(Request(CONFIG_MAP, "default"), plain("b", a, blocking=True, finalizers=["example.com/a"]))
    api.delete(Request(CONFIG_MAP, "default", "a"), options={"propagationPolicy": "Foreground"})
    api.patch(Request(CONFIG_MAP, "default", "b"), MERGE_PATCH, {"metadata": {"ownerReferences": None}})
    assert names(api) == ["b"]


def test_foreground_leaves_a_dependent_with_another_owner(api: Registry) -> None:
    a, other = (api.create(Request(CONFIG_MAP, "default"), plain(name)).copy() for name in ("a", "other"))
    api.create(Request(CONFIG_MAP, "default"), plain("b", a, other, blocking=True))
    api.delete(Request(CONFIG_MAP, "default", "a"), options={"propagationPolicy": "Foreground"})
    assert names(api) == ["b", "other"]
    kept = api.get(Request(CONFIG_MAP, "default", "b"))["metadata"]["ownerReferences"]
    assert [reference["name"] for reference in kept] == ["other"]


def test_an_owner_that_is_not_there_keeps_nothing(api: Registry) -> None:
    a = api.create(Request(CONFIG_MAP, "default"), plain("a")).copy()
    absent = {"kind": "ConfigMap", "metadata": {"name": "absent", "uid": "never"}}
    api.create(Request(CONFIG_MAP, "default"), plain("b", a, absent))
    api.delete(Request(CONFIG_MAP, "default", "a"))
    assert names(api) == []


def test_a_long_chain_goes_in_the_foreground_too(api: Registry) -> None:
    owner = api.create(Request(CONFIG_MAP, "default"), plain("c0")).copy()
    for number in range(1, 1200):
        owner = api.create(Request(CONFIG_MAP, "default"), plain(f"c{number}", owner, blocking=True)).copy()
    api.delete(Request(CONFIG_MAP, "default", "c0"), options={"propagationPolicy": "Foreground"})
    assert names(api) == []


def test_a_circle_in_the_foreground_waits_for_a_client(api: Registry) -> None:
    a = api.create(Request(CONFIG_MAP, "default"), plain("a")).copy()
    b = api.create(Request(CONFIG_MAP, "default"), plain("b", a, blocking=True)).copy()
    circle = {"metadata": {"ownerReferences": plain("_", b, blocking=True)["metadata"]["ownerReferences"]}}
    api.patch(Request(CONFIG_MAP, "default", "a"), MERGE_PATCH, circle)
    api.delete(Request(CONFIG_MAP, "default", "a"), options={"propagationPolicy": "Foreground"})
    assert names(api) == ["a", "b"]
    api.patch(Request(CONFIG_MAP, "default", "a"), MERGE_PATCH, {"metadata": {"finalizers": None}})
    assert names(api) == []


def test_an_immortal_namespace_may_have_an_owner(api: Registry) -> None:
    owner = api.create(Request(CONFIG_MAP, "x"), plain("a")).copy()
    default = api.get(Request(NAMESPACE, "", "default"))
    default["metadata"] |= {"ownerReferences": plain("_", owner)["metadata"]["ownerReferences"]}
    api.update(Request(NAMESPACE, "", "default"), default)
    api.create(Request(CONFIG_MAP, "x"), plain("b", owner))
    api.delete(Request(CONFIG_MAP, "x", "a"))
    assert names(api) == []
    assert "default" in names(api, NAMESPACE)


def job() -> Json:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    return {"metadata": {"name": "j"}, "spec": {"template": template}}


@pytest.mark.parametrize(("options", "left"), [({}, ["p"]), ({"propagationPolicy": "Background"}, [])])
def test_the_pods_of_a_job_stay_unless_asked(api: Registry, options: Json, left: list[str]) -> None:
    owner = api.create(Request(JOB, "default"), job()).copy()
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": owner["metadata"]["uid"]}
    api.create(Request(POD, "default"), {**pod(node=""), "metadata": {"name": "p", "ownerReferences": [reference]}})
    api.delete(Request(JOB, "default", "j"), options=options)
    assert names(api, POD) == left


def conditions(api: Registry, name: str) -> dict[str, str]:
    rows = api.get(Request(NAMESPACE, "", name))["status"]["conditions"]
    return {row["type"]: f"{row['status']} {row['reason']}: {row['message']}" for row in rows}


def test_a_namespace_says_what_it_waits_for(api: Registry) -> None:
    api.create(Request(CONFIG_MAP, "x"), plain("a"))
    api.create(Request(CONFIG_MAP, "x"), plain("b", finalizers=["example.com/a"]))
    held = pod()
    held["metadata"]["finalizers"] = ["example.com/pod"]
    api.create(Request(POD, "x"), held)
    api.delete(Request(NAMESPACE, "", "x"))
    assert conditions(api, "x")["NamespaceContentRemaining"].endswith("are remaining: pods. has 1 resource instances")
    assert names(api, namespace="x") == ["a", "b"], "Pods go first"
    api.delete(Request(POD, "x", "p"), options={"gracePeriodSeconds": 0})
    assert names(api, namespace="x") == ["a", "b"], "also those that a finalizer holds"
    assert conditions(api, "x")["NamespaceFinalizersRemaining"].endswith("example.com/pod in 1 resource instances")
    api.patch(Request(POD, "x", "p"), MERGE_PATCH, {"metadata": {"finalizers": None}})
    said = conditions(api, "x")
    assert list(said) == [
        "NamespaceDeletionDiscoveryFailure",
        "NamespaceDeletionGroupVersionParsingFailure",
        "NamespaceDeletionContentFailure",
        "NamespaceContentRemaining",
        "NamespaceFinalizersRemaining",
    ]
    assert said["NamespaceContentRemaining"] == (
        "True SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances"
    )
    assert said["NamespaceFinalizersRemaining"] == (
        "True SomeFinalizersRemain: "
        "Some content in the namespace has finalizers remaining: example.com/a in 1 resource instances"
    )
    assert names(api, namespace="x") == ["b"]
    api.patch(Request(CONFIG_MAP, "x", "b"), MERGE_PATCH, {"metadata": {"finalizers": None}})
    assert "x" not in names(api, NAMESPACE)


def test_an_empty_namespace_keeps_only_others_finalizers(api: Registry) -> None:
    api.create(Request(NAMESPACE), {"metadata": {"name": "z"}, "spec": {"finalizers": ["example.com/a"]}})
    api.delete(Request(NAMESPACE, "", "z"))
    assert api.get(Request(NAMESPACE, "", "z"))["spec"]["finalizers"] == ["example.com/a"]
    assert conditions(api, "z")["NamespaceContentRemaining"].startswith("False ContentRemoved")


def test_finalizers_of_a_namespace_change_by_finalize_only(api: Registry) -> None:
    more: Json = {"metadata": {"labels": {"a": "b"}}, "spec": {"finalizers": ["example.com/a", "kubernetes"]}}
    changed = api.patch(Request(NAMESPACE, "", "x"), MERGE_PATCH, more).copy()
    assert (changed["spec"], changed["metadata"]["labels"]["a"]) == ({"finalizers": ["kubernetes"]}, "b")
    assert (
        api.patch(Request(NAMESPACE, "", "x", subresource="finalize"), MERGE_PATCH, more).copy()["spec"] == more["spec"]
    )


def test_finalizers_and_phases_of_a_namespace_are_validated(api: Registry) -> None:
    why = 'Invalid value: "xyz": name is neither a standard finalizer name nor is it fully qualified'
    odd: Json = {"spec": {"finalizers": ["xyz"]}}
    new: Json = {"metadata": {"name": "odd"}, **odd}
    refused(422, f"spec.finalizers: {why}", lambda: api.create(Request(NAMESPACE), new))
    numbered = f"spec.finalizers[0]: {why}"
    refused(422, numbered, lambda: api.patch(Request(NAMESPACE, "", "x", subresource="finalize"), MERGE_PATCH, odd))

    def become(phase: str) -> Json:
        return api.patch(
            Request(NAMESPACE, "", "x", subresource="status"), MERGE_PATCH, {"status": {"phase": phase}}
        ).copy()

    why = "status.Phase: Invalid value: \"{}\": may only be '{}' if `deletionTimestamp` is {}"
    become("Active")
    for phase in ("Terminating", "Odd"):
        refused(422, why.format(phase, "Active", "empty"), partial(become, phase))
    api.create(Request(CONFIG_MAP, "x"), plain("b", finalizers=["example.com/a"]))
    api.delete(Request(NAMESPACE, "", "x"))
    become("Terminating")
    refused(422, why.format("Active", "Terminating", "not empty"), partial(become, "Active"))


def test_a_namespace_can_be_forced_with_finalize(api: Registry) -> None:
    api.create(Request(CONFIG_MAP, "x"), plain("b", finalizers=["example.com/a"]))
    api.delete(Request(NAMESPACE, "", "x"))
    api.update(
        Request(NAMESPACE, "", "x", subresource="finalize"), {**api.get(Request(NAMESPACE, "", "x")), "spec": {}}
    )
    assert "x" not in names(api, NAMESPACE)
    assert names(api) == ["b"], "what was in it is left behind, as in Kubernetes"


def test_nothing_is_created_in_a_going_namespace(api: Registry) -> None:
    api.create(Request(CONFIG_MAP, "x"), plain("b", finalizers=["example.com/a"]))
    api.delete(Request(NAMESPACE, "", "x"))
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}}
    creates: list[tuple[str, Callable[[], object]]] = [
        ("late", lambda: api.create(Request(CONFIG_MAP, "x"), plain("late"))),
        ("BAD_", lambda: api.create(Request(CONFIG_MAP, "x"), plain("BAD_"))),
        ("late-", lambda: api.create(Request(CONFIG_MAP, "x"), {"metadata": {"generateName": "late-"}})),
        ("late", lambda: api.apply(Request(CONFIG_MAP, "x", "late", manager="me"), applied)),
        ("late", lambda: api.update(Request(LEASE, "x", "late"), {"metadata": {"name": "late"}, "spec": {}})),
    ]
    for name, create in creates:
        with pytest.raises(StatusError) as caught:
            create()
        why = f'"{name}" is forbidden: unable to create new content in namespace x because it is being terminated'
        assert (caught.value.code, caught.value.reason) == (403, "Forbidden")
        assert caught.value.message.endswith(why)
        assert (caught.value.details or {})["causes"] == [
            {
                "reason": "NamespaceTerminating",
                "message": "namespace x is being terminated",
                "field": "metadata.namespace",
            }
        ]


def test_a_dry_run_shows_what_a_deletion_begins_with(api: Registry) -> None:
    shown = api.delete(Request(NAMESPACE, "", "x", dry_run=True)).copy()
    assert (shown["status"]["phase"], "deletionTimestamp" in shown["metadata"]) == ("Terminating", True)
    assert api.get(Request(NAMESPACE, "", "x"))["status"] == {"phase": "Active"}
    for field, value in (("uid", "other"), ("resourceVersion", "1")):
        with pytest.raises(StatusError, match='on Namespace "x": the ') as caught:
            api.delete(Request(NAMESPACE, "", "x"), options={"preconditions": {field: value}})
        assert caught.value.code == 409


def test_an_object_whose_owners_are_not_there_goes(api: Registry) -> None:
    real = api.create(Request(CONFIG_MAP, "default"), plain("a")).copy()
    absent = {"kind": "ConfigMap", "metadata": {"name": "absent", "uid": "never"}}
    elsewhere = api.create(Request(CONFIG_MAP, "x"), plain("b")).copy()
    unknown = {"kind": "Widget", "metadata": {"name": "w", "uid": "any"}}
    for name, owners in (("one", [absent]), ("two", [elsewhere]), ("three", [real, absent]), ("four", [unknown])):
        assert api.create(Request(CONFIG_MAP, "default"), plain(name, *owners)).copy()["metadata"]["name"] == name
    assert names(api, namespace="default") == ["a", "four", "three"]
    kept = api.get(Request(CONFIG_MAP, "default", "three"))["metadata"]["ownerReferences"]
    assert [reference["name"] for reference in kept] == ["a"]
    references = plain("_", absent)["metadata"]["ownerReferences"]
    api.patch(Request(CONFIG_MAP, "default", "four"), MERGE_PATCH, {"metadata": {"ownerReferences": references}})
    assert names(api, namespace="default") == ["a", "three"]
