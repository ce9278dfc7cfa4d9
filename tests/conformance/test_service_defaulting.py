"""Recorded defaults of Services: what a created Service says over HTTP."""

from operator import itemgetter

from recorded_cases import each_case, recorded
from rest_harness import path_of, server

from kdns.controlplane.apimachinery.kinds import SERVICE, Json

ALLOCATED = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
"""What is filled in behind the defaults, and not part of the recorded result."""


def defaulted(spec: Json, wanted: Json) -> Json:
    """The spec without what was allocated."""
    ports = [
        {key: value for key, value in port.items() if key != "nodePort" or key in row}
        for port, row in zip(spec.get("ports") or [], wanted.get("ports") or [], strict=True)
    ]
    plain = {key: value for key, value in spec.items() if key not in ALLOCATED or key in wanted}
    return {**plain, "ports": ports} if ports else plain


@each_case(recorded("service-defaulting-cases.json")["cases"], itemgetter("name"))
async def test_recorded_defaults_over_http(name: str, case: Json) -> None:
    namespace, wanted = case["in"]["metadata"]["namespace"], case["expect"]
    async with server("0.0.0.0/1", "2001::/64", node_ports=range(1, 40000), namespaces=(namespace,)) as client:
        code, made = await client("POST", path_of(SERVICE, namespace), case["in"])
        assert code == 201, name
        assert defaulted(made["spec"], wanted["spec"]) == wanted["spec"]
        assert made["status"] == {"loadBalancer": {}}, "a status comes in through its subresource only"
        if "status" in wanted:
            path = path_of(SERVICE, namespace, made["metadata"]["name"], "status")
            code, made = await client("PUT", path, {**made, "status": case["in"]["status"]})
            assert (code, made["status"]) == (200, wanted["status"])
