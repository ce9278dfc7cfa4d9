"""Recorded facts about the kubelet's service variables."""

import json
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from kdns import env
from kdns.cluster.objects import Service

FACTS = Path(__file__).parents[2].parent / "shared" / "conformance" / "envvars-cases.json"
Case: TypeAlias = dict[str, Any]

pytestmark = pytest.mark.skipif(not FACTS.exists(), reason=f"the recorded facts are not here: {FACTS}")

DEVIATIONS: dict[str, str] = {}
"""Case id → reason. None is known."""

OTHER_ERRORS = {"configmap_missing", "secret_missing"}
"""Cases whose pod fails for its own env entries: the service variables are right all the same."""


def services(case: Case) -> list[Service]:
    return [msgspec.convert(obj, Service) for obj in case["services"]]


def links_agree(case: Case) -> bool:
    got = [pair for service in services(case) for pair in env.variables_of(service)]
    return got == [(variable["name"], variable["value"]) for variable in case["expected"]]


def selection_agrees(case: Case) -> bool:
    unset = case["expectedServiceEnv"] is None
    try:
        got = env.pod_service_variables(
            None if case["serviceListerIsNil"] else services(case),
            case["namespace"],
            enable_service_links=None if unset else case["enableServiceLinks"],
            services_synced=case["servicesSynced"],
            static_pod=case["staticPod"],
        )
    except env.EnvError:
        return bool(case["expectedError"])
    refused_for_services = case["expectedError"] and case["id"].rsplit("/", 1)[-1] not in OTHER_ERRORS
    return not refused_for_services and got == case["expectedServiceEnv"]


def test_envvars_facts() -> None:
    facts = json.loads(FACTS.read_text())
    results = {case["id"]: links_agree(case) for case in facts["fromServices"]}
    results |= {case["id"]: selection_agrees(case) for case in facts["serviceEnvMap"]}
    failed = [case for case, agrees in results.items() if not agrees and case not in DEVIATIONS]
    deviations = sum(not agrees for agrees in results.values()) - len(failed)
    print(f"{FACTS.name}: {sum(results.values())} passed, {deviations} known deviations, {len(failed)} failed")
    assert len(results) == len(facts["fromServices"]) + len(facts["serviceEnvMap"])
    assert failed == []
