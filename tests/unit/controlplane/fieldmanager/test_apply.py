"""Field ownership and server-side apply, with the real schema and strategies."""

import json
from typing import Any

import pytest
import yaml
from object_api import Api, refused

from kdns.controlplane.apimachinery.annotations import KUBECTL_LAST_APPLIED
from kdns.controlplane.apimachinery.kinds import DEPLOYMENT, SERVICE, Json, Kind
from kdns.controlplane.fieldmanager.field_sets import path_text, paths

WEB = """
apiVersion: v1
kind: Service
metadata: {name: web, labels: {app: web}}
spec:
  selector: {app: web}
  ports:
  - {name: http, port: 80, targetPort: 9376}
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
        self.second = 0
        self.api = Api(now_s=self.now_s)

    def now_s(self) -> float:
        return float(self.second)

    def create(self, manager: str, text: str = WEB, kind: Kind = SERVICE) -> Json:
        self.second += 1
        return self.api.create(kind, yaml.safe_load(text), manager=manager)

    def apply(self, manager: str, text: str = WEB, kind: Kind = SERVICE, **options: Any) -> Json:
        self.second += 1
        config = yaml.safe_load(text)
        return self.api.apply(kind, config["metadata"]["name"], config, manager=manager, **options)

    def merge(self, manager: str, patch: Json, kind: Kind = SERVICE, name: str = "web", subresource: str = "") -> Json:
        self.second += 1
        return self.api.patch(kind, name, patch, manager=manager, subresource=subresource)

    def owners(self, kind: Kind = SERVICE, name: str = "web") -> dict[str, list[str]]:
        """Manager, operation and subresource → the paths of the entry."""
        obj = self.api.get(kind, name)
        return {
            " ".join(
                filter(None, (managedfield["manager"], managedfield["operation"], managedfield.get("subresource")))
            ): [path_text(path) for path in paths(managedfield["fieldsV1"])]
            for managedfield in obj["metadata"].get("managedFields") or []
        }

    def times(self) -> dict[str, str]:
        entries = self.api.get(SERVICE, "web")["metadata"]["managedFields"]
        return {entry["manager"]: entry["time"] for entry in entries}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


PORT = '.spec.ports[port=80,protocol="TCP"]'
OWNED = [".metadata.labels.app", ".spec.selector", PORT, f"{PORT}.name", f"{PORT}.port", f"{PORT}.targetPort"]


def test_objects_that_were_never_applied_have_no_managers(cluster: Cluster) -> None:
    """The first apply meets one manager of all that is there, and from then on updates leave their names."""
    assert "managedFields" not in cluster.create("you")["metadata"]
    assert "managedFields" not in cluster.merge("you", {"metadata": {"labels": {"a": "b"}}})["metadata"]
    text = 'conflict with "before-first-apply" using v1: .spec.selector'
    refused(409, text, lambda: cluster.apply("me", WEB.replace("selector: {app: web}", "selector: {app: y}")))
    cluster.apply("me")
    found = cluster.owners()
    assert list(found) == ["me Apply", "before-first-apply Update"]
    assert {".metadata.labels.a", ".spec.selector", f"{PORT}.targetPort"} <= set(found["before-first-apply Update"])
    assert not any(path.startswith((".status", ".metadata.name")) for path in found["before-first-apply Update"])


def test_a_writer_takes_over_what_it_changes(cluster: Cluster) -> None:
    entry = cluster.apply("me")["metadata"]["managedFields"][0]
    assert list(entry) == ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1"]
    assert list(entry["fieldsV1"]["f:spec"]["f:ports"]) == ['k:{"port":80,"protocol":"TCP"}']
    cluster.merge("you", {"spec": {"selector": {"app": "x"}}, "metadata": {"labels": {"app": None, "b": "c"}}})
    found = cluster.owners()
    assert found["you Update"] == [".metadata.labels.b", ".spec.selector"]
    assert set(OWNED) - set(found["me Apply"]) == {".spec.selector", ".metadata.labels.app"}
    assert cluster.times() == {"me": at(1), "you": at(2)}
    cluster.merge("you", {"spec": {"selector": None, "type": "NodePort"}, "metadata": {"labels": None}})
    found = cluster.owners()
    assert found["you Update"] == [".spec.externalTrafficPolicy", ".spec.type"]
    assert cluster.times() == {"me": at(1), "you": at(3)}


def test_an_update_without_changes_is_no_write(cluster: Cluster) -> None:
    before = cluster.apply("me")
    assert cluster.apply("me") == before, "not even the time changes"
    assert cluster.merge("you", {"spec": {"type": "ClusterIP"}}) == before
    assert cluster.api.update(SERVICE, "web", before, manager="you") == before


def test_a_writer_without_a_name_owns_nothing_and_takes_from_others(cluster: Cluster) -> None:
    cluster.apply("me")
    cluster.merge("", {"spec": {"selector": {"app": "x"}}})
    assert cluster.owners() == {"me Apply": [path for path in OWNED if path != ".spec.selector"]}


def test_status_is_written_through_its_subresource(cluster: Cluster) -> None:
    cluster.apply("me", f"{WEB}\nstatus: {{loadBalancer: {{ingress: [{{ip: 1.2.3.4}}]}}}}")
    cluster.merge("me", {"spec": {"type": "LoadBalancer"}})
    ingress = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}}}
    cluster.merge("lb", {**ingress, "spec": {"type": "NodePort"}}, subresource="status")
    found = cluster.owners()
    assert found["lb Update status"] == [".status.loadBalancer.ingress"]
    assert not any(path.startswith(".status") for path in found["me Apply"])
    cluster.merge("me", {"status": None})
    assert cluster.owners() == found


def test_entries_can_be_removed(cluster: Cluster) -> None:
    """Kubernetes documentation, "Server-Side Apply": by a single empty entry, and not by an empty list."""
    before = cluster.apply("me")["metadata"]["managedFields"]
    empty: Json = {"metadata": {"managedFields": [{}]}}
    for sent, subresource in (({"metadata": {"managedFields": []}}, ""), (empty, "status")):
        assert cluster.merge("me", sent, subresource=subresource)["metadata"]["managedFields"] == before
    assert "managedFields" not in cluster.merge("me", empty)["metadata"]


def test_entries_can_be_rewritten_but_not_broken(cluster: Cluster) -> None:
    """As kubectl does when it goes over to server-side apply."""
    entry = cluster.apply("me")["metadata"]["managedFields"][0]
    for broken in ({**entry, "operation": "Steal"}, {**entry, "fieldsV1": {"x": {}}}, {**entry, "fieldsType": "V2"}):
        kept = cluster.merge("me", {"metadata": {"managedFields": [broken]}})
        assert kept["metadata"]["managedFields"] == [entry]
    empty = {**entry, "manager": "c", "fieldsV1": {}}
    moved = {**entry, "manager": "kubectl"}
    changed = cluster.merge("me", {"metadata": {"managedFields": [moved, empty]}})
    assert changed["metadata"]["managedFields"] == [moved]


def test_apply_creates_and_owns_what_it_configures(cluster: Cluster) -> None:
    made = cluster.apply("me", f"{WEB}\nstatus: {{loadBalancer: {{}}}}")
    assert made["spec"]["clusterIP"]
    assert cluster.owners() == {"me Apply": OWNED}


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
    cluster.apply("me")
    cluster.merge("you", {"spec": {"selector": {"app": "x"}}})
    wanted = WEB.replace("9376", "80").replace("selector: {app: web}", "selector: {app: y}")
    before = cluster.api.get(SERVICE, "web")
    error = refused(409, "Apply failed with 2 conflicts", lambda: cluster.apply("other", wanted))
    assert error.message == (
        'Apply failed with 2 conflicts: conflicts with "me":\n'
        f'- {PORT}.targetPort\nconflicts with "you" using v1:\n- .spec.selector'
    )
    assert (error.details or {})["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "me"', "field": f"{PORT}.targetPort"},
        {"reason": "FieldManagerConflict", "message": 'conflict with "you" using v1', "field": ".spec.selector"},
    ]
    assert cluster.api.get(SERVICE, "web") == before
    forced = cluster.apply("other", wanted, force=True)
    assert (forced["spec"]["selector"], forced["spec"]["ports"][0]["targetPort"]) == ({"app": "y"}, 80)
    assert "you Update" not in cluster.owners(), "who has nothing left is gone"
    text = 'Apply failed with 1 conflict: conflict with "other": .spec.selector'
    refused(409, text, lambda: cluster.apply("third", wanted.replace("app: y", "app: z")))
    assert cluster.apply("third", wanted)["spec"]["selector"] == {"app": "y"}, "the same value is shared"


def test_a_conflict_names_the_subresource(cluster: Cluster) -> None:
    cluster.apply("me", WEB.replace("spec:", "spec:\n  type: LoadBalancer"))
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


def test_kubectl_takes_over_from_its_client_side_apply(cluster: Cluster) -> None:
    config = {**yaml.safe_load(WEB)}
    annotated = {**config["metadata"], "annotations": {KUBECTL_LAST_APPLIED: json.dumps(config)}}
    cluster.create("kubectl-client-side-apply", json.dumps({**config, "metadata": annotated}))
    changed = WEB.replace("9376", "80")
    refused(409, "1 conflict", lambda: cluster.apply("me", changed))
    live = cluster.apply("kubectl", changed.replace(", labels: {app: web}", ""))
    assert live["spec"]["ports"][0]["targetPort"] == 80
    assert "labels" not in live["metadata"], "what the old way configured is pruned too"
    noted = json.loads(live["metadata"]["annotations"][KUBECTL_LAST_APPLIED])
    assert noted["spec"]["ports"][0]["targetPort"] == 80, "client-side apply goes on from here"
    cluster.merge("editor", {"spec": {"selector": {"app": "edited"}}})
    refused(409, 'conflict with "editor"', lambda: cluster.apply("kubectl", changed))
    annotation = json.dumps({**config, "spec": {**config["spec"], "selector": {"app": "old"}}})
    again = {"metadata": {"annotations": {KUBECTL_LAST_APPLIED: annotation}}, "spec": {"selector": {"app": "old"}}}
    cluster.merge("kubectl-client-side-apply", again)
    assert cluster.apply("kubectl", changed)["spec"]["selector"] == {"app": "web"}, (
        "nor is the old way a conflict later"
    )


def test_kubectl_takes_nothing_over_from_another_applier(cluster: Cluster) -> None:
    config = yaml.safe_load(WEB)
    annotated = {**config["metadata"], "annotations": {KUBECTL_LAST_APPLIED: json.dumps(config)}}
    cluster.create("kubectl-client-side-apply", json.dumps({**config, "metadata": annotated}))
    cluster.apply("me")
    refused(409, 'conflict with "me"', lambda: cluster.apply("kubectl", WEB.replace("9376", "80")))


def test_an_apply_that_changes_only_what_it_owns_keeps_its_time(cluster: Cluster) -> None:
    cluster.apply("you")
    more = WEB.replace("{app: web}}", "{app: web, a: b}}", 1)
    cluster.apply("me", more)
    before = cluster.owners()["me Apply"]
    cluster.apply("me", more.replace("  selector: {app: web}\n", ""))
    assert cluster.owners()["me Apply"] == [path for path in before if path != ".spec.selector"]
    assert cluster.times() == {"you": at(1), "me": at(2)}


def test_the_annotation_of_client_side_apply_goes_before_there_are_too_many_annotations(cluster: Cluster) -> None:
    config = yaml.safe_load(WEB)
    annotated = {**config["metadata"], "annotations": {KUBECTL_LAST_APPLIED: json.dumps(config)}}
    cluster.create("kubectl-client-side-apply", json.dumps({**config, "metadata": annotated}))
    text = cluster.apply("kubectl")["metadata"]["annotations"][KUBECTL_LAST_APPLIED]
    large = "x" * (256 * 1024 - len("large") - len(KUBECTL_LAST_APPLIED) - len(text))
    cluster.merge("you", {"metadata": {"annotations": {"large": large}}})
    assert cluster.apply("kubectl")["metadata"]["annotations"] == {KUBECTL_LAST_APPLIED: text, "large": large}
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
        (WEB.replace("port: 80,", "port: [],"), 500, ".spec.ports[0].port: expected an integer of 32 bits, got a list"),
        (WEB.replace("{app: web}\n  ports", "web\n  ports"), 500, '.spec.selector: expected an object, got "web"'),
        (
            WEB.replace("selector: {app: web}", "selector: {app: true}"), 500,
            ".spec.selector[app]: expected a string, got a boolean; put it in quotes",
        ),
        (f"{WEB}  - {{port: 80}}\n", 500, '.spec.ports: duplicate entries for key [port=80,protocol="TCP"]'),
        (WEB.replace("port: 80,", ""), 422, "spec.ports[1].port: Invalid value: 0"),
    ],
)  # fmt: skip
def test_configurations_that_are_refused(cluster: Cluster, text: str, code: int, message: str) -> None:
    before = cluster.create("me")
    refused(code, message, lambda: cluster.apply("other", text))
    assert cluster.api.get(SERVICE, "web") == before


def test_an_object_that_is_not_there_cannot_be_meant(cluster: Cluster) -> None:
    refused(404, 'services "web" not found', lambda: cluster.apply("me", subresource="status"))
    assert not cluster.api.items(SERVICE)


def test_a_dry_run_applies_nothing(cluster: Cluster) -> None:
    assert cluster.apply("me", dry_run=True)["metadata"]["managedFields"]
    assert cluster.api.names(SERVICE) == []
    made = cluster.apply("me")
    assert cluster.apply("me", WEB.replace("9376", "80"), dry_run=True)["spec"]["ports"][0]["targetPort"] == 80
    assert cluster.api.get(SERVICE, "web") == made


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
    assert cluster.api.get(DEPLOYMENT, "web")["spec"]["replicas"] == 4


@pytest.mark.parametrize("field", ["metadata", "spec"])
def test_a_scale_of_the_wrong_shape_is_refused(cluster: Cluster, field: str) -> None:
    cluster.apply("me", DEPLOYMENT_TEXT, DEPLOYMENT)
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", field: [[]]}
    text = f".{field}: expected an object, got a list"
    refused(500, text, lambda: cluster.api.apply(DEPLOYMENT, "web", scale, manager="hpa", subresource="scale"))
