"""What Go writes of absent fields, and that objects in memory do not have it."""

from __future__ import annotations

import pytest

from kdns.controlplane.meta.kinds import DEPLOYMENT, ENDPOINT_SLICE, ENDPOINTS, EVENT, POD, SERVICE, Json, Kind
from kdns.controlplane.schema.omitempty import filled, lean
from kdns.controlplane.server.conversions import SCALE

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
                "spec": {
                    "selector": {},
                    "template": {"metadata": {}, "spec": {"containers": None}},
                    "strategy": {},
                },
                "status": {},
            },
        ),
        (SCALE, {"metadata": {}}, {"metadata": {}, "spec": {}, "status": {"replicas": 0}}),
    ],
)
def test_what_go_writes(kind: Kind, obj: Json, wanted: Json) -> None:
    shown = filled(kind, obj)
    assert list(shown)[:2] == ["kind", "apiVersion"]
    assert {"metadata": {}, **shown} == {"metadata": {}, "kind": kind.kind, "apiVersion": kind.api_version, **wanted}
    assert filled(kind, shown) == shown
    assert filled(kind, lean(kind, shown)) == shown


def test_objects_in_memory_lack_it() -> None:
    container = {"name": "c", "resources": {}, "securityContext": {}}
    obj: Json = {"metadata": {}, "spec": {"containers": [container]}, "status": {}}
    kept = {"name": "c", "securityContext": {}}
    assert lean(POD, obj) == {"metadata": {}, "spec": {"containers": [kept]}, "status": {}}
    assert lean(POD, {"metadata": {}, "spec": {"containers": None}}) == {"metadata": {}, "spec": {}}
    assert lean(ENDPOINT_SLICE, {"metadata": {}, "endpoints": [], "ports": None}) == {"metadata": {}}
    same = lean(POD, obj)
    assert lean(POD, same) is same
