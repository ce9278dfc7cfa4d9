"""Recorded validation of Services, Endpoints and EndpointSlices: the same fields, messages and order."""

from __future__ import annotations

from operator import itemgetter

from recorded_cases import each_case, recorded

from kdns.controlplane.meta.errors import Cause
from kdns.controlplane.meta.kinds import Json
from kdns.controlplane.resources.discovery.validation import validate_endpoint_slice, validate_endpoints
from kdns.controlplane.resources.service.validation import (
    validate_external_traffic,
    validate_load_balancer_status,
    validate_service,
    validate_service_update,
)
from kdns.controlplane.resources.validation import Gates

GATES = {
    "StrictIPCIDRValidation": "strict_ips",
    "RelaxedServiceNameValidation": "relaxed_service_names",
    "PreferSameTrafficDistribution": "prefer_same_traffic",
}


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


def found_in(case: Json) -> list[Cause]:
    gates = Gates(**{GATES[name]: value for name, value in case["featureGates"].items()})
    obj, old = case["object"] or generated(case["generate"]), case.get("old")
    if case.get("kind") == "Endpoints":
        return validate_endpoints(obj, old, gates)
    if case.get("kind") == "EndpointSlice":
        return validate_endpoint_slice(obj, old, gates)
    if case["op"] == "externalTrafficPolicy":
        return validate_external_traffic(obj)
    if case["op"] == "statusUpdate":
        return validate_load_balancer_status(obj, old or {}, gates)
    return validate_service_update(obj, old, gates) if old else validate_service(obj, None, gates)


@each_case(CASES, itemgetter("id"))
def test_recorded_case(name: str, case: Json) -> None:
    wanted = [f"{error['field']}: {error['body']} ({error['type']})" for error in case["errors"]]
    assert [f"{cause.field}: {cause.message} ({cause.reason})" for cause in found_in(case)] == wanted, name
