"""Port numbers of the API are 0 to 65535: an object with another one is left out and named, and the others are kept."""

import json
from typing import Any

import pytest
from list_pages import decode_list

from kdns.cluster.objects import EndpointSlice, Service
from kdns.cluster.watch import RESOURCES

SERVICE = {"metadata": {"name": "a"}, "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}}
SLICE = {"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": [], "ports": [{"port": 80}]}


def with_spec(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "wrong"}, "spec": {"clusterIP": "10.96.0.2", "ports": [{"port": 80}], **fields}}


@pytest.mark.parametrize(
    ("kind", "good", "wrong", "reason"),
    [
        (Service, SERVICE, with_spec(healthCheckNodePort=65536), "<= 65535 - at `$.spec.healthCheckNodePort`"),
        (Service, SERVICE, with_spec(ports=[{"port": 70000}]), "<= 65535 - at `$.spec.ports[0].port`"),
        (Service, SERVICE, with_spec(ports=[{"port": 80, "nodePort": -1}]), ">= 0 - at `$.spec.ports[0].nodePort`"),
        (EndpointSlice, SLICE, SLICE | {"metadata": {"name": "wrong"}, "ports": [{"port": 65536}]}, "<= 65535 - at"),
    ],
)
def test_a_port_out_of_range(
    kind: type[Service | EndpointSlice], good: dict[str, Any], wrong: dict[str, Any], reason: str
) -> None:
    resource = RESOURCES[kind]
    body = {"kind": f"{kind.__name__}List", "apiVersion": resource.api_version, "metadata": {}, "items": [good, wrong]}
    page = decode_list(resource, json.dumps(body).encode())
    assert [obj.metadata.name for obj in page.objects] == ["a"]
    ((key, error),) = [(failure.key, failure.reason) for failure in page.failures]
    assert key == ("", "wrong")
    assert reason in error
