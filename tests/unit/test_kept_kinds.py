"""Defaults and rules of the kinds that applications bring along."""

from __future__ import annotations

import random
from base64 import b64encode
from typing import Any

import pytest

from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.controlplane.kinds import (
    CLAIM,
    CONFIG_MAP,
    CRON_JOB,
    DISRUPTION_BUDGET,
    INGRESS,
    INGRESS_CLASS,
    JOB,
    LEASE,
    SECRET,
    SERVICE_ACCOUNT,
    VOLUME,
    Json,
    Kind,
)
from kdns.controlplane.status import StatusError
from kdns.controlplane.strategy import Strategies

STRATEGIES = Strategies(ClusterConfig(), random.Random(1).randrange)
TLS, DOCKER, LOGIN = "kubernetes.io/tls", "kubernetes.io/dockerconfigjson", "kubernetes.io/basic-auth"
SEALED = "field is immutable when `immutable` is set"
KEY = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"


def named(kind: Kind, name: str = "x", **fields: Any) -> Json:
    place = {"namespace": "default"} if kind.namespaced else {}
    meta = {"name": name, "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", **place}
    return {"metadata": {**meta, **fields.pop("meta", {})}, **fields}


def b64(text: str) -> str:
    return b64encode(text.encode()).decode()


def pods(**spec: Any) -> Json:
    return {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}], **spec}}


def job(**spec: Any) -> Json:
    return named(JOB, spec={"template": pods(), **spec})


def cron(schedule: str = "0 * * * *", name: str = "x", **spec: Any) -> Json:
    return named(CRON_JOB, name, spec={"schedule": schedule, "jobTemplate": {"spec": {"template": pods()}}, **spec})


def ingress(**spec: Any) -> Json:
    return named(INGRESS, spec=spec)


def to(service: str = "web", **port: Any) -> Json:
    return {"service": {"name": service, "port": port or {"number": 80}}}


def at(path: str, kind: str | None = "Prefix", backend: Json | None = None, host: str = "") -> Json:
    row = {"path": path, "backend": backend or to(), **({"pathType": kind} if kind else {})}
    return ingress(rules=[{"http": {"paths": [row]}, **({"host": host} if host else {})}])


def claim(size: str = "1Gi", modes: tuple[str, ...] = ("ReadWriteOnce",), **spec: Any) -> Json:
    return named(CLAIM, spec={"accessModes": list(modes), "resources": {"requests": {"storage": size}}, **spec})


def volume(**spec: Any) -> Json:
    given = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
    return named(VOLUME, spec={**given, **spec})


def causes(kind: Kind, obj: Json, old: Json | None = None) -> list[str]:
    """What creating or updating says, each as field, type and detail."""
    try:
        if old is None:
            STRATEGIES.create(kind, obj)
        else:
            STRATEGIES.update(kind, STRATEGIES.create(kind, old).obj, obj)
    except StatusError as error:
        return [f"{cause['field']}: {cause['message']}" for cause in (error.details or {})["causes"]]
    return []


@pytest.mark.parametrize(
    ("kind", "obj", "expected"),
    [
        (CONFIG_MAP, named(CONFIG_MAP, data={"a.b_c-D": "1"}, binaryData={"b": "AA=="}), []),
        (CONFIG_MAP, named(CONFIG_MAP, data={"a b": "1"}), [f'data[a b]: Invalid value: "a b": {KEY}']),
        (CONFIG_MAP, named(CONFIG_MAP, data={"..": "1"}), ["data[..]: Invalid value: \"..\": must not be '..'"]),
        (CONFIG_MAP, named(CONFIG_MAP, data={"..a": "1"}), ["must not start with '..'"]),
        (
            CONFIG_MAP,
            named(CONFIG_MAP, data={"a": ""}, binaryData={"a": ""}),
            ["duplicate of key present in binaryData"],
        ),
        (CONFIG_MAP, named(CONFIG_MAP, data={"a": "x" * 2**20}), []),
        (
            CONFIG_MAP,
            named(CONFIG_MAP, data={"a": "x" * 2**20, "b": "y"}),
            ["[]: Too long: may not be more than 1048576"],
        ),
        (
            SECRET,
            named(SECRET, data={"a": b64("x" * (2**20 + 1))}),
            ["data: Too long: may not be more than 1048576 bytes"],
        ),
        (SECRET, named(SECRET, type=TLS), ["data[tls.crt]: Required value", "data[tls.key]: Required value"]),
        (SECRET, named(SECRET, type=TLS, stringData={"tls.crt": "", "tls.key": ""}), []),
        (SECRET, named(SECRET, type=LOGIN), ["data[username]: Required value", "data[password]: Required value"]),
        (SECRET, named(SECRET, type=LOGIN, stringData={"password": "x"}), []),
        (SECRET, named(SECRET, type=DOCKER), ["data[.dockerconfigjson]: Required value"]),
        (SECRET, named(SECRET, type=DOCKER, stringData={".dockerconfigjson": "x"}), ["<secret contents redacted>"]),
        (SECRET, named(SECRET, type=DOCKER, stringData={".dockerconfigjson": "{}"}), []),
        (SECRET, named(SECRET, type="kubernetes.io/ssh-auth"), ["data[ssh-privatekey]: Required value"]),
        (
            SECRET,
            named(SECRET, type="kubernetes.io/service-account-token"),
            ["metadata.annotations[kubernetes.io/service"],
        ),
        (SECRET, named(SECRET, type="mine"), []),
        (SERVICE_ACCOUNT, named(SERVICE_ACCOUNT, "Robot"), ["metadata.name: Invalid value"]),
        (
            LEASE,
            named(LEASE, spec={"leaseDurationSeconds": 0}),
            ["spec.leaseDurationSeconds: Invalid value: 0: must be"],
        ),
        (LEASE, named(LEASE, spec={"leaseTransitions": -1}), ["must be greater than or equal to 0"]),
        (CLAIM, claim(), []),
        (
            CLAIM,
            named(CLAIM, spec={}),
            ["spec.accessModes: Required value: at least 1", "spec.resources[storage]: Required"],
        ),
        (CLAIM, claim("0"), ['spec.resources[storage]: Invalid value: "0": must be greater than zero']),
        (CLAIM, claim(modes=("Often",)), ['spec.accessModes: Unsupported value: "Often"']),
        (
            CLAIM,
            claim(modes=("ReadWriteOncePod", "ReadWriteOnce")),
            ["may not use ReadWriteOncePod with other access modes"],
        ),
        (CLAIM, claim(volumeMode="Tape"), ['spec.volumeMode: Unsupported value: "Tape": supported values: "Block"']),
        (VOLUME, volume(), []),
        (VOLUME, volume(hostPath=None), ["spec: Required value: must specify a volume type"]),
        (
            VOLUME,
            volume(nfs={"server": "s", "path": "/"}),
            ["spec.nfs: Forbidden: may not specify more than 1 volume type"],
        ),
        (
            VOLUME,
            volume(hostPath=None, local={"path": "/x"}),
            ["spec.nodeAffinity: Required value: Local volume requires"],
        ),
        (VOLUME, volume(capacity={}), ["spec.capacity: Required value"]),
        (
            VOLUME,
            volume(persistentVolumeReclaimPolicy="Burn"),
            ["spec.persistentVolumeReclaimPolicy: Unsupported value"],
        ),
        (JOB, job(), []),
        (JOB, job(parallelism=-1), ["spec.parallelism: Invalid value: -1: must be greater than or equal to 0"]),
        (JOB, job(completionMode="Indexed"), []),
        (
            JOB,
            job(completionMode="Indexed", parallelism=1),
            ["spec.completions: Required value: when completion mode is"],
        ),
        (JOB, job(completionMode="Odd"), ['spec.completionMode: Unsupported value: "Odd"']),
        (JOB, job(backoffLimitPerIndex=1), ["requires indexed completion mode"]),
        (
            JOB,
            job(template=pods(restartPolicy="Always")),
            ['restartPolicy: Required value: valid values: "OnFailure", "Never"'],
        ),
        (
            JOB,
            job(template=pods(restartPolicy=None)),
            ["spec.template.spec.restartPolicy: Required value: valid values"],
        ),
        (JOB, job(template=pods(containers=[])), ["spec.template.spec.containers: Required value"]),
        (
            JOB,
            job(selector={"matchLabels": {"a": "b"}}),
            ["`selector` not auto-generated", "`selector` does not match"],
        ),
        (JOB, job(manualSelector=True), ["spec.selector: Required value"]),
        (CRON_JOB, cron(), []),
        (CRON_JOB, cron("* * *"), ["expected exactly 5 fields, found 3: [* * *]"]),
        (CRON_JOB, cron(""), ["spec.schedule: Required value"]),
        (CRON_JOB, cron("TZ=UTC 0 * * * *"), ["cannot use TZ or CRON_TZ in schedule, use timeZone field instead"]),
        (CRON_JOB, cron(timeZone=""), ["timeZone must be nil or non-empty string"]),
        (CRON_JOB, cron(timeZone="Local"), ["timeZone must be an explicit time zone"]),
        (CRON_JOB, cron(timeZone="Europe/Paris"), []),
        (CRON_JOB, cron(timeZone="UTC"), []),
        (CRON_JOB, cron(timeZone="Etc/GMT+5"), []),
        (CRON_JOB, cron(timeZone="no zone"), ["unknown time zone no zone"]),
        (CRON_JOB, cron(timeZone="Foo/Bar"), ['Invalid value: "Foo/Bar": unknown time zone Foo/Bar']),
        (CRON_JOB, cron(timeZone="Europe"), ["unknown time zone Europe"]),
        (CRON_JOB, cron(timeZone="../Europe/Paris"), ["unknown time zone ../Europe/Paris"]),
        (CRON_JOB, cron(timeZone="zone.tab"), ["unknown time zone zone.tab"]),
        (CRON_JOB, cron(timeZone="LOCAL"), ["must be an explicit time zone", "unknown time zone LOCAL"]),
        (CRON_JOB, cron(concurrencyPolicy="Maybe"), ['spec.concurrencyPolicy: Unsupported value: "Maybe"']),
        (CRON_JOB, cron(name="x" * 53), ["must be no more than 52 characters"]),
        (CRON_JOB, cron(failedJobsHistoryLimit=-1), ["spec.failedJobsHistoryLimit: Invalid value: -1"]),
        (INGRESS, at("/"), []),
        (INGRESS, ingress(), ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"]),
        (INGRESS, ingress(defaultBackend=to()), []),
        (INGRESS, at("web"), ['spec.rules[0].http.paths[0].path: Invalid value: "web": must be an absolute path']),
        (INGRESS, at("/a//b"), ["must not contain '//'"]),
        (INGRESS, at("/a/.."), ["cannot end with '/..'"]),
        (INGRESS, at("", "ImplementationSpecific"), []),
        (INGRESS, at("/", None), ["paths[0].pathType: Required value: pathType must be specified"]),
        (INGRESS, at("/", "Regex"), ['pathType: Unsupported value: "Regex"']),
        (INGRESS, at("/", host="*.example.com"), []),
        (INGRESS, at("/", host="a.*.com"), ["a wildcard DNS-1123 subdomain must start with '*.'"]),
        (
            INGRESS,
            at("/", host="10.0.0.1"),
            ['spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP'],
        ),
        (INGRESS, at("/", backend={"service": None}), ["resource or service backend is required"]),
        (INGRESS, at("/", backend=to(name="http", number=80)), ["cannot set both port name & port number"]),
        (INGRESS, at("/", backend=to(number=70000)), ["service.port.number: Invalid value: 70000: must be between 1"]),
        (
            INGRESS,
            at("/", backend={"service": {"name": "web"}}),
            ["backend: Required value: port name or number is required"],
        ),
        (INGRESS, at("/", backend={"resource": {"kind": "B", "name": "b"}}), []),
        (INGRESS, at("/", backend={**to(), "resource": {}}), ["cannot set both resource and service backends"]),
        (INGRESS, {**at("/"), "spec": {"rules": [{"http": {}}]}}, ["spec.rules[0].http.paths: Required value"]),
        (INGRESS_CLASS, named(INGRESS_CLASS, spec={"controller": "acme.io/foo"}), []),
        (INGRESS_CLASS, named(INGRESS_CLASS, spec={"controller": "foo"}), ['path (such as "acme.io/foo")']),
        (
            INGRESS_CLASS,
            named(
                INGRESS_CLASS,
                spec={"controller": "a/b", "parameters": {"kind": "P", "name": "p", "scope": "Namespace"}},
            ),
            ["spec.parameters.namespace: Required value"],
        ),
        (DISRUPTION_BUDGET, named(DISRUPTION_BUDGET, spec={"minAvailable": "50%"}), []),
        (DISRUPTION_BUDGET, named(DISRUPTION_BUDGET, spec={"minAvailable": "half"}), ["a valid percent string"]),
        (
            DISRUPTION_BUDGET,
            named(DISRUPTION_BUDGET, spec={"maxUnavailable": -1}),
            ["must be greater than or equal to 0"],
        ),
        (
            DISRUPTION_BUDGET,
            named(DISRUPTION_BUDGET, spec={"minAvailable": 1, "maxUnavailable": 1}),
            ["minAvailable and maxUnavailable cannot be both set"],
        ),
    ],
)
def test_rules(kind: Kind, obj: Json, expected: list[str]) -> None:
    found = causes(kind, obj)
    assert len(found) == len(expected), found
    for cause, wanted in zip(found, expected, strict=True):
        assert wanted in cause


SEALED_MAP = named(CONFIG_MAP, data={"a": "1"}, immutable=True)
BOUND = {**claim(volumeName="v"), "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}


@pytest.mark.parametrize(
    ("kind", "old", "new", "expected"),
    [
        (CONFIG_MAP, SEALED_MAP, {**SEALED_MAP, "data": {"a": "2"}}, [f"data: Forbidden: {SEALED}"]),
        (CONFIG_MAP, SEALED_MAP, {**SEALED_MAP, "immutable": False}, [f"immutable: Forbidden: {SEALED}"]),
        (CONFIG_MAP, SEALED_MAP, SEALED_MAP, []),
        (CONFIG_MAP, named(CONFIG_MAP, data={"a": "1"}), SEALED_MAP, []),
        (SECRET, named(SECRET, type="a"), named(SECRET, type="b"), ['type: Invalid value: "b": field is immutable']),
        (
            SECRET,
            named(SECRET, immutable=True),
            named(SECRET, data={"a": ""}, immutable=True),
            [f"data: Forbidden: {SEALED}"],
        ),
        (CLAIM, claim(), claim(volumeName="v"), []),
        (CLAIM, claim(), claim("2Gi"), ["spec: Forbidden: spec is immutable after creation except resources.requests"]),
        (
            VOLUME,
            volume(),
            volume(hostPath={"path": "/y"}),
            ["spec.persistentvolumesource is immutable after creation"],
        ),
        (VOLUME, volume(), volume(volumeMode="Block"), ['spec.volumeMode: Invalid value: "Block": field is immutable']),
        (INGRESS, at("/"), at("/b"), []),
        (
            INGRESS_CLASS,
            named(INGRESS_CLASS, spec={"controller": "a/b"}),
            named(INGRESS_CLASS, spec={"controller": "a/c"}),
            ['spec.controller: Invalid value: "a/c": field is immutable'],
        ),
    ],
)
def test_changes(kind: Kind, old: Json, new: Json, expected: list[str]) -> None:
    found = causes(kind, new, old)
    assert len(found) == len(expected), found
    for cause, wanted in zip(found, expected, strict=True):
        assert wanted in cause


@pytest.mark.parametrize(("size", "refused"), [("2Gi", False), ("1024Mi", False), ("500Mi", True)])
def test_a_bound_claim_may_only_grow(size: str, refused: bool) -> None:
    stored = {**STRATEGIES.create(CLAIM, claim(volumeName="v")).obj, "status": BOUND["status"]}
    new = {**claim(size, volumeName="v"), "status": BOUND["status"]}
    if refused:
        with pytest.raises(StatusError, match=r"field can not be less than status\.capacity"):
            STRATEGIES.update(CLAIM, stored, new)
    else:
        STRATEGIES.update(CLAIM, stored, new)


def made_job(**spec: Any) -> Json:
    return STRATEGIES.create(JOB, job(**spec)).obj


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"completions": 2}, "spec.completions"),
        ({"completionMode": "Indexed"}, "spec.completionMode"),
        (
            {"template": {**pods(), "metadata": {"labels": {"batch.kubernetes.io/controller-uid": "u"}}}},
            "spec.template",
        ),
        ({"parallelism": 3}, ""),
        ({"suspend": True}, ""),
        ({"ttlSecondsAfterFinished": 3}, ""),
    ],
)
def test_what_of_a_job_may_change(change: Json, field: str) -> None:
    old = made_job(completions=1)
    new = {**old, "spec": {**old["spec"], **change}}
    if not field:
        STRATEGIES.update(JOB, old, new)
        return
    with pytest.raises(StatusError, match="field is immutable") as caught:
        STRATEGIES.update(JOB, old, new)
    assert f"{field}: Invalid value" in caught.value.message


def test_a_job_gets_its_defaults_selector_and_labels() -> None:
    made = made_job()
    spec = made["spec"]
    wanted = {"parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False}
    assert {field: spec[field] for field in wanted} == wanted
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    assert spec["template"]["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": "u",
        "batch.kubernetes.io/job-name": "x",
        "controller-uid": "u",
        "job-name": "x",
    }
    assert spec["template"]["spec"]["dnsPolicy"] == "ClusterFirst"
    assert made_job(parallelism=2)["spec"].get("completions") is None


def test_defaults() -> None:
    secret = STRATEGIES.create(SECRET, named(SECRET, data={"a": "AA\n==", "b": "AA=="}, stringData={"b": "x"})).obj
    assert (secret["type"], secret["data"]) == ("Opaque", {"a": "AA==", "b": b64("x")})
    assert "stringData" not in secret
    assert STRATEGIES.create(CLAIM, claim()).obj["status"] == {"phase": "Pending"}
    assert STRATEGIES.create(VOLUME, volume()).obj["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    spec = STRATEGIES.create(CRON_JOB, cron()).obj["spec"]
    assert (spec["concurrencyPolicy"], spec["successfulJobsHistoryLimit"], spec["suspend"]) == ("Allow", 3, False)
    parameters = {"kind": "P", "name": "p"}
    made = STRATEGIES.create(INGRESS_CLASS, named(INGRESS_CLASS, spec={"controller": "a/b", "parameters": parameters}))
    assert made.obj["spec"]["parameters"]["scope"] == "Cluster"
