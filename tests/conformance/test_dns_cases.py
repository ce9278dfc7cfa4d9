"""The recorded DNS cases of CoreDNS's own tests, whole."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dns_harness import ZoneFile, ask, difference, options_of, recorded, server_of, state_of

NOT_YET = {
    "multicluster": "the MCS API is not served yet",
    "zonal": "zonal names are not served yet",
    "autopath": "the autopath directive does not exist yet",
    "k8s_external": "the k8s_external directive does not exist yet",
}
DEVIATIONS: dict[str, str] = {}


def reason_to_wait(case: dict[str, Any]) -> str:
    config = case["plugin_config"]
    for feature, reason in NOT_YET.items():
        if case.get(feature) or config.get(feature):
            return reason
    return ""


def behind(case: dict[str, Any]) -> tuple[ZoneFile, ...]:
    """The recorded neighbours of `kubernetes`: zone files after it, and what a forwarder would have found."""
    files = [ZoneFile(origin, text) for origin, text in case.get("zonefiles", {}).items()]
    files += [ZoneFile(origin, text, authority=False) for origin, text in case.get("upstream_zonefiles", {}).items()]
    upstream = case.get("upstream_answers")
    if upstream:
        files.append(ZoneFile("test.", "\n".join(upstream["rrs"]), truncated=upstream["truncated"]))
    return tuple(files)


async def test_dns_cases() -> None:
    content = recorded("dns-cases.json")
    outcomes: Counter[str] = Counter()
    failures = []
    for case in content["cases"]:
        waits = reason_to_wait(case)
        if waits:
            outcomes[waits] += 1
            continue
        config = case["plugin_config"]
        objects = [o for o in content["objects"] if o["metadata"]["annotations"]["coredns-conformance/fixture"] == case["fixture"]]
        state = state_of(
            objects,
            labels=config["labels"] or "",
            namespace_labels=config["namespace_labels"] or "",
            synced=case.get("api_state") != "unsynced",
        )
        options = options_of(config, case.get("local_ips", ()))
        server = server_of(state, options, fallthrough=config["fallthrough"] or (), behind=behind(case))
        wrong = difference(case, await ask(server, case["qname"], case["qtype"]))
        if wrong and case["id"] not in DEVIATIONS:
            failures.append(f"{case['id']} {case['qname']} {case['qtype']}: {wrong}")
        outcomes["failed" if wrong else "passed"] += 1
    print(f"dns-cases.json: {dict(outcomes)}")
    assert not failures, "\n".join(failures)
    assert outcomes["passed"] > 100
