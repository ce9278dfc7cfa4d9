"""Writes over HTTP: apply patches, who counts as the writer, fields given twice, and bodies in YAML."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import yaml
from object_api import Api

from kdns.controlplane.apimachinery.kinds import SERVICE, Json
from kdns.controlplane.apimachinery.size import VALUES_MAX
from kdns.controlplane.server.io import server as rest
from kdns.controlplane.server.io.authentication import RestConfig
from kdns.controlplane.server.registry import Registry, Request

SERVICES = "/api/v1/namespaces/default/services"
WEB: Json = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
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


class Client:
    """Requests to a server on loopback; answers as (status, object, warnings)."""

    def __init__(self, api: Registry, session: aiohttp.ClientSession, url: str) -> None:
        self.api, self.session, self.url = api, session, url

    async def __call__(self, method: str, path: str, body: Any, **headers: str) -> tuple[int, Json, list[str]]:
        data = (
            body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        )
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.request(method, self.url + path, data=data, headers=named) as response:
            shown: Json = await response.json()
            return response.status, shown, response.headers.getall("Warning", [])

    def managers(self) -> list[str]:
        return [
            each["manager"] for each in self.api.get(Request(SERVICE, "default", "web"))["metadata"]["managedFields"]
        ]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    api = Api().registry
    server = await rest.start(api, RestConfig(port=0))
    host, port = server.address
    async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session:
        yield Client(api, session, f"http://{host}:{port}")
    await server.close()


async def test_apply_creates_then_updates(client: Client) -> None:
    path = f"{SERVICES}/web?fieldManager=me"
    for text, code in ((json.dumps(WEB), 201), (yaml.safe_dump(WEB), 200)):
        status, shown, _ = await client("PATCH", path, text, **APPLY)
        assert (status, shown["metadata"]["managedFields"][0]["operation"]) == (code, "Apply")
    assert client.managers() == ["me"]
    changed = {**WEB, "spec": {"ports": [{"port": 80, "targetPort": 1}]}}
    status, _, _ = await client("PUT", f"{SERVICES}/web?fieldManager=you", changed)
    assert (status, client.managers()) == (200, ["me", "you"])
    back = {**WEB, "spec": {"ports": [{"port": 80, "targetPort": 80}]}}
    status, refusal, _ = await client("PATCH", path, back, **APPLY)
    assert (status, refusal["reason"], refusal["details"]["causes"][0]["reason"]) == (
        409,
        "Conflict",
        "FieldManagerConflict",
    )
    assert (await client("PATCH", f"{path}&force=true&dryRun=All", back, **APPLY))[0] == 200
    assert client.managers() == ["me", "you"]
    assert (await client("PATCH", f"{path}&force=true", back, **APPLY))[0] == 200
    gone = {**back, "metadata": {"name": "none"}}
    assert (await client("PATCH", f"{SERVICES}/none/status?fieldManager=me", gone, **APPLY))[0] == 404


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
    assert client.managers() == ["me", manager]


@pytest.mark.parametrize(
    ("method", "query", "headers", "message"),
    [
        ("POST", "fieldManager=" + "x" * 129, {}, 'CreateOptions.meta.k8s.io "" is invalid: fieldManager: Too long'),
        ("PUT", "fieldManager=a%07", {}, 'UpdateOptions.meta.k8s.io "" is invalid: fieldManager: Invalid value: "a'),
        ("PATCH", "force=true", {}, 'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified'),
        ("PATCH", "", APPLY, "fieldManager: Required value: is required for apply patch"),
        ("POST", "fieldValidation=no", {}, 'fieldValidation: Unsupported value: "no": supported values: "", "Ignore"'),
    ],
)
async def test_options_that_cannot_be(
    client: Client, method: str, query: str, headers: dict[str, str], message: str
) -> None:
    named = {"Content-Type": "application/merge-patch+json", **headers} if method == "PATCH" else headers
    path = SERVICES if method == "POST" else f"{SERVICES}/web"
    status, refusal, _ = await client(method, f"{path}?{query}", WEB, **named)
    assert (status, refusal["reason"]) == (422, "Invalid")
    assert message in refusal["message"]


PORT, TYPE = 'duplicate field "spec.ports[0].port"', 'duplicate field "spec.type"'
LINE = 'line 8: duplicate field "spec.ports"'


@pytest.mark.parametrize(
    ("body", "content_type", "told"),
    [(TWICE, "application/json", [PORT, TYPE]), (TWICE_YAML, "application/yaml", [LINE])],
)
async def test_fields_given_twice(client: Client, body: Any, content_type: str, told: list[str]) -> None:
    status, refusal, _ = await client("POST", f"{SERVICES}?fieldValidation=Strict", body, Content_Type=content_type)
    assert (status, refusal["reason"]) == (400, "BadRequest")
    assert refusal["message"].endswith(f"strict decoding error: {', '.join(told)}")
    status, _, warnings = await client("POST", f"{SERVICES}?fieldValidation=Ignore", body, Content_Type=content_type)
    assert (status, warnings) == (201, [])
    client.api.delete(Request(SERVICE, "default", "web"))
    status, made, warnings = await client("POST", SERVICES, body, Content_Type=content_type)
    assert (status, made["spec"]["ports"][0]["port"]) == (201, 81), "the last one counts"
    shown = [each.replace('"', '\\"') for each in told]
    assert warnings == [f'299 - "{each}"' for each in shown]


@pytest.mark.parametrize("text", [TWICE_YAML, TWICE.decode()])
async def test_fields_given_twice_in_a_configuration(client: Client, text: str) -> None:
    path = f"{SERVICES}/web?fieldManager=me"
    status, refusal, _ = await client("PATCH", f"{path}&fieldValidation=Strict", text, **APPLY)
    assert status == 400
    assert re.search(r'strict decoding error: line \d+: duplicate field "spec\.', refusal["message"])
    status, _, warnings = await client("PATCH", path, text, **APPLY)
    assert (status, "duplicate field" in warnings[0]) == (201, True)


@pytest.mark.parametrize(
    ("patch_type", "body", "told"),
    [
        ("merge", b'{"spec":{"type":"NodePort","type":"ClusterIP"}}', TYPE),
        ("strategic-merge", b'{"spec":{"type":"NodePort","type":"ClusterIP"}}', TYPE),
        ("json", b'[{"op":"add","op":"remove","path":"/spec/selector"}]', 'json patch duplicate field "[0].op"'),
    ],
)
async def test_fields_given_twice_in_a_patch(client: Client, patch_type: str, body: bytes, told: str) -> None:
    await client("POST", SERVICES, {**WEB, "spec": {**WEB["spec"], "selector": {"a": "b"}}})
    content_type = f"application/{patch_type}-patch+json"
    path = f"{SERVICES}/web"
    status, refusal, _ = await client("PATCH", f"{path}?fieldValidation=Strict", body, Content_Type=content_type)
    assert (status, refusal["reason"], refusal["details"]["causes"][0]["field"]) == (422, "Invalid", "patch")
    assert refusal["message"].startswith(' "" is invalid: patch: Invalid value: "')
    assert refusal["message"].endswith(f"strict decoding error: {told}")
    status, _, warnings = await client("PATCH", path, body, Content_Type=content_type)
    assert (status, len(warnings)) == (200, 1)


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
    about = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": {"podSelector": {}}}
    warning = '299 - "NetworkPolicy is stored, but nothing in this control plane acts on it"'
    for name, expected in (("a", [warning]), ("b", [])):
        status, _, warnings = await client("POST", path, {**about, "metadata": {"name": name}})
        assert (status, warnings) == (201, expected)
    async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session:
        other = Client(client.api, session, client.url)
        status, _, warnings = await other("POST", path, {**about, "metadata": {"name": "c"}})
        assert (status, warnings) == (201, [warning])
