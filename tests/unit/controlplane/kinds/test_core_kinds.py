"""Defaults and rules of ConfigMaps, Secrets, ServiceAccounts and Jobs."""

from base64 import b64encode
from typing import Any

import pytest
from object_api import Api

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, JOB, SECRET, SERVICE_ACCOUNT, Json, Kind
from kdns.controlplane.server.registry import Request
from kdns.controlplane.storage.store import StoredObject

REGISTRY = Api(new_uid=lambda: "u").registry
SEALED = "field is immutable when `immutable` is set"
KEY = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"


def created(kind: Kind, obj: Json) -> StoredObject:
    """A new object, in a dry run."""
    return REGISTRY.create(Request(kind, obj["metadata"].get("namespace"), dry_run=True), obj)


def updated(kind: Kind, version: StoredObject, obj: Json) -> StoredObject:
    """Its replacement."""
    stored = REGISTRY.store.commit(version, None)
    try:
        return REGISTRY.update(Request(kind, *version.key, dry_run=True), obj)
    finally:
        REGISTRY.store.delete(stored)


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


def causes(kind: Kind, obj: Json, old: Json | None = None) -> list[str]:
    """The causes of a create or update, each as `field: message`."""
    try:
        if old is None:
            created(kind, obj)
        else:
            updated(kind, created(kind, old), obj)
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
        (
            SECRET,
            named(SECRET, type="kubernetes.io/tls"),
            ["data[tls.crt]: Required value", "data[tls.key]: Required value"],
        ),
        (SECRET, named(SECRET, type="kubernetes.io/tls", stringData={"tls.crt": "", "tls.key": ""}), []),
        (SECRET, named(SECRET, type="mine"), []),
        (SERVICE_ACCOUNT, named(SERVICE_ACCOUNT, "Robot"), ["metadata.name: Invalid value"]),
        (JOB, job(), []),
        (JOB, job(parallelism=-1), ["spec.parallelism: Invalid value: -1: must be greater than or equal to 0"]),
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
        (JOB, job(selector={"matchLabels": {"a": "b"}}), ["`selector` not auto-generated"]),
        (
            JOB,
            job(selector={"matchLabels": {"a": "b"}}, manualSelector=True),
            ["`selector` does not match template `labels`"],
        ),
        (JOB, job(manualSelector=True), ["spec.selector: Required value"]),
    ],
)
def test_rules(kind: Kind, obj: Json, expected: list[str]) -> None:
    assert_told(causes(kind, obj), expected)


def assert_told(found: list[str], expected: list[str]) -> None:
    assert len(found) == len(expected), found
    for cause, wanted in zip(found, expected, strict=True):
        assert wanted in cause


SEALED_MAP = named(CONFIG_MAP, data={"a": "1"}, immutable=True)


@pytest.mark.parametrize(
    ("kind", "old", "new", "expected"),
    [
        (CONFIG_MAP, SEALED_MAP, {**SEALED_MAP, "data": {"a": "2"}}, [f"data: Forbidden: {SEALED}"]),
        (CONFIG_MAP, SEALED_MAP, {**SEALED_MAP, "binaryData": {"b": ""}}, [f"binaryData: Forbidden: {SEALED}"]),
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
    ],
)
def test_changes(kind: Kind, old: Json, new: Json, expected: list[str]) -> None:
    assert_told(causes(kind, new, old), expected)


def made_job(**spec: Any) -> Json:
    return created(JOB, job(**spec)).copy()


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
    version = created(JOB, job(completions=1))
    old = version.obj
    new = {**old, "spec": {**old["spec"], **change}}
    if not field:
        updated(JOB, version, new)
        return
    with pytest.raises(StatusError, match="field is immutable") as caught:
        updated(JOB, version, new)
    assert f"{field}: Invalid value" in caught.value.message


def test_the_template_of_a_job_that_waits_may_change() -> None:
    version = created(JOB, job(suspend=True))
    template = version.obj["spec"]["template"]
    labelled = {**template, "metadata": {"labels": {**template["metadata"]["labels"], "a": "b"}}}
    updated(JOB, version, {**version.obj, "spec": {**version.obj["spec"], "template": labelled}})


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
    assert made["metadata"]["labels"] == spec["template"]["metadata"]["labels"]
    assert spec["template"]["spec"]["dnsPolicy"] == "ClusterFirst"
    assert "enableServiceLinks" not in spec["template"]["spec"]
    assert made_job(parallelism=2)["spec"].get("completions") is None


def test_defaults() -> None:
    secret = created(SECRET, named(SECRET, data={"a": "AA\n==", "b": "AA=="}, stringData={"b": "x"})).obj
    assert (secret["type"], secret["data"]) == ("Opaque", {"a": "AA==", "b": b64("x")})
    assert "stringData" not in secret
