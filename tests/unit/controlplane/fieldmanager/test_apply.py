"""Field ownership and server-side apply, with the real schema and strategies."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import yaml

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.inert import CLAIM, CRON_JOB, LEASE
from kdns.controlplane.apimachinery.kinds import DEPLOYMENT, NAMESPACE, POD, SERVICE, Json, Kind
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.fieldmanager import managed_fields
from kdns.controlplane.fieldmanager.apply import LAST_APPLIED
from kdns.controlplane.fieldmanager.field_sets import path_text, paths
from kdns.controlplane.fieldmanager.managed_fields import Writer
from kdns.controlplane.server.api import Api
from kdns.controlplane.server.patch import JSON_PATCH, MERGE_PATCH
from kdns.controlplane.server.registry import Registry
from kdns.controlplane.server.request import Request
from kdns.controlplane.storage.store import Store

WEB = """
apiVersion: v1
kind: Service
metadata: {name: web, labels: {app: web}}
spec:
  selector: {app: web}
  ports:
  - {name: http, port: 80, targetPort: 9376}
"""
POD_TEXT = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - {name: c, image: i, env: [{name: A, value: "1"}]}
"""
DEPLOYMENT_TEXT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: i}]}
"""


def at(second: int) -> str:
    return f"1970-01-01T00:00:{second:02}Z"


class Cluster:
    """An API whose clock advances one second with each write; `owners` shows which manager owns which fields."""

    def __init__(self) -> None:
        uids, self.second = count(1), 0
        self.api = Api(
            Registry(Store(), ClusterConfig(), lambda _: 0, self.now_s, lambda: f"uid-{next(uids)}", lambda: "xxxxx")
        )
        self.api.create(Request(NAMESPACE), {"metadata": {"name": "default"}})

    def now_s(self) -> float:
        return float(self.second)

    def create(self, manager: str, text: str = WEB, kind: Kind = SERVICE) -> Json:
        self.second += 1
        return self.api.create(Request(kind, "default", manager=manager), yaml.safe_load(text)).copy()

    def apply(self, manager: str, text: str = WEB, kind: Kind = SERVICE, **options: Any) -> Json:
        self.second += 1
        config = yaml.safe_load(text)
        name = config["metadata"]["name"]
        return self.api.apply(Request(kind, "default", name, manager=manager, **options), config).copy()

    def merge(self, manager: str, patch: Json, kind: Kind = SERVICE, name: str = "web", subresource: str = "") -> Json:
        self.second += 1
        return self.api.patch(
            Request(kind, "default", name, manager=manager, subresource=subresource), MERGE_PATCH, patch
        ).copy()

    def owners(self, kind: Kind = SERVICE, name: str = "web") -> dict[str, list[str]]:
        """Manager, operation and subresource → the paths of the entry."""
        obj = self.api.get(Request(kind, "default", name))
        return {
            " ".join(filter(None, (each["manager"], each["operation"], each.get("subresource")))): [
                path_text(path) for path in paths(each["fieldsV1"])
            ]
            for each in obj["metadata"].get("managedFields") or []
        }

    def times(self) -> dict[str, str]:
        entries = self.api.get(Request(SERVICE, "default", "web"))["metadata"]["managedFields"]
        return {each["manager"]: each["time"] for each in entries}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def refused(code: int, text: str, call: Callable[[], object]) -> StatusError:
    with pytest.raises(StatusError) as caught:
        call()
    assert (caught.value.code, text in caught.value.message) == (code, True), caught.value.message
    return caught.value


PORT = '.spec.ports[port=80,protocol="TCP"]'
CREATED = [
    ".metadata.labels",
    ".metadata.labels.app",
    ".spec.internalTrafficPolicy",
    ".spec.ports",
    ".spec.selector",
    ".spec.sessionAffinity",
    ".spec.type",
    PORT,
    *(f"{PORT}.{name}" for name in ("name", "port", "protocol", "targetPort")),
]


def test_a_creator_manages_what_it_sent_and_its_defaults_but_no_addresses(cluster: Cluster) -> None:
    entry = cluster.create("me")["metadata"]["managedFields"][0]
    assert list(entry) == ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1"]
    assert (entry["apiVersion"], entry["time"], entry["fieldsType"]) == ("v1", at(1), "FieldsV1")
    assert cluster.owners() == {"me Update": CREATED}
    ports = entry["fieldsV1"]["f:spec"]["f:ports"]
    assert list(ports) == [".", 'k:{"port":80,"protocol":"TCP"}']


def test_parts_that_every_pod_has_have_no_manager(cluster: Cluster) -> None:
    cluster.create("me", POD_TEXT, POD)
    found = cluster.owners(POD, "p")["me Update"]
    container = '.spec.containers[name="c"]'
    assert {container, f"{container}.env", f'{container}.env[name="A"].value', f"{container}.image"} <= set(found)
    assert not {".spec", ".spec.containers", ".status", ".metadata.name"} & set(found)


def test_deployments_as_kubernetes_shows_them(cluster: Cluster) -> None:
    cluster.create("me", DEPLOYMENT_TEXT, DEPLOYMENT)
    found = set(cluster.owners(DEPLOYMENT)["me Update"])
    assert {".spec.replicas", ".spec.selector", ".spec.template.metadata.labels.app"} <= found
    assert not {".spec.strategy", ".spec.template", ".spec.template.spec", ".spec.template.metadata"} & found


def test_a_writer_takes_over_what_it_changes(cluster: Cluster) -> None:
    cluster.create("me")
    cluster.merge("you", {"spec": {"selector": {"app": "x"}}, "metadata": {"labels": {"app": None, "b": "c"}}})
    found = cluster.owners()
    assert found["you Update"] == [".metadata.labels.b", ".spec.selector"]
    assert set(CREATED) - set(found["me Update"]) == {".spec.selector", ".metadata.labels.app"}
    assert cluster.times() == {"me": at(1), "you": at(2)}
    cluster.merge("you", {"spec": {"selector": None, "type": "NodePort"}, "metadata": {"labels": None}})
    found = cluster.owners()
    assert found["you Update"] == [".spec.externalTrafficPolicy", ".spec.type"]
    assert cluster.times() == {"me": at(1), "you": at(3)}


def test_an_update_without_changes_is_no_write(cluster: Cluster) -> None:
    before = cluster.create("me")
    assert cluster.merge("you", {"spec": {"type": "ClusterIP"}}) == before
    assert cluster.api.update(Request(SERVICE, "default", "web", manager="you"), before).copy() == before
    applied = cluster.apply("other")
    assert cluster.apply("other") == applied, "not even the time changes"


def test_a_writer_without_a_name_owns_nothing_and_takes_from_others(cluster: Cluster) -> None:
    cluster.create("me")
    cluster.merge("", {"spec": {"selector": {"app": "x"}}})
    assert set(cluster.owners()) == {"me Update"}
    assert ".spec.selector" not in cluster.owners()["me Update"]
    bare = cluster.create("", WEB.replace("name: web", "name: bare"))
    assert "managedFields" not in bare["metadata"]
    assert "managedFields" not in cluster.merge("me", {"metadata": {"labels": {"a": "b"}}}, name="bare")["metadata"]


def test_status_is_written_through_its_subresource(cluster: Cluster) -> None:
    cluster.create("me", f"{WEB}\nstatus: {{loadBalancer: {{ingress: [{{ip: 1.2.3.4}}]}}}}")
    cluster.merge("me", {"spec": {"type": "LoadBalancer"}})
    ingress = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}}}
    cluster.merge("lb", {**ingress, "spec": {"type": "NodePort"}}, subresource="status")
    found = cluster.owners()
    assert found["lb Update status"] == [".status.loadBalancer.ingress"]
    assert not any(path.startswith(".status") for path in found["me Update"])
    cluster.merge("me", {"status": None})
    assert cluster.owners() == found


def test_entries_can_be_removed(cluster: Cluster) -> None:
    """Kubernetes documentation, "Server-Side Apply": by a single empty entry, and not by an empty list."""
    cluster.create("me")
    sent: Json = {"metadata": {"managedFields": [{}]}}
    for kept in (
        cluster.merge("me", {"metadata": {"managedFields": []}}),
        cluster.merge("me", sent, subresource="status"),
    ):
        assert kept["metadata"]["managedFields"]
    assert "managedFields" not in cluster.merge("me", sent)["metadata"]


def test_entries_can_be_rewritten_but_not_broken(cluster: Cluster) -> None:
    made = cluster.create("kubectl-client-side-apply")
    entry = made["metadata"]["managedFields"][0]
    for broken in ({**entry, "operation": "Steal"}, {**entry, "fieldsV1": {"x": {}}}, {**entry, "fieldsType": "V2"}):
        kept = cluster.merge("me", {"metadata": {"managedFields": [broken]}})
        assert kept["metadata"]["managedFields"] == [entry]
    moved = {**entry, "manager": "kubectl", "operation": "Apply"}
    patch = [{"op": "replace", "path": "/metadata/managedFields", "value": [moved]}]
    changed = cluster.api.patch(Request(SERVICE, "default", "web", manager="me"), JSON_PATCH, patch).copy()
    assert changed["metadata"]["managedFields"] == [moved]


def test_other_times_of_entries_are_no_write(cluster: Cluster) -> None:
    made = cluster.create("me")
    (entry,) = made["metadata"]["managedFields"]
    assert cluster.merge("me", {"metadata": {"managedFields": [{**entry, "time": at(30)}]}}) == made


def test_entries_without_fields_are_removed(cluster: Cluster) -> None:
    entry = cluster.create("me")["metadata"]["managedFields"][0]
    empty = {name: value for name, value in entry.items() if name != "fieldsV1"}
    sent = [{**empty, "manager": "a"}, {**entry, "manager": "b"}, {**entry, "manager": "c", "fieldsV1": {}}]
    changed = cluster.merge("me", {"metadata": {"managedFields": sent}})
    assert [each["manager"] for each in changed["metadata"]["managedFields"]] == ["b"]
    assert cluster.apply("other")["metadata"]["managedFields"]


def test_the_oldest_updates_are_combined(cluster: Cluster) -> None:
    cluster.create("m00")
    for number in range(1, 14):
        cluster.merge(f"m{number:02}", {"metadata": {"labels": {f"l{number}": "x"}}})
    found = cluster.owners()
    assert list(found) == ["ancient-changes Update", *(f"m{number:02} Update" for number in range(5, 14))]
    assert {".metadata.labels.l4", ".spec.type"} <= set(found["ancient-changes Update"])
    assert cluster.times()["ancient-changes"] == at(5)


def test_apply_creates_and_owns_what_it_configures(cluster: Cluster) -> None:
    made = cluster.apply("me", f"{WEB}\nstatus: {{loadBalancer: {{}}}}")
    assert made["spec"]["clusterIP"]
    assert cluster.owners() == {
        "me Apply": [
            ".metadata.labels.app", ".spec.selector", PORT, f"{PORT}.name", f"{PORT}.port", f"{PORT}.targetPort",
        ],
    }  # fmt: skip


def test_fields_no_longer_applied_are_removed_unless_others_own_them(cluster: Cluster) -> None:
    wide = WEB.replace("ports:", "externalIPs: [192.0.2.7]\n  ports:\n  - {name: tls, port: 443}")
    wide = wide.replace("{app: web}}", "{app: web, a: b}, finalizers: [x/a, x/b]}", 1)
    cluster.apply("me", wide)
    cluster.merge("you", {"metadata": {"annotations": {"n": "1"}}})
    cluster.apply("other", WEB.replace("{app: web}}", "{a: b}, finalizers: [x/b]}", 1))
    live = cluster.apply("me")
    assert [port["port"] for port in live["spec"]["ports"]] == [80]
    assert "externalIPs" not in live["spec"]
    assert live["metadata"]["labels"] == {"app": "web", "a": "b"}
    assert live["metadata"]["finalizers"] == ["x/b"]
    assert live["metadata"]["annotations"] == {"n": "1"}
    live = cluster.apply("other", "{apiVersion: v1, kind: Service, metadata: {name: web}}")
    assert live["metadata"]["labels"] == {"app": "web"}
    assert "finalizers" not in live["metadata"]
    assert live["spec"]["ports"][0]["targetPort"] == 9376
    assert set(cluster.owners()) == {"me Apply", "you Update"}


def test_fields_without_a_manager_stay(cluster: Cluster) -> None:
    cluster.apply("me")
    cluster.merge("", {"metadata": {"annotations": {"n": "1"}}})
    live = cluster.apply("me", WEB.replace(", labels: {app: web}", ""))
    assert (live["metadata"]["annotations"], live["metadata"].get("labels")) == ({"n": "1"}, None)


def test_conflicts_name_managers_and_fields(cluster: Cluster) -> None:
    cluster.create("me")
    cluster.merge("you", {"spec": {"selector": {"app": "x"}}})
    wanted = WEB.replace("9376", "80").replace("selector: {app: web}", "selector: {app: y}")
    before = cluster.api.get(Request(SERVICE, "default", "web"))
    error = refused(409, "Apply failed with 2 conflicts", lambda: cluster.apply("other", wanted))
    assert error.message == (
        'Apply failed with 2 conflicts: conflicts with "me" using v1:\n'
        f'- {PORT}.targetPort\nconflicts with "you" using v1:\n- .spec.selector'
    )
    assert (error.details or {})["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "me" using v1', "field": f"{PORT}.targetPort"},
        {"reason": "FieldManagerConflict", "message": 'conflict with "you" using v1', "field": ".spec.selector"},
    ]
    assert cluster.api.get(Request(SERVICE, "default", "web")) == before
    forced = cluster.apply("other", wanted, force=True)
    assert (forced["spec"]["selector"], forced["spec"]["ports"][0]["targetPort"]) == ({"app": "y"}, 80)
    assert "you Update" not in cluster.owners(), "who has nothing left is gone"
    text = 'Apply failed with 1 conflict: conflict with "other": .spec.selector'
    refused(409, text, lambda: cluster.apply("third", wanted.replace("app: y", "app: z")))
    assert cluster.apply("third", wanted)["spec"]["selector"] == {"app": "y"}, "the same value is shared"


def test_a_conflict_names_the_subresource(cluster: Cluster) -> None:
    cluster.create("me", WEB.replace("spec:", "spec:\n  type: LoadBalancer"))
    cluster.merge("lb", {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}, subresource="status")
    status = "status: {loadBalancer: {ingress: [{ip: 192.0.2.2}]}}"
    text = f"{{apiVersion: v1, kind: Service, metadata: {{name: web}}, {status}}}"
    wanted = 'conflict with "lb" with subresource "status" using v1: .status.loadBalancer.ingress'
    refused(409, wanted, lambda: cluster.apply("other", text, subresource="status"))
    assert cluster.apply("other", text)["status"] == {
        "loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}
    }
    live = cluster.apply("other", text, subresource="status", force=True)
    assert live["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.2"
    assert cluster.owners()["other Apply status"] == [".status.loadBalancer.ingress"]


def test_fields_from_before_the_first_apply_have_a_manager(cluster: Cluster) -> None:
    cluster.create("")
    text = 'conflict with "before-first-apply" using v1: .spec.selector'
    refused(409, text, lambda: cluster.apply("me", WEB.replace("selector: {app: web}", "selector: {app: y}")))
    cluster.apply("me")
    assert list(cluster.owners()) == ["me Apply", "before-first-apply Update"]


def test_kubectl_takes_over_from_its_client_side_apply(cluster: Cluster) -> None:
    config = {**yaml.safe_load(WEB)}
    annotated = {**config["metadata"], "annotations": {LAST_APPLIED: json.dumps(config)}}
    cluster.create("kubectl-client-side-apply", json.dumps({**config, "metadata": annotated}))
    changed = WEB.replace("9376", "80")
    refused(409, "1 conflict", lambda: cluster.apply("me", changed))
    live = cluster.apply("kubectl", changed)
    assert live["spec"]["ports"][0]["targetPort"] == 80
    noted = json.loads(live["metadata"]["annotations"][LAST_APPLIED])
    assert noted["spec"]["ports"][0]["targetPort"] == 80, "client-side apply goes on from here"
    cluster.merge("editor", {"spec": {"selector": {"app": "edited"}}})
    refused(409, 'conflict with "editor"', lambda: cluster.apply("kubectl", changed))


def test_an_apply_that_changes_only_what_it_owns_keeps_its_time(cluster: Cluster) -> None:
    cluster.create("you")
    more = WEB.replace("{app: web}}", "{app: web, a: b}}", 1)
    cluster.apply("me", more)
    before = cluster.owners()["me Apply"]
    cluster.apply("me", more.replace("  selector: {app: web}\n", ""))
    assert cluster.owners()["me Apply"] == [path for path in before if path != ".spec.selector"]
    assert cluster.times() == {"you": at(1), "me": at(2)}


def test_the_annotation_of_client_side_apply_goes_before_there_are_too_many_annotations(cluster: Cluster) -> None:
    config = yaml.safe_load(WEB)
    annotated = {**config["metadata"], "annotations": {LAST_APPLIED: json.dumps(config)}}
    cluster.create("kubectl-client-side-apply", json.dumps({**config, "metadata": annotated}))
    text = cluster.apply("kubectl")["metadata"]["annotations"][LAST_APPLIED]
    large = "x" * (256 * 1024 - len("large") - len(LAST_APPLIED) - len(text))
    cluster.merge("you", {"metadata": {"annotations": {"large": large}}})
    assert cluster.apply("kubectl")["metadata"]["annotations"] == {LAST_APPLIED: text, "large": large}
    assert cluster.apply("kubectl", WEB.replace("9376", "19376"))["metadata"]["annotations"] == {"large": large}


def test_order_of_merged_lists(cluster: Cluster) -> None:
    def ports(*numbers: int) -> str:
        rows = ", ".join(f"{{name: p{number}, port: {number}}}" for number in numbers)
        return f"{{apiVersion: v1, kind: Service, metadata: {{name: web}}, spec: {{ports: [{rows}]}}}}"

    cluster.create("me", ports(1, 2, 3, 4))
    live = cluster.apply("you", ports(9, 3, 2, 8))
    assert [port["port"] for port in live["spec"]["ports"]] == [1, 9, 3, 4, 2, 8]


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (WEB.replace("kind: Service", "kind: Pod"), 400, "invalid object type: /v1, Kind=Pod"),
        (WEB.replace("v1\n", "v2\n"), 400, "invalid object type: /v2, Kind=Service"),
        (WEB.replace("labels:", "managedFields: [], labels:"), 400, "metadata.managedFields must be nil"),
        (WEB.replace("labels:", "uid: u, labels:"), 422, 'metadata.uid: Invalid value: "u": field is immutable'),
        (WEB.replace("labels:", 'resourceVersion: "2", labels:'), 409, "the object has been modified"),
        (WEB.replace("labels:", "namespace: x, labels:"), 400, "the namespace of the provided object does not match"),
        (
            WEB.replace("selector:", "selectr:"), 500,
            "typed patch object (/web; /v1, Kind=Service): .spec.selectr: field not declared in schema",
        ),
        (WEB.replace("port: 80,", "port: [],"), 500, "expected a number, got a list"),
        (WEB.replace("{app: web}\n  ports", "web\n  ports"), 500, '.spec.selector: expected an object, got "web"'),
        (
            WEB.replace("selector: {app: web}", "selector: {app: true}"), 500,
            ".spec.selector.app: expected a string, got a boolean",
        ),
        (f"{WEB}  - {{port: 80}}\n", 500, '.spec.ports: duplicate entries for key [port=80,protocol="TCP"]'),
        (WEB.replace("port: 80,", ""), 422, "spec.ports[1].port: Invalid value: 0"),
    ],
)  # fmt: skip
def test_configurations_that_are_refused(cluster: Cluster, text: str, code: int, message: str) -> None:
    before = cluster.create("me")
    refused(code, message, lambda: cluster.apply("other", text))
    assert cluster.api.get(Request(SERVICE, "default", "web")) == before


def test_an_object_that_is_not_there_cannot_be_meant(cluster: Cluster) -> None:
    refused(404, 'services "web" not found', lambda: cluster.apply("me", subresource="status"))
    assert not cluster.api.list(Request(SERVICE)).items


def test_a_dry_run_applies_nothing(cluster: Cluster) -> None:
    assert cluster.apply("me", dry_run=True)["metadata"]["managedFields"]
    assert not cluster.api.list(Request(SERVICE)).items
    made = cluster.apply("me")
    assert cluster.apply("me", WEB.replace("9376", "80"), dry_run=True)["spec"]["ports"][0]["targetPort"] == 80
    assert cluster.api.get(Request(SERVICE, "default", "web")) == made


def test_scale_is_applied_like_the_object(cluster: Cluster) -> None:
    cluster.apply("me", DEPLOYMENT_TEXT, DEPLOYMENT)
    scale = "{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: web}, spec: {replicas: 5}}"
    text = 'conflict with "me": .spec.replicas'
    refused(409, text, lambda: cluster.apply("hpa", scale, DEPLOYMENT, subresource="scale"))
    scaled = cluster.apply("hpa", scale, DEPLOYMENT, subresource="scale", force=True)
    assert (scaled["kind"], scaled["spec"]) == ("Scale", {"replicas": 5})
    assert cluster.owners(DEPLOYMENT)["hpa Apply scale"] == [".spec.replicas"]
    cluster.merge("kubectl", {"spec": {"replicas": 4}}, DEPLOYMENT, subresource="scale")
    assert cluster.owners(DEPLOYMENT)["kubectl Update scale"] == [".spec.replicas"]
    assert cluster.api.get(Request(DEPLOYMENT, "default", "web"))["spec"]["replicas"] == 4


@pytest.mark.parametrize("field", ["metadata", "spec"])
def test_a_scale_of_the_wrong_shape_is_refused(cluster: Cluster, field: str) -> None:
    cluster.apply("me", DEPLOYMENT_TEXT, DEPLOYMENT)
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", field: [[]]}
    text = f".{field}: expected an object, got a list"
    refused(
        500,
        text,
        lambda: cluster.api.apply(Request(DEPLOYMENT, "default", "web", manager="hpa", subresource="scale"), scale),
    )


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        (CLAIM, {"resources": {"requests": {"storage": "1Gi"}}}, [".spec.resources.requests"]),
        (
            CRON_JOB,
            {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": {"hostname": "x"}}}}},
            [".spec.schedule", ".spec.jobTemplate.spec.template.spec.hostname"],
        ),
        (LEASE, {"strategy": "x"}, [".spec.strategy"]),
    ],
    ids=lambda value: value.kind if isinstance(value, Kind) else "",
)
def test_structs_that_are_no_pointers_in_go_have_no_owner(kind: Kind, spec: Json, expected: list[str]) -> None:
    entries = managed_fields.entries_of_new(kind, {"metadata": {"name": "x"}, "spec": spec}, Writer("me"))
    (entry,) = entries
    owned = [path_text(path) for path in paths(entry["fieldsV1"])]
    assert [path for path in owned if not path.endswith(".storage")] == expected
