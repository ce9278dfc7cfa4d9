"""What Go writes of absent fields, and how other values are written."""

import pytest

from kdns.controlplane.apimachinery.kinds import DEPLOYMENT, ENDPOINT_SLICE, ENDPOINTS, EVENT, POD, SERVICE, Json, Kind
from kdns.controlplane.kinds.conversion import SCALE
from kdns.controlplane.schema.serialization import encoded, matching, read, serialized, typed

EVENT_TIMES: Json = {"firstTimestamp": None, "lastTimestamp": None, "eventTime": None}


@pytest.mark.parametrize(
    ("kind", "obj", "wanted"),
    [
        (ENDPOINT_SLICE, {"addressType": "IPv4"}, {"addressType": "IPv4", "endpoints": None, "ports": None}),
        (
            ENDPOINT_SLICE,
            {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]},
            {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {}}], "ports": None},
        ),
        (ENDPOINTS, {"metadata": {"name": "a"}}, {"metadata": {"name": "a"}}),
        (SERVICE, {"spec": {}}, {"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}}),
        (
            SERVICE,
            {"metadata": {}, "spec": {"ports": [{"port": 80}]}, "status": {}},
            {"metadata": {}, "spec": {"ports": [{"port": 80, "targetPort": 0}]}, "status": {"loadBalancer": {}}},
        ),
        (
            EVENT,
            {"metadata": {}, "source": {"component": "c"}},
            {
                "metadata": {},
                "source": {"component": "c"},
                "involvedObject": {},
                "reportingComponent": "",
                "reportingInstance": "",
                **EVENT_TIMES,
            },
        ),
        (
            POD,
            {"metadata": {}, "spec": {"containers": [{"name": "c"}], "securityContext": {}}, "status": {}},
            {
                "metadata": {},
                "spec": {"containers": [{"name": "c", "resources": {}}], "securityContext": {}},
                "status": {},
            },
        ),
        (
            DEPLOYMENT,
            {"metadata": {}, "spec": {"selector": {}}},
            {
                "metadata": {},
                "spec": {"selector": {}, "template": {"metadata": {}, "spec": {"containers": None}}, "strategy": {}},
                "status": {},
            },
        ),
        (SCALE, {"metadata": {}}, {"metadata": {}, "spec": {}, "status": {"replicas": 0}}),
    ],
)
def test_what_go_writes(kind: Kind, obj: Json, wanted: Json) -> None:
    shown = serialized(kind, obj)
    assert list(shown)[:2] == ["kind", "apiVersion"]
    assert {"metadata": {}, **shown} == {"metadata": {}, "kind": kind.kind, "apiVersion": kind.api_version, **wanted}
    assert serialized(kind, shown) == shown


def test_what_needs_a_closer_look_is_the_same() -> None:
    """Nulls and empty lists in the place of absent values, unknown fields, and values of the wrong type, which stay."""
    sent: Json = {"metadata": None, "spec": {"containers": [], "nodeName": None, "x": 1, "hostname": 7}, "status": {}}
    assert matching(POD, typed(POD, sent)) is None
    assert serialized(POD, sent) == {**typed(POD, {}), "spec": {"hostname": 7}, "status": {}}
    del sent["spec"]["hostname"]
    wanted = {**typed(POD, {}), "metadata": {}, "spec": {"containers": None}, "status": {}}
    assert serialized(POD, sent) == matching(POD, wanted) == wanted
    empty: Json = {"metadata": {}, "endpoints": [], "addressType": ""}
    assert serialized(ENDPOINT_SLICE, empty) == serialized(ENDPOINT_SLICE, {})


def test_values_that_are_written_in_one_way() -> None:
    limits = {"cpu": "1000m", "memory": 1024}
    sent: Json = {"metadata": {"creationTimestamp": "2026-01-01T01:00:00+01:00"}}
    sent["spec"] = {"containers": [{"name": "c", "resources": {"limits": limits}}]}
    made = matching(POD, sent) or {}
    assert made["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1", "memory": "1024"}
    assert limits == {"cpu": "1000m", "memory": 1024}
    for wrong in ({"cpu": "x"}, {"cpu": True}, {"cpu": None}):
        limits.update(wrong)
        assert matching(POD, sent) is None


EXACT: bytes = encoded(SERVICE, {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}})


def test_read_takes_what_go_writes() -> None:
    assert read(SERVICE, EXACT + b"\n") == serialized(
        SERVICE, {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}
    )


@pytest.mark.parametrize(
    "text",
    [
        EXACT.replace(b'"name":"a"', b'"name":"b","name":"a"'),
        EXACT.replace(b'"name":"a"', b'"name":"a","nom":"a"'),
        EXACT.replace(b'"name":"a"', b'"name":1'),
        EXACT.replace(b'"name":"a"', b'"name": "a"'),
        EXACT.replace(b'"kind":"Service"', b'"kind":"Endpoints"'),
        EXACT.replace(b'"kind":"Service","apiVersion":"v1",', b""),
        EXACT[:-1],
        EXACT.replace(b'"name":"a"', b'"name":"\xff"'),
        b"null",
    ],
    ids=["duplicate", "unknown", "type", "space", "kind", "kind-less", "cut", "utf-8", "null"],
)
def test_read_leaves_other_texts(text: bytes) -> None:
    assert text != EXACT
    assert read(SERVICE, text) is None
