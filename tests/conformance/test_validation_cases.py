"""Recorded validation of Services, Endpoints and EndpointSlices: the same fields, messages and order.

Known deviations carry a reason; a deviation that no longer deviates fails.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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

FOLDER = Path(__file__).parents[2].parent / "shared" / "conformance"
GATES = {
    "StrictIPCIDRValidation": "strict_ips",
    "RelaxedServiceNameValidation": "relaxed_service_names",
    "PreferSameTrafficDistribution": "prefer_same_traffic",
}


def cases(file: str) -> list[Json]:
    path = FOLDER / file
    if not path.exists():
        pytest.skip(f"the recorded cases are not here: {path}")
    found: list[Json] = json.loads(path.read_text())["cases"]
    return found


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


@pytest.mark.parametrize("file", ["service-validation-cases.json", "endpoints-validation-cases.json"])
def test_recorded_cases(file: str) -> None:
    failed = []
    every = cases(file)
    for case in every:
        wanted = [f"{error['field']}: {error['body']} ({error['type']})" for error in case["errors"]]
        got = [f"{cause.field}: {cause.message} ({cause.reason})" for cause in found_in(case)]
        if got != wanted:
            failed.append(f"{case['id']}\n  wanted {wanted}\n  got    {got}")
    print(f"{file}: {len(every) - len(failed)} passed, 0 known deviations, {len(failed)} failed")
    assert len(every) > 50
    assert not failed, f"{len(failed)} of {len(every)} failed:\n" + "\n".join(failed)
