"""Writes over HTTP: apply patches, who counts as the writer, fields given twice, and bodies in YAML."""

import json

import aiohttp
import pytest
import yaml
from rest_client import SERVICES, Client

from kdns.controlplane.apimachinery.kinds import SERVICE, Json
from kdns.controlplane.apimachinery.size import VALUES_MAX
from kdns.controlplane.server.registry import Request

WEB: Json = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
APPLY = {"Content_Type": "application/apply-patch+yaml"}
TWICE = (
    b'{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},'
    b'"spec":{"type":"NodePort","ports":[{"port":80,"port":81}],"type":"ClusterIP"}}'
)
TWICE_YAML = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  ports:
  - port: 80
  ports:
  - port: 81
"""


def managers(client: Client) -> list[str]:
    return [row["manager"] for row in client.api.get(Request(SERVICE, "default", "web"))["metadata"]["managedFields"]]


async def test_apply_creates_then_updates(client: Client) -> None:
    path = f"{SERVICES}/web?fieldManager=me"
    for text, code in ((json.dumps(WEB), 201), (yaml.safe_dump(WEB), 200)):
        status, shown, _ = await client("PATCH", path, text, **APPLY)
        assert (status, shown["metadata"]["managedFields"][0]["operation"]) == (code, "Apply")
    changed = {**WEB, "spec": {"ports": [{"port": 80, "targetPort": 1}]}}
    assert (await client("PUT", f"{SERVICES}/web?fieldManager=you", changed))[0] == 200
    for query, code in (("", 409), ("&force=true&dryRun=All", 200), ("", 409), ("&force=true", 200), ("", 200)):
        back = json.dumps({**WEB, "spec": {"ports": [{"port": 80, "targetPort": 80}]}})
        assert (await client("PATCH", f"{path}{query}", back, **APPLY))[0] == code, query


@pytest.mark.parametrize(
    ("agent", "query", "manager"),
    [
        ("kubectl/v1.32.0 (linux/amd64)", "", "kubectl"),
        ("curl/8", "?fieldManager=ci", "ci"),
        ("a\tb" + "c" * 200 + "/1", "", "ab" + "c" * 126),
        ("", "", "unknown"),
    ],
)
async def test_who_writes(client: Client, agent: str, query: str, manager: str) -> None:
    assert (await client("PATCH", f"{SERVICES}/web?fieldManager=me", WEB, **APPLY))[0] == 201
    changed = {**WEB, "metadata": {"name": "web", "labels": {"a": "b"}}}
    assert (await client("PUT", f"{SERVICES}/web{query}", changed, User_Agent=agent))[0] == 200
    assert managers(client) == ["me", manager]


PORT, TYPE = 'duplicate field "spec.ports[0].port"', 'duplicate field "spec.type"'
TYPE_TWICE = b'{"spec":{"type":"NodePort","type":"ClusterIP"}}'
OP_TWICE = b'[{"op":"add","op":"remove","path":"/spec/selector"}]'
YAML_LINE = 'line 8: duplicate field "spec.ports"'


@pytest.mark.parametrize(
    ("method", "content_type", "body", "code", "told"),
    [
        ("POST", "application/json", TWICE, 400, [PORT, TYPE]),
        ("POST", "application/yaml", TWICE_YAML, 400, [YAML_LINE]),
        ("PATCH", "application/apply-patch+yaml", TWICE_YAML, 400, [YAML_LINE]),
        ("PATCH", "application/apply-patch+yaml", TWICE, 400, [f"line 1: {PORT}", f"line 1: {TYPE}"]),
        ("PATCH", "application/merge-patch+json", TYPE_TWICE, 422, [TYPE]),
        ("PATCH", "application/strategic-merge-patch+json", TYPE_TWICE, 422, [TYPE]),
        ("PATCH", "application/json-patch+json", OP_TWICE, 422, ['json patch duplicate field "[0].op"']),
    ],
)
async def test_fields_given_twice(
    client: Client, method: str, content_type: str, body: str | bytes, code: int, told: list[str]
) -> None:
    is_patch, headers = code == 422, {"Content_Type": content_type}
    if is_patch:
        await client("POST", SERVICES, {**WEB, "spec": {**WEB["spec"], "selector": {"a": "b"}}})
    path = SERVICES if method == "POST" else f"{SERVICES}/web"
    status, refusal, _ = await client(method, f"{path}?fieldManager=me&fieldValidation=Strict", body, **headers)
    assert (status, refusal["reason"]) == (code, "Invalid" if is_patch else "BadRequest")
    assert refusal["message"].startswith(' "" is invalid: patch: Invalid value: "') is is_patch
    assert refusal["message"].endswith(f"strict decoding error: {', '.join(told)}")
    status, _, response = await client(
        method, f"{path}?fieldManager=me&fieldValidation=Ignore&dryRun=All", body, **headers
    )
    assert (status, "Warning" in response.headers) == (200 if is_patch else 201, False)
    status, stored, response = await client(method, f"{path}?fieldManager=me", body, **headers)
    assert (status, stored["spec"]["ports"][0]["port"]) == (200, 80) if is_patch else (201, 81), "the last one counts"
    shown = [text.replace('"', '\\"') for text in told]
    assert response.headers.getall("Warning") == [f'299 - "{text}"' for text in shown]


@pytest.mark.parametrize("content_type", ["application/json", "application/yaml"])
async def test_large_bodies_are_decoded_too(client: Client, content_type: str) -> None:
    ports = [{"name": f"p{number}", "port": number + 1} for number in range(3000)]
    body = {**WEB, "spec": {"ports": ports}}
    text = json.dumps(body) if content_type.endswith("json") else yaml.dump(body, Dumper=yaml.CSafeDumper)
    status, made, _ = await client("POST", SERVICES, text, Content_Type=content_type)
    assert (status, len(made["spec"]["ports"])) == (201, 3000)


async def test_objects_of_too_many_values_are_refused(client: Client) -> None:
    many = {**WEB, "spec": {"ports": [{}] * VALUES_MAX}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    grown = {"data": {f"k{number}": "" for number in range(VALUES_MAX // 2)}}
    maps = SERVICES.replace("services", "configmaps")
    rows = [
        ("POST", SERVICES, many, "application/json", 413),
        ("POST", maps, config, "application/json", 201),
        ("PATCH", f"{maps}/a", grown, "application/merge-patch+json", 200),
        ("PATCH", f"{maps}/a", {"binaryData": grown["data"]}, "application/merge-patch+json", 413),
    ]
    for method, path, body, content_type, status in rows:
        found, answer, _ = await client(method, path, body, Content_Type=content_type)
        assert found == status, (method, content_type, answer)
    assert answer["message"] == "Request entity too large: limit is 100000 fields and items"


async def test_that_nothing_acts_on_a_kind_is_said_once_for_each_connection(client: Client) -> None:
    path = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
    warning = '299 - "NetworkPolicy is stored, but nothing in this control plane acts on it"'
    async with aiohttp.ClientSession(f"http://127.0.0.1:{client.server.address[1]}") as session:
        other = Client(client.api, client.server, session)
        for name, sender, expected in (("a", client, [warning]), ("b", client, []), ("c", other, [warning])):
            obj = {"metadata": {"name": name}, "spec": {"podSelector": {}}}
            status, _, response = await sender("POST", path, obj)
            assert (status, response.headers.getall("Warning", [])) == (201, expected)
