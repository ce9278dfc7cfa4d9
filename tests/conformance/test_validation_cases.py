"""Recorded validation of Services, Endpoints and EndpointSlices: the same fields, messages and order."""

from __future__ import annotations

from operator import itemgetter

from recorded_cases import each_case, recorded

from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.discovery import validate_endpoint_slice, validate_endpoints
from kdns.controlplane.kinds.service.validation import (
    validate_external_traffic,
    validate_load_balancer_status,
    validate_service,
)

CASES: list[Json] = [
    case
    for file in ("service-validation-cases.json", "endpoints-validation-cases.json")
    for case in recorded(file)["cases"]
]


def generated(recipe: Json) -> Json:
    """The objects that are too large to be written down."""
    ports = [{**recipe["portTemplate"], "name": f"http-{index}"} for index in range(recipe["ports"])]
    endpoints = [recipe["endpointTemplate"]] * recipe["endpoints"]
    meta = {"name": "hello", "namespace": "world"}
    return {"metadata": meta, "addressType": recipe["addressType"], "endpoints": endpoints, "ports": ports}


GATE = "the case has another setting of a feature gate than Kubernetes 1.36, which is not implemented"
CREATE, LEGACY = "TestValidateServiceCreate", "with legacy validation"
KNOWN = dict.fromkeys(
    (
        f"{CREATE}/invalid name",
        f"{CREATE}/invalid generateName",
        f"{CREATE}/invalid: service name begins with a digit feature gate disabled",
        f"{CREATE}/invalid: trafficDistribution field set to Random",
        f"{CREATE}/invalid: trafficDistribution field set to PreferSameZone without feature gate",
        f"{CREATE}/invalid: trafficDistribution field set to PreferSameNode without feature gate",
        f"{CREATE}/valid legacy cluster ip {LEGACY}",
        f"{CREATE}/valid legacy externalIPs {LEGACY}",
        f"{CREATE}/valid legacy LoadBalancer source range {LEGACY}",
        f"TestValidateLoadBalancerStatus/legacy IP {LEGACY}",
        f"TestValidateEndpointsCreate/legacy: legacy IPs {LEGACY}",
        "TestValidateEndpointSlice/legacy-ip-with-legacy-validation",
    ),
    GATE,
)


def found_in(case: Json) -> list[Cause]:
    obj, old = case["object"] or generated(case["generate"]), case.get("old")
    if case.get("kind") == "Endpoints":
        return validate_endpoints(obj, old)
    if case.get("kind") == "EndpointSlice":
        return validate_endpoint_slice(obj, old)
    if case["op"] == "externalTrafficPolicy":
        return validate_external_traffic(obj["spec"])
    if case["op"] == "statusUpdate":
        return validate_load_balancer_status(obj, old, path="status")
    return validate_service(obj, old)


@each_case(CASES, itemgetter("id"), KNOWN)
def test_recorded_case(name: str, case: Json) -> None:
    wanted = [f"{error['field']}: {error['body']} ({error['type']})" for error in case["errors"]]
    assert [f"{cause.field}: {cause.message} ({cause.reason})" for cause in found_in(case)] == wanted, name
