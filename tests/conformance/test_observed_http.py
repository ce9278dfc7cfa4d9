"""What a kube-apiserver 1.36 answers to single requests: the rules of Services sentence by sentence, and its habits.

observed.yaml has the requests, with code, reason and message of each answer.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from expecting import differs
from rest_harness import path_of, server
from served_kinds import KINDS
from yaml_file import yaml_file

from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, ENDPOINTS, SERVICE, Json

OBSERVED = yaml_file(Path(__file__).with_name("observed.yaml"))
SERVICES = path_of(SERVICE, "default")
RANGES = ("10.0.0.0/16", "fd00::/108")


def numbers(section: str) -> pytest.MarkDecorator:
    """One test for each row of a section."""
    rows = OBSERVED[section]
    names = [row.get("says", "")[:60] or "taken" for row in rows]
    return pytest.mark.parametrize("row", rows, ids=names)


def service(changed: Json) -> Json:
    """A plain Service with some fields of its spec changed; None takes one away."""
    fields = {"ports": [{"port": 80}], **{key: value for key, value in changed.items() if key != "metadata"}}
    said = {key: value for key, value in fields.items() if value is not None}
    return {"metadata": {"name": "a", **changed.get("metadata", {})}, "spec": said}


def check(answer: tuple[int, Any], good: int, says: str) -> None:
    """The code of a request that is taken; of a refused one also reason, message and causes."""
    code, body = answer
    if not says:
        assert code == good, body
        return
    assert (code, body["code"], body["kind"], body["status"]) == (422, 422, "Status", "Failure"), body
    assert body["reason"] == "Invalid"
    assert says in body["message"]
    assert all(cause["reason"].startswith("FieldValue") and cause["field"] for cause in body["details"]["causes"])


@numbers("create")
async def test_creates(row: Json) -> None:
    async with server(*RANGES) as client:
        check(await client("POST", SERVICES, service(row["with"])), 201, row.get("says", ""))


@numbers("update")
async def test_updates(row: Json) -> None:
    async with server(*RANGES) as client:
        check(await client("POST", SERVICES, service(row["with"])), 201, "")
        answer = await client("PATCH", f"{SERVICES}/a", {"spec": row["patch"]}, "application/merge-patch+json")
        check(answer, 200, row.get("says", ""))


@numbers("status")
async def test_statuses(row: Json) -> None:
    async with server(*RANGES) as client:
        _, made = await client("POST", SERVICES, service(row["with"]))
        changed = {**made, "status": {"loadBalancer": {"ingress": row["ingress"]}}}
        check(await client("PUT", f"{SERVICES}/a/status", changed), 200, row.get("says", ""))


@numbers("endpoints")
async def test_endpoints(row: Json) -> None:
    kind = ENDPOINTS if row["object"]["kind"] == "Endpoints" else ENDPOINT_SLICE
    async with server(*RANGES) as client:
        answer = await client("POST", path_of(kind, "default"), {**row["object"], "metadata": {"name": "a"}})
        check(answer, 201, row.get("says", ""))


@numbers("requests")
async def test_requests(row: Json) -> None:
    cidr = row["do"][0].get("cidr")
    async with server(cidr) if cidr else server(*RANGES) as client:
        web = {"metadata": {"name": "web"}, "spec": {"clusterIP": "10.0.0.9", "ports": [{"port": 80}]}}
        check(await client("POST", SERVICES, web), 201, "")
        for step in row["do"]:
            path = step["path"].replace("BASE", SERVICES)
            code, body = await client(step["method"], path, step.get("body"), step.get("type", ""))
            assert code == step["code"], body
            assert "warns" not in step or client.warnings == [json.dumps(text) for text in step["warns"]]
            assert "has" not in step or not differs(step["has"], body)


async def test_nameless_objects() -> None:
    async with server(*RANGES) as client:
        for kind in KINDS:
            namespaced = path_of(kind, "default")
            path = namespaced if kind.namespaced else namespaced.replace("/namespaces/default", "")
            code, body = await client("POST", path, {})
            required = "metadata.name: Required value: name or generateName is required"
            assert (code, required in body["message"]) == (422, True), (kind.kind, body)
