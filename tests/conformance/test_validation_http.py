"""The recorded validation of Services, Endpoints and EndpointSlices through the real REST server: exact 422 bodies.

The recorded cases look at validation alone. A request meets defaults, families and allocation before it, and the
feature gates are those of 1.36: where that changes the answer, `INSTEAD` says why and what is answered.
"""

from operator import itemgetter

import pytest
from recorded_cases import each_case, recorded
from rest_harness import Server, path_of, server

from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, ENDPOINTS, SERVICE, Json, Kind

CASES: list[Json] = [
    case
    for file in ("service-validation-cases.json", "endpoints-validation-cases.json")
    for case in recorded(file)["cases"]
]
KINDS = {kind.kind: kind for kind in (SERVICE, ENDPOINTS, ENDPOINT_SLICE)}
NAMESPACES = ("valid", "default", "test", "foo", "namespace", "world")

CREATE, UPDATE, POLICY = (
    "TestValidateServiceCreate",
    "TestValidateServiceUpdate",
    "TestValidateServiceExternalTrafficPolicy",
)
SLICE, LEGACY = "TestValidateEndpointSlice", "with legacy validation"
OTHER_TYPE = "invalid: set LoadBalancerClass when update from LoadBalancer service to non LoadBalancer type of service"
DEFAULTED = "defaults fill the field in, or drop it"
GATES = "the server runs with the feature gates of 1.36, the case with others"
EARLIER = "families and allocation are looked at before validation"
URL = "name and namespace of a request are those of its URL"
WHOLE = "the case looks at one rule, the server at the whole object"
CLEARED = "values that the new type has no use for are cleared where the client left them alone"
CARRIED = "values that the client left out are those of the stored object"
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
ZEROS = 'Invalid value: "001.002.003.004": must not have leading 0s'
TAKEN = "422 spec.ports[2].nodePort: Invalid value: 1: provided port is already allocated"
TWO_STACKS = "must be 'RequireDualStack' or 'PreferDualStack' when multiple {} are specified"
RELEASE = "must be 'SingleStack' to release the secondary"
OUT_OF_STEP = (
    '422 spec.clusterIPs: Invalid value: ["2001::8000:0:0:80"]: must be empty when `clusterIP` is not specified; '
    'spec.clusterIPs[0]: Invalid value: "2001::8000:0:0:80": expected an IPv4 value as indicated by `ipFamilies[0]`'
)
INSTEAD: dict[str, tuple[str, str]] = {
    f"{CREATE}/missing namespace": (URL, "201"),
    f"{CREATE}/invalid namespace": (URL, '404 namespaces "-123" not found'),
    f"{CREATE}/invalid name": (GATES, f'422 metadata.name: Invalid value: "-123": {LABEL}'),
    f"{CREATE}/invalid generateName": (GATES, f'422 metadata.generateName: Invalid value: "-123": {LABEL}'),
    f"{CREATE}/missing session affinity": (DEFAULTED, "201"),
    f"{CREATE}/missing type": (DEFAULTED, "201"),
    f"{CREATE}/missing protocol": (DEFAULTED, "201"),
    f"{CREATE}/valid legacy cluster ip {LEGACY}": (GATES, f"422 spec.clusterIPs[0]: {ZEROS}"),
    f"{CREATE}/valid legacy externalIPs {LEGACY}": (GATES, f"422 spec.externalIPs[0]: {ZEROS}"),
    f"{CREATE}/valid legacy LoadBalancer source range {LEGACY}": (
        GATES,
        (
            '422 spec.LoadBalancerSourceRanges[0]: Invalid value: "001.002.003.000/24": '
            "must not have leading 0s in IP or prefix length"
        ),
    ),
    f"{CREATE}/invalid type - missing AllocateLoadBalancerNodePorts for loadbalancer type": (DEFAULTED, "201"),
    f"{CREATE}/duplicate nodeports": (EARLIER, TAKEN),
    f"{CREATE}/duplicate nodeports (different protocols)": (EARLIER, TAKEN),
    f"{CREATE}/invalid public service with duplicate NodePort": (EARLIER, TAKEN),
    f"{CREATE}/nil internalTraffic field when feature gate is on": (DEFAULTED, "201"),
    f"{CREATE}/negative healthCheckNodePort field": (
        EARLIER,
        (
            "500 Internal error occurred: failed to allocate requested HealthCheck NodePort -1: provided port "
            "is not in the valid range. The range of valid ports is 1-39999"
        ),
    ),
    f"{CREATE}/sessionAffinityConfig can't be set when session affinity is None": (DEFAULTED, "201"),
    f"{CREATE}/IPFamilyPolicy(singleStack) is set for two families": (
        EARLIER,
        f'422 spec.ipFamilyPolicy: Invalid value: "SingleStack": {TWO_STACKS.format("IP families")}',
    ),
    f"{CREATE}/ multi ip, dualstack not set (request for downgrade)": (
        EARLIER,
        (
            f'422 spec.ipFamilyPolicy: Invalid value: "SingleStack": {TWO_STACKS.format("cluster IPs")}; '
            f'spec.ipFamilyPolicy: Invalid value: "SingleStack": {TWO_STACKS.format("IP families")}'
        ),
    ),
    f"{CREATE}/invalid: trafficDistribution field set to Random": (
        GATES,
        (
            '422 spec.trafficDistribution: Unsupported value: "Random": supported values: "PreferClose", '
            '"PreferSameZone", "PreferSameNode"'
        ),
    ),
    f"{CREATE}/invalid: trafficDistribution field set to PreferSameZone without feature gate": (GATES, "201"),
    f"{CREATE}/invalid: trafficDistribution field set to PreferSameNode without feature gate": (GATES, "201"),
    f"{CREATE}/invalid: service name begins with a digit feature gate disabled": (GATES, "201"),
    f"{POLICY}/cannot set externalTrafficPolicy field on ExternalName service": (
        WHOLE,
        (
            '422 spec.externalName: Required value; spec.externalTrafficPolicy: Invalid value: "Local": '
            "may only be set for externally-accessible services"
        ),
    ),
    f"{POLICY}/externalTrafficPolicy is required on NodePort service": (DEFAULTED, "201"),
    f"{POLICY}/externalTrafficPolicy is required on LoadBalancer service": (DEFAULTED, "201"),
    f"{POLICY}/externalTrafficPolicy is required on ClusterIP service with externalIPs": (
        WHOLE,
        (
            '422 spec.externalIPs[0]: Invalid value: "1.2.3,4": must be a valid IP address, '
            "(e.g. 10.9.8.7 or 2001:db8::ffff)"
        ),
    ),
    f"{UPDATE}/change name": (URL, "400 the name of the object (valid2) does not match the name on the URL (valid)"),
    f"{UPDATE}/change namespace": (
        URL,
        "400 the namespace of the provided object does not match the namespace sent on the request",
    ),
    f"{UPDATE}/remove cluster IP": (CARRIED, "200"),
    f"{UPDATE}/`None` ClusterIP can NOT be removed": (CARRIED, "200"),
    f"{UPDATE}/remove affinity": (DEFAULTED, "200"),
    f"{UPDATE}/remove type": (DEFAULTED, "200"),
    f"{UPDATE}/invalid: convert to ExternalName": (CLEARED, "200"),
    f"{UPDATE}/same ServiceIPFamily, change IPFamilyPolicy singleStack => requireDualStack": (EARLIER, OUT_OF_STEP),
    f"{UPDATE}/add a new ServiceIPFamily": (EARLIER, OUT_OF_STEP),
    f"{UPDATE}/change primary ServiceIPFamily": (
        EARLIER,
        '422 spec.clusterIPs[0]: Invalid value: "1.2.3.4": expected an IPv6 value as indicated by `ipFamilies[0]`',
    ),
    f"{UPDATE}/invalid, downgrade without changing to singleStack": (
        EARLIER,
        (
            f'422 spec.ipFamilyPolicy: Invalid value: "RequireDualStack": {RELEASE} cluster IP; '
            f'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": {RELEASE} IP family'
        ),
    ),
    f"{UPDATE}/pre-existing invalid clusterIP ignored when adding clusterIPs": (
        EARLIER,
        (
            '422 spec.clusterIPs: Invalid value: ["1.2.3.04","2001:db8::4"]: failed to allocate IP 2001:db8::4: the '
            "provided IP (2001:db8::4) is not in the valid range. The range of valid IPs is 2001::/64"
        ),
    ),
    f"{UPDATE}/invalid: upgrade to dual stack and change primary": (
        EARLIER,
        '422 spec.clusterIPs[0]: Invalid value: ["1.2.3.5","2001::8000:0:0:80"]: may not change once set',
    ),
    f"{UPDATE}/{OTHER_TYPE}": (CLEARED, "200"),
    f"{UPDATE}/{OTHER_TYPE} (2)": (CLEARED, "422 spec.externalName: Required value"),
    f"{UPDATE}/{OTHER_TYPE} (3)": (CLEARED, "200"),
    "TestValidateLoadBalancerStatus/missing ipMode": (DEFAULTED, "200"),
    f"TestValidateLoadBalancerStatus/legacy IP {LEGACY}": (GATES, f"422 status.loadBalancer.ingress[0].ip: {ZEROS}"),
    "TestValidateEndpointsCreate/missing namespace": (URL, "201"),
    "TestValidateEndpointsCreate/invalid namespace": (URL, '404 namespaces "no@#invalid.;chars\\"allowed" not found'),
    "TestValidateEndpointsCreate/Port missing protocol": (DEFAULTED, "201"),
    f"TestValidateEndpointsCreate/legacy: legacy IPs {LEGACY}": (
        GATES,
        (
            '422 subsets[0].addresses[0].ip: Invalid value: "010.010.001.001": must not have leading 0s; '
            'subsets[1].addresses[0].ip: Invalid value: "::ffff:10.10.3.3": must not be an IPv4-mapped IPv6 address'
        ),
    ),
    f"{SLICE}/legacy-ip-with-legacy-validation": (
        GATES,
        '422 endpoints[0].addresses[0]: Invalid value: "012.034.056.078": must not have leading 0s',
    ),
    f"{SLICE}/empty-everything": (
        URL,
        "422 metadata.name: Required value: name or generateName is required; addressType: Required value",
    ),
}


def generated(recipe: Json) -> Json:
    """The objects that are too large to be written down."""
    ports = [{**recipe["portTemplate"], "name": f"http-{index}"} for index in range(recipe["ports"])]
    endpoints = [recipe["endpointTemplate"]] * recipe["endpoints"]
    meta = {"name": "hello", "namespace": "world"}
    return {"metadata": meta, "addressType": recipe["addressType"], "endpoints": endpoints, "ports": ports}


def refusal(kind: Kind, name: str, errors: list[Json]) -> Json:
    """The Status that a client gets for these field errors.

    The table of load balancers was recorded with another path than that of the API.
    """
    errors = [
        error | {"field": error["field"].replace("status.ingress", "status.loadBalancer.ingress")} for error in errors
    ]
    causes = [{"reason": error["type"], "message": error["body"], "field": error["field"]} for error in errors]
    texts = list(dict.fromkeys(f"{error['field']}: {error['body']}" for error in errors))
    found = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = {"name": name, "group": kind.group, "kind": kind.kind, "causes": causes}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f'{f"{kind.kind}.{kind.group}" if kind.group else kind.kind} "{name}" is invalid: {found}',
        "reason": "Invalid",
        "details": {key: value for key, value in details.items() if value},
        "code": 422,
    }


async def answer(client: Server, kind: Kind, case: Json) -> tuple[int, Json, str]:
    """(code, body, name) of the case's one write."""
    obj, old = case["object"] or generated(case["generate"]), case.get("old")
    meta = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    namespace = (old or obj)["metadata"].get("namespace") or "default"
    if not old:
        return *await client("POST", path_of(kind, namespace), {**obj, "metadata": meta}), meta.get("name", "")
    planted = {"name": "valid", **old["metadata"], "namespace": namespace}
    client.plant(kind, {**old, "metadata": planted})
    path = path_of(kind, namespace, planted["name"], "status" if case["op"] == "statusUpdate" else "")
    return *await client("PUT", path, {**obj, "metadata": {"name": planted["name"], **meta}}), planted["name"]


def told(code: int, body: Json) -> str:
    """A code and what a person reads: each cause, or the message."""
    causes = [f"{cause['field']}: {cause['message']}" for cause in body["details"]["causes"]] if code == 422 else []
    return f"{code} {'; '.join(causes) or (body['message'] if code >= 400 else '')}".strip()


@each_case(CASES, itemgetter("id"))
async def test_recorded_case_over_http(name: str, case: Json) -> None:
    kind = KINDS[case.get("kind", "Service")]
    async with server("0.0.0.0/1", "2001::/64", node_ports=range(1, 40000), namespaces=NAMESPACES) as client:
        code, body, object_name = await answer(client, kind, case)
    if name in INSTEAD:
        reason, wanted = INSTEAD[name]
        assert told(code, body) == wanted
        pytest.xfail(reason)
    if case["errors"]:
        assert (code, body) == (422, refusal(kind, object_name, case["errors"]))
    else:
        assert code in {200, 201}, body


def test_every_deviation_is_a_recorded_case() -> None:
    known = {case["id"] for case in CASES}
    assert {ident.removesuffix(" (2)").removesuffix(" (3)") for ident in INSTEAD} <= known
