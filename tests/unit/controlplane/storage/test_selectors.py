"""Label and field selectors, one rule in each row."""

import pytest
from object_api import refused
from served_kinds import CATALOGUE

from kdns.cluster import selectors
from kdns.controlplane.apimachinery.inert import RESOURCE_SLICE
from kdns.controlplane.apimachinery.kinds import (
    ENDPOINT_SLICE,
    EVENT,
    JOB,
    NODE,
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    SECRET,
    SERVICE,
    Json,
    Kind,
)
from kdns.controlplane.storage import field_selectors
from kdns.controlplane.storage.field_selectors import FieldLabels

WEB = {"app": "web", "tier": "front", "n": "5"}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True),
        ("  ", True),
        ("app=web", True),
        ("app==web", True),
        (" app = web , tier = front ", True),
        ("app=db", False),
        ("app!=db", True),
        ("app!=web", False),
        ("missing!=x", True),
        ("app in (db, web)", True),
        ("app in (db)", False),
        ("app notin (db)", True),
        ("app notin (web,db)", False),
        ("missing notin (a)", True),
        ("missing in ()", False),
        ("app", True),
        ("missing", False),
        ("!missing", True),
        ("! app", False),
        ("n>4", True),
        ("n>5", False),
        ("n<6", True),
        ("app<6", False),
        ("missing>1", False),
        ("app=web,missing", False),
        ("missing=", False),
        ("in=web", False),
        ("example.com/app!=x,app", True),
    ],
)
def test_label_selector(text: str, selected: bool) -> None:
    assert selectors.parse(text).matches(WEB) is selected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("app=web,", "expected a label key"),
        ("=web", "expected a label key"),
        ("app web", "expected =, =="),
        ("app in web", "expected '('"),
        ("app in", "expected '(' after in or notin, got 'the end'"),
        ("n>", "expected an integer after '<' or '>', got 'the end'"),
        ("app in (web", "expected ',' or ')'"),
        ("app=web)", "expected ','"),
        ("a_/app=web", "must be a DNS name"),
        ("-app=web", "alphanumeric at both ends"),
        ("app=-web", "alphanumeric at both ends"),
        (f"app={'a' * 64}", "at most 63"),
        ("n>x", "expected an integer"),
    ],
)
def test_label_selector_errors_teach(text: str, reason: str) -> None:
    with pytest.raises(selectors.SelectorError) as caught:
        selectors.parse(text)
    assert reason in str(caught.value)
    assert repr(text) in str(caught.value)


def test_labels_of_a_service_selector() -> None:
    selector = selectors.from_labels({"app": "web"})
    assert selector.matches(WEB)
    assert not selector.matches(None)


def labels_of(kind: Kind) -> FieldLabels:
    return CATALOGUE.field_labels(kind.stored_kind, kind)


RUNNING: Json = {
    "metadata": {"name": "a", "namespace": "x"},
    "spec": {"nodeName": "n1"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("kind", "obj", "text", "selected"),
    [
        (POD, RUNNING, "", True),
        (POD, RUNNING, "status.phase=Running", True),
        (POD, RUNNING, "status.phase==Running,metadata.name=a", True),
        (POD, RUNNING, "status.phase!=Running", False),
        (POD, RUNNING, "metadata.name!=a", False),
        (POD, RUNNING, "spec.nodeName=n1,metadata.namespace=y", False),
        (POD, RUNNING, "spec.hostNetwork=false", True),
        (POD, RUNNING, "status.podIP=", True),
        (NODE, {"spec": {"unschedulable": True}}, "spec.unschedulable=true", True),
        (EVENT, {"involvedObject": {"name": "a,b"}}, r"involvedObject.name=a\,b", True),
        (EVENT, {"source": {"component": "c"}}, "source=c", True),
        (EVENT, {"reportingComponent": "c"}, "source=c,reportingComponent=c", True),
        (POD, {"status": {"podIPs": [{"ip": "10.0.0.1"}]}}, "status.podIPs=10.0.0.1", False),
        (POD, RUNNING, "spec.host=n1", True),
        (SECRET, {"type": "Opaque"}, "type=Opaque", True),
        (SERVICE, {"spec": {"type": "NodePort"}}, "spec.type!=ClusterIP,spec.clusterIP=", True),
        (REPLICATION_CONTROLLER, {"status": {"replicas": 2}}, "status.replicas=2", True),
        (REPLICATION_CONTROLLER, {}, "status.replicas=0", True),
        (RESOURCE_SLICE, {"spec": {"driver": "d"}}, "spec.driver=d,spec.nodeName=", True),
        (SECRET, {"type": "a=b\\"}, r"type=a\=b\\", True),
        (JOB, {"status": {"succeeded": 1}}, "status.successful=1", True),
        (ENDPOINT_SLICE, {"metadata": {"name": "a"}}, "metadata.name=a", True),
    ],
)
def test_field_selector(kind: Kind, obj: Json, text: str, selected: bool) -> None:
    assert field_selectors.parse(labels_of(kind), text).matches(obj) is selected


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (POD, "spec.color=red", "field label not supported: spec.color"),
        (NODE, "metadata.namespace=x", "field label not supported: metadata.namespace"),
        (JOB, "a=b", 'field label "a" not supported for Job'),
        (
            ENDPOINT_SLICE,
            "addressType=IPv4",
            '"addressType" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        (POD, "nonsense", "invalid selector: 'nonsense'"),
        (POD, "metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        (POD, "metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
        (POD, r"metadata.name=a\b", r"invalid field selector: invalid escape sequence: \b"),
        (
            REPLICA_SET,
            "status.replicas=1",
            '"status.replicas" is not a known field selector: only "metadata.name", "meta',
        ),
        (RESOURCE_SLICE, "a=b", "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: a"),
    ],
)
def test_field_selector_refused(kind: Kind, text: str, reason: str) -> None:
    error = refused(400, reason, field_selectors.parse, labels_of(kind), text)
    assert error.message.startswith(reason), "kubectl itself puts in front what it was looking for"
