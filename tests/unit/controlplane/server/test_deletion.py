"""Deletion: grace periods, finalizers, owners and dependents, namespaces; with a clock of the test."""

from collections.abc import Callable
from functools import partial

import pytest
from object_api import NOW_S, Api, named, owned_by, refused, service
from object_api import pod as bare_pod

from kdns.controlplane.apimachinery.inert import LEASE
from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, JOB, NAMESPACE, NODE, POD, SERVICE, Json
from kdns.controlplane.server.registry import Request

HELD = ["example.com/a"]
FREED: Json = {"metadata": {"finalizers": None}}


class Clock:
    """A clock that a test sets."""

    now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def api(clock: Clock) -> Api:
    api = Api(now_s=clock, grace=True)
    for name in "xy":
        api.create(NAMESPACE, named(name))
    return api


def pod(node: str = "n", phase: str = "", finalizers: list[str] | None = None, **spec: object) -> Json:
    obj = bare_pod(finalizers=finalizers or [])
    obj["spec"] |= {"nodeName": node, **spec}
    return {**obj, "status": {"phase": phase}}


def grace(seconds: int | None) -> Json:
    return {} if seconds is None else {"gracePeriodSeconds": seconds}


def test_a_deleted_object_is_shown_once_more_and_its_address_is_free(api: Api) -> None:
    created = api.create(SERVICE, service())
    last = api.delete(SERVICE, "web")
    assert last["metadata"] == {**created["metadata"], "resourceVersion": str(api.store.revision - 1)}
    refused(404, 'services "web" not found', api.get, SERVICE, "web")
    refused(404, 'services "web" not found', api.delete, SERVICE, "web")
    again = api.create(SERVICE, {**service(), "spec": {**service()["spec"], "clusterIP": created["spec"]["clusterIP"]}})
    assert again["spec"]["clusterIP"] == created["spec"]["clusterIP"]


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
def test_grace(api: Api, obj: Json, asked_s: int | None, granted_s: int) -> None:
    api.create(POD, obj)
    held = api.delete(POD, "p", grace(asked_s))
    assert api.names(POD) == ["p"] * bool(granted_s)
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
    api: Api, clock: Clock, asked_s: int | None, end: str, grace_s: int
) -> None:
    api.create(POD, pod())
    api.delete(POD, "p")
    clock.now_s += 10
    marks = api.delete(POD, "p", grace(asked_s))["metadata"]
    assert (marks["deletionTimestamp"], marks["deletionGracePeriodSeconds"]) == (end, grace_s)
    api.delete(POD, "p", grace(0))
    assert api.names(POD) == []


def test_a_finalizer_and_the_grace_of_a_pod_each_hold_it(api: Api) -> None:
    for seconds in (0, None):
        api.create(POD, pod(finalizers=HELD))
        api.delete(POD, "p")
        if seconds == 0:
            api.delete(POD, "p", grace(0))
            assert api.get(POD, "p")["metadata"]["deletionGracePeriodSeconds"] == 0
        api.patch(POD, "p", FREED)
        assert api.names(POD) == ([] if seconds == 0 else ["p"]), "a finalizer taken early does not end the grace"


def test_finalizers_hold_an_object_that_nobody_new_holds(api: Api) -> None:
    api.create(CONFIG_MAP, named("a", finalizers=HELD))
    held = api.delete(CONFIG_MAP, "a")
    assert held["metadata"]["deletionTimestamp"] == "2023-11-14T22:13:20Z"
    assert api.delete(CONFIG_MAP, "a") == held, "a second delete changes nothing"
    more = {"metadata": {"finalizers": [*HELD, "b.c/e", "b.c/d"]}}
    error = refused(422, "", api.patch, CONFIG_MAP, "a", more)
    assert "Forbidden: no new finalizers can be added if the object is being deleted, found new" in error.message
    assert 'finalizers "b.c/d", "b.c/e"' in error.message
    assert [row["field"] for row in (error.details or {})["causes"]] == ["metadata.finalizers"] * 2
    api.create(POD, pod(finalizers=HELD))
    api.delete(POD, "p")
    refused(422, "no new finalizers can be added", api.patch, POD, "p", more, subresource="status")
    api.patch(CONFIG_MAP, "a", {"metadata": {"finalizers": []}})
    assert api.names(CONFIG_MAP) == []


def grown(api: Api, tree: str) -> None:
    """ConfigMaps, as `name:owner,owner`; ~ after the name is a finalizer, ! after it blocks the owners."""
    objects: dict[str, Json] = {"absent": {"kind": "ConfigMap", "metadata": {"name": "absent", "uid": "never"}}}
    for word in tree.split():
        text, _, owners = word.partition(":")
        name = text.rstrip("~!")
        references = owned_by(*(objects[owner] for owner in owners.split(",") if owner), blocking="!" in text)
        objects[name] = api.create(CONFIG_MAP, named(name, finalizers=HELD if "~" in text else [], **references))


@pytest.mark.parametrize(
    ("tree", "policy", "left"),
    [
        ("a b:a c:b", "Background", ""),
        ("a b:a,absent", "Background", ""),
        ("a other b:a,other", "Background", "b other"),
        ("a b:a", "Orphan", "b"),
        ("a b!:a held!~:b loose:a", "Foreground", "a b held loose"),
        ("a other b!:a,other", "Foreground", "b other"),
    ],
)
def test_dependents(api: Api, tree: str, policy: str, left: str) -> None:
    grown(api, tree)
    api.delete(CONFIG_MAP, "a", {"propagationPolicy": policy})
    assert api.names(CONFIG_MAP) == left.split()
    if "held" in left:
        assert [api.get(CONFIG_MAP, name)["metadata"]["finalizers"] for name in "ab"] == [["foregroundDeletion"]] * 2
        api.patch(CONFIG_MAP, "held", FREED)
        assert api.names(CONFIG_MAP) == []
    else:
        owners = [row["name"] for obj in api.items(CONFIG_MAP) for row in obj["metadata"].get("ownerReferences") or ()]
        assert owners == [name for name in left.split() if name == "other"]


@pytest.mark.parametrize("wish", [{"orphanDependents": True}, None], ids=str)
def test_other_wishes_for_orphans(api: Api, wish: Json | None) -> None:
    owner = api.create(CONFIG_MAP, named("a", finalizers=[] if wish else ["orphan"]))
    api.create(CONFIG_MAP, named("b", **owned_by(owner)))
    api.delete(CONFIG_MAP, "a", wish)
    assert api.names(CONFIG_MAP) == ["b"]


def test_foreground_ends_when_the_last_dependent_lets_go(api: Api) -> None:
    grown(api, "a b!~:a")
    api.delete(CONFIG_MAP, "a", {"propagationPolicy": "Foreground"})
    api.patch(CONFIG_MAP, "b", {"metadata": {"ownerReferences": None}})
    assert api.names(CONFIG_MAP) == ["b"]


def test_a_long_chain_goes_in_the_foreground_too(api: Api) -> None:
    grown(api, "c0 " + " ".join(f"c{number}!:c{number - 1}" for number in range(1, 1200)))
    api.delete(CONFIG_MAP, "c0", {"propagationPolicy": "Foreground"})
    assert api.names(CONFIG_MAP) == []


def test_a_circle_in_the_foreground_waits_for_a_client(api: Api) -> None:
    grown(api, "a b!:a")
    api.patch(CONFIG_MAP, "a", {"metadata": owned_by(api.get(CONFIG_MAP, "b"), blocking=True)})
    api.delete(CONFIG_MAP, "a", {"propagationPolicy": "Foreground"})
    assert api.names(CONFIG_MAP) == ["a", "b"]
    api.patch(CONFIG_MAP, "a", FREED)
    assert api.names(CONFIG_MAP) == []


def test_an_object_whose_owners_are_not_there_goes(api: Api) -> None:
    real = api.create(CONFIG_MAP, named("a"))
    absent = {"kind": "ConfigMap", "metadata": {"name": "absent", "uid": "never"}}
    elsewhere = api.create(CONFIG_MAP, named("b"), namespace="x")
    unknown = {"kind": "Widget", "metadata": {"name": "w", "uid": "any"}}
    for name, owners in (("one", [absent]), ("two", [elsewhere]), ("three", [real, absent]), ("four", [unknown])):
        assert api.create(CONFIG_MAP, named(name, **owned_by(*owners)))["metadata"]["name"] == name
    assert api.names(CONFIG_MAP, "default") == ["a", "four", "three"]
    assert api.get(CONFIG_MAP, "three")["metadata"]["ownerReferences"] == owned_by(real)["ownerReferences"]
    api.patch(CONFIG_MAP, "four", {"metadata": owned_by(absent)})
    assert api.names(CONFIG_MAP, "default") == ["a", "three"]


def test_an_owner_in_a_namespace_is_none_of_a_cluster_scoped_object(api: Api) -> None:
    """As in Kubernetes, the reference cannot be resolved, and the object stays."""
    owner = api.create(CONFIG_MAP, named("a"))
    api.create(NODE, named("n", **owned_by(owner)))
    assert api.names(NODE) == ["n"]


@pytest.mark.parametrize(("options", "left"), [({}, ["p"]), ({"propagationPolicy": "Background"}, [])])
def test_the_pods_of_a_job_stay_unless_asked(api: Api, options: Json, left: list[str]) -> None:
    template = {"spec": {**bare_pod()["spec"], "restartPolicy": "Never"}}
    owner = api.create(JOB, {**named("j"), "spec": {"template": template}})
    api.create(POD, bare_pod(**owned_by(owner)))
    api.delete(JOB, "j", options)
    assert api.names(POD) == left


def test_listed_objects_are_deleted_as_far_as_they_are_there(api: Api) -> None:
    for name, app in (("a", "x"), ("b", "y"), ("c", "x")):
        api.create(SERVICE, service(name, labels={"app": app}))
    listed = api.listed(SERVICE, "default", label_selector="app=x").stored
    api.delete(SERVICE, "c")
    api.registry.delete_all(Request(SERVICE, dry_run=True), listed)
    assert api.names(SERVICE) == ["a", "b"]
    api.registry.delete_all(Request(SERVICE), listed)
    assert api.names(SERVICE) == ["b"]


def conditions(api: Api, name: str) -> dict[str, str]:
    rows = api.get(NAMESPACE, name)["status"]["conditions"]
    return {row["type"]: f"{row['status']} {row['reason']}: {row['message']}" for row in rows}


def test_a_namespace_is_born_active_and_some_stay(api: Api) -> None:
    created = api.get(NAMESPACE, "default")
    assert created["metadata"]["labels"] == {"kubernetes.io/metadata.name": "default"}
    assert (created["spec"], created["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    refused(403, "this namespace may not be deleted", api.delete, NAMESPACE, "default")


def test_a_namespace_that_stays_may_have_an_owner(api: Api) -> None:
    owner = api.create(CONFIG_MAP, named("a"), namespace="x")
    api.patch(NAMESPACE, "default", {"metadata": owned_by(owner)})
    api.create(CONFIG_MAP, named("b", **owned_by(owner)), namespace="x")
    api.delete(CONFIG_MAP, "a", namespace="x")
    assert (api.names(CONFIG_MAP), api.names(NAMESPACE)) == ([], ["default", "x", "y"])


def test_a_namespace_goes_with_its_content(api: Api) -> None:
    for namespace in ("x", "default"):
        api.create(SERVICE, service(), namespace=namespace)
    events = api.watch(NAMESPACE, resource_version=str(api.store.revision))
    assert api.delete(NAMESPACE, "x")["status"]["phase"] == "Terminating"
    assert [event.type for event in events.take()] == ["MODIFIED", "DELETED"]
    assert [kept["metadata"]["namespace"] for kept in api.items(SERVICE)] == ["default"]


def test_a_namespace_says_what_it_waits_for(api: Api) -> None:
    api.create(CONFIG_MAP, named("a"), namespace="x")
    api.create(CONFIG_MAP, named("b", finalizers=HELD), namespace="x")
    api.create(POD, pod(finalizers=["example.com/pod"]), namespace="x")
    api.delete(NAMESPACE, "x")
    assert conditions(api, "x")["NamespaceContentRemaining"].endswith("are remaining: pods. has 1 resource instances")
    assert api.names(CONFIG_MAP) == ["a", "b"], "Pods go first"
    api.delete(POD, "p", grace(0), namespace="x")
    assert api.names(CONFIG_MAP) == ["a", "b"], "also those that a finalizer holds"
    assert conditions(api, "x")["NamespaceFinalizersRemaining"].endswith("example.com/pod in 1 resource instances")
    api.patch(POD, "p", FREED, namespace="x")
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
    assert api.names(CONFIG_MAP) == ["b"]
    api.patch(CONFIG_MAP, "b", FREED, namespace="x")
    assert "x" not in api.names(NAMESPACE)


def test_an_empty_namespace_keeps_only_others_finalizers(api: Api) -> None:
    api.create(NAMESPACE, {**named("z"), "spec": {"finalizers": HELD}})
    api.delete(NAMESPACE, "z")
    assert api.get(NAMESPACE, "z")["spec"]["finalizers"] == HELD
    assert conditions(api, "z")["NamespaceContentRemaining"].startswith("False ContentRemoved")


def test_finalizers_of_a_namespace_change_by_finalize_only(api: Api) -> None:
    more: Json = {"metadata": {"labels": {"a": "b"}}, "spec": {"finalizers": ["example.com/a", "kubernetes"]}}
    changed = api.patch(NAMESPACE, "x", more)
    assert (changed["spec"], changed["metadata"]["labels"]["a"]) == ({"finalizers": ["kubernetes"]}, "b")
    assert api.patch(NAMESPACE, "x", more, subresource="finalize")["spec"] == more["spec"]


def test_finalizers_and_phases_of_a_namespace_are_validated(api: Api) -> None:
    why = 'Invalid value: "xyz": name is neither a standard finalizer name nor is it fully qualified'
    odd: Json = {"spec": {"finalizers": ["xyz"]}}
    refused(422, f"spec.finalizers: {why}", api.create, NAMESPACE, {**named("odd"), **odd})
    refused(422, f"spec.finalizers[0]: {why}", api.patch, NAMESPACE, "x", odd, subresource="finalize")

    def become(phase: str) -> Json:
        return api.patch(NAMESPACE, "x", {"status": {"phase": phase}}, subresource="status")

    why = "status.Phase: Invalid value: \"{}\": may only be '{}' if `deletionTimestamp` is {}"
    become("Active")
    for phase in ("Terminating", "Odd"):
        refused(422, why.format(phase, "Active", "empty"), become, phase)
    api.create(CONFIG_MAP, named("b", finalizers=HELD), namespace="x")
    api.delete(NAMESPACE, "x")
    become("Terminating")
    refused(422, why.format("Active", "Terminating", "not empty"), become, "Active")


def test_a_namespace_can_be_forced_with_finalize(api: Api) -> None:
    api.create(CONFIG_MAP, named("b", finalizers=HELD), namespace="x")
    api.delete(NAMESPACE, "x")
    api.update(NAMESPACE, "x", {**api.get(NAMESPACE, "x"), "spec": {}}, subresource="finalize")
    assert "x" not in api.names(NAMESPACE)
    assert api.names(CONFIG_MAP) == ["b"], "what was in it is left behind, as in Kubernetes"


def test_nothing_is_created_in_a_going_namespace(api: Api) -> None:
    api.create(CONFIG_MAP, named("b", finalizers=HELD), namespace="x")
    api.delete(NAMESPACE, "x")
    create = partial(api.create, CONFIG_MAP, namespace="x")
    applied = {"apiVersion": "v1", "kind": "ConfigMap", **named("late")}
    creates: list[tuple[str, Callable[[], object]]] = [
        ("late", lambda: create(named("late"))),
        ("BAD_", lambda: create(named("BAD_"))),
        ("late-", lambda: create(named(generateName="late-"))),
        ("late", lambda: api.apply(CONFIG_MAP, "late", applied, namespace="x", manager="me")),
        ("late", lambda: api.update(LEASE, "late", {**named("late"), "spec": {}}, namespace="x")),
    ]
    why = '"{}" is forbidden: unable to create new content in namespace x because it is being terminated'
    for name, call in creates:
        error = refused(403, why.format(name), call)
        assert error.reason == "Forbidden"
        assert (error.details or {})["causes"] == [
            {
                "reason": "NamespaceTerminating",
                "message": "namespace x is being terminated",
                "field": "metadata.namespace",
            }
        ]


def test_a_dry_run_shows_what_a_deletion_begins_with(api: Api) -> None:
    shown = api.delete(NAMESPACE, "x", dry_run=True)
    assert (shown["status"]["phase"], "deletionTimestamp" in shown["metadata"]) == ("Terminating", True)
    assert api.get(NAMESPACE, "x")["status"] == {"phase": "Active"}
    for field, value in (("uid", "other"), ("resourceVersion", "1")):
        refused(409, 'on Namespace "x": the ', api.delete, NAMESPACE, "x", {"preconditions": {field: value}})
