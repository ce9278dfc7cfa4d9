"""Recorded defaults of Services: the pure function, and what a created Service says over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rest_harness import path_of, server

from kdns.controlplane.meta.kinds import SERVICE, Json
from kdns.controlplane.resources.strategy import STRATEGIES

FILE = Path(__file__).parents[2].parent / "shared" / "conformance" / "service-defaulting-cases.json"
ALLOCATED = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
"""What is filled in behind the defaults, and not part of the recorded result."""


def cases() -> list[Json]:
    if not FILE.exists():
        pytest.skip(f"the recorded cases are not here: {FILE}")
    found: list[Json] = json.loads(FILE.read_text())["cases"]
    assert len(found) > 20
    return found


def test_recorded_defaults() -> None:
    for case in cases():
        made = STRATEGIES[SERVICE].defaults(case["in"])
        wanted = case["expect"]
        assert made["spec"] == wanted["spec"], case["name"]
        assert made.get("status") == wanted.get("status"), case["name"]
    print(f"{FILE.name}: {len(cases())} passed, no known deviations, 0 failed")


def defaulted(spec: Json, wanted: Json) -> Json:
    """The spec without what was allocated."""
    ports = [
        {key: value for key, value in port.items() if key != "nodePort" or key in row}
        for port, row in zip(spec.get("ports") or [], wanted.get("ports") or [], strict=True)
    ]
    plain = {key: value for key, value in spec.items() if key not in ALLOCATED or key in wanted}
    return {**plain, "ports": ports} if ports else plain


async def test_recorded_defaults_over_http() -> None:
    failed = []
    for case in cases():
        namespace, wanted = case["in"]["metadata"]["namespace"], case["expect"]
        async with server("0.0.0.0/1", "2001::/64", node_ports=range(1, 40000), namespaces=(namespace,)) as client:
            code, made = await client("POST", path_of(SERVICE, namespace), case["in"])
            if code != 201 or defaulted(made["spec"], wanted["spec"]) != wanted["spec"]:
                failed.append(f"{case['name']}\n  wanted {wanted['spec']}\n  got    {code} {made}")
            assert made["status"] == {"loadBalancer": {}}, "a status comes in through its subresource only"
            if "status" in wanted:
                path = path_of(SERVICE, namespace, made["metadata"]["name"], "status")
                code, made = await client("PUT", path, {**made, "status": case["in"]["status"]})
                assert (code, made["status"]) == (200, wanted["status"]), case["name"]
    print(f"{FILE.name} over HTTP: {len(cases()) - len(failed)} passed, no known deviations, {len(failed)} failed")
    assert not failed, "\n".join(failed)
