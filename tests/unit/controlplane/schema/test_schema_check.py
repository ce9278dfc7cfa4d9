"""Field validation as tables: unknown fields, values of the wrong type, pruned objects."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from object_api import refused
from served_kinds import KINDS

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.inert import CRON_JOB, LEASE
from kdns.controlplane.apimachinery.kinds import DEPLOYMENT, ENDPOINT_SLICE, NODE, POD, SERVICE, Json, Kind
from kdns.controlplane.schema.check import cannot_be_handled, mistakes, mistyped_fields, prune, unknown_fields
from kdns.controlplane.schema.field_validation import FieldValidator, duplicate_fields, with_duplicates

EXAMPLES = Path(__file__).parents[4] / "examples"
BY_KIND = {(kind.api_version, kind.kind): kind for kind in KINDS}


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="there is no examples/ folder beside tests/")
def test_the_projects_own_examples_have_no_errors() -> None:
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        for obj in yaml.safe_load_all(path.read_text("utf-8")):
            kind = BY_KIND.get((obj.get("apiVersion"), obj.get("kind"))) if obj else None
            if kind:
                assert list(mistakes(kind, obj)) == [], path


UNKNOWN: list[tuple[Kind, Json, list[str]]] = [
    (SERVICE, {}, []),
    (SERVICE, {"spec": {"foo": 1}}, ["spec.foo"]),
    (SERVICE, {"spec": {"foo": None}}, ["spec.foo"]),
    (SERVICE, {"specs": {"foo": 1}}, ["specs"]),
    (SERVICE, {"Spec": {}}, ["Spec"]),
    (SERVICE, {"metadata": {"nmae": "x", "labels": {"any.thing/goes": "x"}}}, ["metadata.nmae"]),
    (
        SERVICE,
        {"spec": {"ports": [{"port": 80}, {"prot": 1, "x": 2}], "selektor": {}}},
        ["spec.ports[1].prot", "spec.ports[1].x", "spec.selektor"],
    ),
    (SERVICE, {"spec": "not an object", "status": None}, []),
    (SERVICE, {"spec": {"ports": "not a list"}}, []),
    (POD, {"spec": {"containers": [{"env": [{"name": "a", "valeu": "b"}]}]}}, ["spec.containers[0].env[0].valeu"]),
    (
        POD,
        {"spec": {"ephemeralContainers": [{"targetContainerName": "a", "image": "i", "foo": 1}]}},
        ["spec.ephemeralContainers[0].foo"],
    ),
    (POD, {"metadata": {"managedFields": [{"fieldsV1": {"f:x": {}}}]}}, []),
    (ENDPOINT_SLICE, {"endpoints": [{"conditions": {"redy": True}}]}, ["endpoints[0].conditions.redy"]),
]


@pytest.mark.parametrize(("kind", "obj", "paths"), UNKNOWN)
def test_unknown_fields_are_named_by_path(kind: Kind, obj: Json, paths: list[str]) -> None:
    assert [path for path, _ in unknown_fields(kind, obj)] == paths
    assert unknown_fields(kind, prune(kind, obj)) == []


def test_prune_keeps_known_fields_and_decodes_nulls_as_go_does() -> None:
    obj = {
        "kind": "Service",
        "foo": 1,
        "metadata": {"labels": {"a": None, "b": "c"}, "annotations": None},
        "spec": {"bar": 2, "ports": [{"port": 80, "baz": 3}, None], "clusterIPs": ["10.96.0.1", None]},
    }
    assert prune(SERVICE, obj) == {
        "kind": "Service",
        "metadata": {"labels": {"a": "", "b": "c"}},
        "spec": {"ports": [{"port": 80}, {}], "clusterIPs": ["10.96.0.1", ""]},
    }


def test_nulls_in_lists_of_a_map_are_empty_texts() -> None:
    request = next(kind for kind in KINDS if kind.kind == "CertificateSigningRequest")
    spec = {"extra": {"scopes": ["a", None]}, "usages": ["any", None]}
    stored = prune(request, {"spec": spec})["spec"]
    assert stored == {"extra": {"scopes": ["a", ""]}, "usages": ["any", ""]}


# An object with zeros, and what is stored of it: pointers and fields without omitempty keep zeros, others do not.
ZEROS: list[tuple[Kind, Json, Json]] = [
    (
        POD,
        {"hostNetwork": False, "hostPID": False, "priorityClassName": "", "nodeName": "", "hostUsers": False},
        {"hostUsers": False},
    ),
    (
        POD,
        {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0, "enableServiceLinks": False},
        {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0, "enableServiceLinks": False},
    ),
    (
        POD,
        {
            "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
            "volumes": [{"name": "", "secret": {"optional": False}}],
        },
        {
            "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
            "volumes": [{"name": "", "secret": {"optional": False}}],
        },
    ),
    (
        POD,
        {"containers": [{"name": "", "image": "", "tty": False, "ports": [{"hostPort": 0, "containerPort": 0}]}]},
        {"containers": [{"name": "", "ports": [{"containerPort": 0}]}]},
    ),
    (
        DEPLOYMENT,
        {"replicas": 0, "paused": False, "minReadySeconds": 0, "revisionHistoryLimit": 0},
        {"replicas": 0, "revisionHistoryLimit": 0},
    ),
    (
        SERVICE,
        {"allocateLoadBalancerNodePorts": False, "publishNotReadyAddresses": False, "clusterIP": "", "type": ""},
        {"allocateLoadBalancerNodePorts": False},
    ),
    (
        SERVICE,
        {"ports": [{"name": "", "port": 0, "nodePort": 0, "targetPort": 0, "appProtocol": ""}], "selector": {"a": ""}},
        {"ports": [{"port": 0, "targetPort": 0, "appProtocol": ""}], "selector": {"a": ""}},
    ),
    (CRON_JOB, {"schedule": "", "suspend": False, "concurrencyPolicy": ""}, {"schedule": "", "suspend": False}),
]


@pytest.mark.parametrize(("kind", "spec", "stored"), ZEROS)
def test_zeros_stay_where_they_differ_from_absent_values(kind: Kind, spec: Json, stored: Json) -> None:
    assert prune(kind, {"spec": spec}) == {"spec": stored}


def _port(**fields: Any) -> Json:
    return {"spec": {"ports": [fields]}}


INT32, STRING, OBJECT = (f"expected {what}, got" for what in ("an integer of 32 bits", "a string", "an object"))
TARGET_PORT = "spec.ports[0].targetPort: expected a string or an integer of 32 bits, got"
PUBLISH = "spec.publishNotReadyAddresses: expected a boolean, got"
INT64 = "expected an integer of 64 bits, got"
TIME = "metadata.creationTimestamp: expected a time such as 2006-01-02T15:04:05Z, got"
MEMORY = "spec.containers[0].resources.limits[memory]: expected a quantity such as 500m or 1Gi, got"
WRONG: list[tuple[Kind, Json, list[str]]] = [
    (SERVICE, _port(port=80, targetPort="http", nodePort=None), []),
    (SERVICE, _port(port="80"), [f'spec.ports[0].port: {INT32} "80"']),
    (SERVICE, _port(port=True), [f"spec.ports[0].port: {INT32} true"]),
    (SERVICE, _port(port=80.5), [f"spec.ports[0].port: {INT32} 80.5"]),
    (SERVICE, _port(port="x" * 100), [f"spec.ports[0].port: {INT32} a string"]),
    (SERVICE, _port(port=2**31), [f"spec.ports[0].port: {INT32} 2147483648"]),
    (SERVICE, _port(port=-(2**31)), []),
    (
        SERVICE,
        _port(targetPort=2**31),
        ["spec.ports[0].targetPort: expected a string or an integer of 32 bits, got 2147483648"],
    ),
    (
        SERVICE,
        _port(targetPort=[80]),
        ["spec.ports[0].targetPort: expected a string or an integer of 32 bits, got a list"],
    ),
    (SERVICE, _port(name=1), [f"spec.ports[0].name: {STRING} a number; put it in quotes"]),
    (SERVICE, {"spec": "x"}, [f'spec: {OBJECT} "x"']),
    (SERVICE, {"spec": {"ports": {}}}, ["spec.ports: expected a list, got an object"]),
    (SERVICE, {"spec": {"ports": ["80"]}}, [f'spec.ports[0]: {OBJECT} "80"']),
    (SERVICE, {"spec": {"selector": "a=b"}}, [f'spec.selector: {OBJECT} "a=b"']),
    (SERVICE, {"metadata": {"labels": {"a": 1}}}, [f"metadata.labels[a]: {STRING} a number; put it in quotes"]),
    (SERVICE, {"spec": {"publishNotReadyAddresses": "yes"}}, [f'{PUBLISH} "yes"']),
    (SERVICE, {"spec": {"unknown": object}}, []),
    (SERVICE, {"metadata": {"generation": 2**63}}, [f"metadata.generation: {INT64} {2**63}"]),
    (SERVICE, {"metadata": {"creationTimestamp": "2024-05-01T12:00:00Z"}}, []),
    (SERVICE, {"metadata": {"creationTimestamp": "yesterday"}}, [f'{TIME} "yesterday"']),
    (SERVICE, {"metadata": {"creationTimestamp": "2024-05-01"}}, [f'{TIME} "2024-05-01"']),
    (SERVICE, {"metadata": {"creationTimestamp": 5}}, [f"{TIME} 5"]),
    (POD, {"spec": {"containers": [{"resources": {"limits": {"memory": "1GB"}}}]}}, [f'{MEMORY} "1GB"']),
    (POD, {"spec": {"containers": [{"resources": {"limits": {"memory": ""}}}]}}, [f'{MEMORY} ""']),
    (
        NODE,
        {"spec": {"podCIDRs": [1, "10.0.0.0/24", False]}},
        [
            f"spec.podCIDRs[0]: {STRING} a number; put it in quotes",
            f"spec.podCIDRs[2]: {STRING} a boolean; put it in quotes",
        ],
    ),
]


@pytest.mark.parametrize(("kind", "obj", "messages"), WRONG)
def test_values_of_the_wrong_type(kind: Kind, obj: Json, messages: list[str]) -> None:
    assert [f"{path}: {why}" for path, why in mistyped_fields(kind, obj)] == messages


@pytest.mark.parametrize(
    "quantity", ["0", "1", "-1.5", "+2", ".5", "5.", "1m", "100n", "3u", "1Ki", "2Ei", "1E", "1e3", "1E-3", 7, 0.25]
)
def test_quantities_in_every_form_are_valid(quantity: object) -> None:
    assert mistyped_fields(POD, {"spec": {"overhead": {"cpu": quantity}}}) == []


def strictly_refused(obj: Json) -> StatusError:
    return refused(400, "", FieldValidator(SERVICE, "Strict", ('duplicate field "spec.type"',)), obj)


def test_errors_are_bad_requests_that_name_kind_and_version() -> None:
    error = strictly_refused({"spec": {"foo": 1, "ports": [{"bar": 2}]}})
    assert error.reason == "BadRequest"
    assert error.message == (
        'Service in version "v1" cannot be handled as a Service: strict decoding error: '
        'duplicate field "spec.type", unknown field "spec.foo", unknown field "spec.ports[0].bar"'
    )
    assert cannot_be_handled(ENDPOINT_SLICE, "why").message == (
        'EndpointSlice in version "v1" cannot be handled as a EndpointSlice: why'
    )


def test_at_most_a_hundred_fields_are_named() -> None:
    error = strictly_refused({f"f{number}": 1 for number in range(1000)})
    assert error.message.count("unknown field") == 99


def test_the_error_of_a_patch_quotes_the_patched_object() -> None:
    quoted = '"{\\"spec\\":{\\"foo\\":[1,true,null]}}"'
    why = f'Invalid value: {quoted}: strict decoding error: unknown field "spec.foo"'
    validate = FieldValidator(SERVICE, "Strict", is_patch=True)
    error = refused(422, f' "" is invalid: patch: {why}', validate, {"spec": {"foo": [1, True, None]}})
    assert (error.details or {})["causes"] == [{"reason": "FieldValueInvalid", "message": why, "field": "patch"}]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (b'{"a": 1, "b": {"a": 1}}', []),
        (b'{"spec": {"ports": [{"port": 1}, {"name": "x", "name": "y", "name": "z"}]}}', ["spec.ports[1].name"]),
        (b'{"kind": "a", "kind" : "b", "spec": {}, "spec": {"x": 1, "x": 2}}', ["kind", "spec", "spec.x"]),
        (b'[{"op": 1, "op": 2}]', ["[0].op"]),
    ],
)
def test_duplicate_fields(text: bytes, paths: list[str]) -> None:
    pairs = with_duplicates(text)
    assert (duplicate_fields(pairs), pairs is None) == (paths, not paths)


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        (b'{"spec": {"type": "x", "ports": []}}', []),
        (
            b'{"metadata": {"foo": 1, "name": "a", "name": "b"}, "spec": {"bar": 1, "selector": {"x": "1", "x": "2"}}}',
            ['unknown field "metadata.foo"', 'duplicate field "metadata.name"', 'unknown field "spec.bar"',
             'duplicate field "spec.selector.x"'],
        ),
        (b'{"zzz": {"a": 1, "a": 2}, "zzz": 3}', ['unknown field "zzz"']),
        (
            b'{"spec": {"ports": [{"x": 1, "port": 1, "port": 2, "port": 3}]}, "spec": {}}',
            ['unknown field "spec.ports[0].x"', 'duplicate field "spec.ports[0].port"', 'duplicate field "spec"'],
        ),
    ],
)  # fmt: skip
def test_strict_errors_have_the_order_of_the_text(text: bytes, errors: list[str]) -> None:
    pairs = with_duplicates(text)
    found = mistakes(SERVICE, msgspec.json.decode(text) if pairs is None else pairs)
    assert list(dict.fromkeys(f'{why} "{path}"' for path, why in found if "field" in why)) == errors


def test_quantities_are_stored_as_kubernetes_writes_them() -> None:
    given = {"cpu": 0.5, "memory": "1024Mi", "storage": "1000m", "pods": 2}
    container = {"resources": {"limits": given}}
    (pruned,) = prune(POD, {"spec": {"containers": [container]}})["spec"]["containers"]
    assert pruned["resources"]["limits"] == {"cpu": "500m", "memory": "1Gi", "storage": "1", "pods": "2"}


@pytest.mark.parametrize(
    ("given", "seconds", "microseconds"),
    [
        ("2026-11-23T23:00:00.5+09:00", "2026-11-23T14:00:00Z", "2026-11-23T14:00:00.500000Z"),
        ("1969-12-31T23:59:59Z", "1969-12-31T23:59:59Z", "1969-12-31T23:59:59.000000Z"),
        ("2026-11-23T14:00:00.123456Z", "2026-11-23T14:00:00Z", "2026-11-23T14:00:00.123456Z"),
        ("0001-01-01T00:00:00+09:00", "0001-01-01T00:00:00+09:00", "0001-01-01T00:00:00+09:00"),
    ],
)
def test_times_are_stored_as_kubernetes_writes_them(given: str, seconds: str, microseconds: str) -> None:
    assert prune(POD, {"status": {"startTime": given}}) == {"status": {"startTime": seconds}}
    assert prune(LEASE, {"spec": {"renewTime": given}}) == {"spec": {"renewTime": microseconds}}
