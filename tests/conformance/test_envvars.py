"""Recorded facts about the kubelet's service variables."""

from operator import itemgetter

import msgspec
from recorded_cases import Json, each_case, recorded

from kdns import env
from kdns.cluster.objects import Service

FACTS = recorded("envvars-cases.json")
OTHER_ERRORS = {"configmap_missing", "secret_missing"}
"""Cases whose pod fails for its own env entries: the service variables are right all the same."""


@each_case([*FACTS["fromServices"], *FACTS["serviceEnvMap"]], itemgetter("id"))
def test_envvars_facts(name: str, case: Json) -> None:
    services = [msgspec.convert(obj, Service) for obj in case["services"]]
    if "expected" in case:
        got = [pair for service in services for pair in env.variables_of(service)]
        assert got == [(variable["name"], variable["value"]) for variable in case["expected"]]
        return
    try:
        found = env.pod_service_variables(
            None if case["serviceListerIsNil"] else services,
            case["namespace"],
            enable_service_links=None if case["expectedServiceEnv"] is None else case["enableServiceLinks"],
            services_synced=case["servicesSynced"],
            static_pod=case["staticPod"],
        )
    except env.EnvError:
        assert case["expectedError"]
        return
    assert not case["expectedError"] or name.rsplit("/", 1)[-1] in OTHER_ERRORS
    assert found == case["expectedServiceEnv"]
