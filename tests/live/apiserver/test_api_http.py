"""The REST server over a real socket: routes, refusals, warnings, writers."""

import asyncio
from base64 import urlsafe_b64encode
from io import BytesIO

import pytest
from rest_client import PODS, SERVICES, Client, service

from kdns.controlplane.apimachinery.kinds import SERVICE
from kdns.controlplane.server.registry import Request

FUTURE = urlsafe_b64encode(b'{"rv":99,"namespace":"","name":""}').decode().rstrip("=")

MERGE = {"Content_Type": "application/merge-patch+json"}


async def test_the_life_of_an_object(client: Client) -> None:
    status, created, _ = await client("POST", SERVICES, service())
    assert (status, created["kind"], created["spec"]["type"]) == (201, "Service", "ClusterIP")
    assert (await client("GET", f"{SERVICES}/web"))[1] == created
    created["metadata"]["labels"] = {"a": "b"}
    status, updated, _ = await client("PUT", f"{SERVICES}/web", created)
    assert (status, updated["metadata"]["labels"]) == (200, {"a": "b"})
    assert (await client("PUT", f"{SERVICES}/web", created))[0] == 409
    assert (await client("PUT", f"{SERVICES}/new", service("new")))[0] == 201
    patch = {"metadata": {"labels": {"c": "d"}}}
    status, patched, _ = await client(
        "PATCH", f"{SERVICES}/web", patch, Content_Type="application/strategic-merge-patch+json"
    )
    assert (status, patched["metadata"]["labels"]) == (200, {"a": "b", "c": "d"})
    status, gone, _ = await client("DELETE", f"{SERVICES}/web")
    assert (status, gone["kind"]) == (200, "Service"), "a deleted Service is shown"
    assert (await client("GET", f"{SERVICES}/web"))[0] == 404


async def test_most_deletes_answer_with_a_status(client: Client) -> None:
    path = "/api/v1/namespaces/default/endpoints"
    _, created, _ = await client("POST", path, {"metadata": {"name": "e"}})
    _, gone, _ = await client("DELETE", f"{path}/e")
    details = {"name": "e", "kind": "endpoints", "uid": created["metadata"]["uid"]}
    assert gone == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


async def test_lists(client: Client) -> None:
    for name in "abc":
        await client("POST", SERVICES, service(name, labels={"n": name}))
    _, found, _ = await client("GET", f"{SERVICES}?limit=2")
    assert (found["kind"], found["apiVersion"]) == ("ServiceList", "v1")
    assert [item["metadata"]["name"] for item in found["items"]] == ["a", "b"]
    assert found["metadata"]["remainingItemCount"] == 1
    _, rest_of_it, _ = await client("GET", f"{SERVICES}?limit=2&continue={found['metadata']['continue']}")
    assert [item["metadata"]["name"] for item in rest_of_it["items"]] == ["c"]
    assert rest_of_it["metadata"] == {"resourceVersion": found["metadata"]["resourceVersion"]}
    _, chosen, _ = await client("GET", "/api/v1/services?labelSelector=n+in+(a,c)&fieldSelector=metadata.name!=a")
    assert [item["metadata"]["name"] for item in chosen["items"]] == ["c"]
    _, _, response = await client("GET", f"{SERVICES}?resourceVersion=99")
    assert (response.headers["Retry-After"], response.headers["Cache-Control"]) == ("1", "no-cache, private")
    _, page, _ = await client("DELETE", f"{SERVICES}?limit=1&dryRun=All")
    assert ([item["metadata"]["name"] for item in page["items"]], page["metadata"]["remainingItemCount"]) == (["a"], 2)
    _, deleted, _ = await client("DELETE", f"{SERVICES}?labelSelector=n=a")
    assert [item["metadata"]["name"] for item in deleted["items"]] == ["a"]
    _, nothing, _ = await client("GET", "/apis/discovery.k8s.io/v1/endpointslices")
    assert (nothing["kind"], nothing["apiVersion"], nothing["items"]) == (
        "EndpointSliceList", "discovery.k8s.io/v1", [],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "code", "reason", "text"),
    [
        ("GET", "/nothing", None, {}, 404, "NotFound", "could not find the requested resource"),
        ("GET", f"{SERVICES}/web/proxy", None, {}, 404, "NotFound", 'services "web" not found'),
        ("GET", f"{SERVICES}/web", None, {}, 404, "NotFound", 'services "web" not found'),
        ("POST", f"{SERVICES}/web", service(), {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("POST", "/api/v1/services", service(), {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("DELETE", "/api/v1/services", None, {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("DELETE", "/api/v1/namespaces", None, {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("PUT", SERVICES, service(), {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("POST", "/version", None, {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("DELETE", f"{SERVICES}/web/status", None, {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("GET", f"{PODS}/p/eviction", None, {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("PUT", f"{PODS}/p/binding", {}, {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("POST", f"{PODS}/p/status", {}, {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("POST", f"{PODS}/p/eviction", {"metadata": {"name": "p"}}, {}, 404, "NotFound", 'pods "p" not found'),
        ("POST", f"{PODS}/p/eviction", {"deleteOptions": 1}, {}, 400, "BadRequest", "cannot be handled as a Eviction"),
        ("DELETE", "/api/v1/namespaces/default", None, {}, 403, "Forbidden", "this namespace may not be deleted"),
        ("POST", SERVICES, "{", {"Content_Type": "application/json"}, 400, "BadRequest", "body is not a Service"),
        ("POST", SERVICES, "[]", {"Content_Type": "application/json"}, 400, "BadRequest", "object, got a list"),
        ("POST", SERVICES, '"x"', {"Content_Type": "application/yaml"}, 400, "BadRequest", 'object, got "x"'),
        ("POST", SERVICES, "null", {"Content_Type": "application/json"}, 422, "Invalid", "name: Required value"),
        ("POST", SERVICES, "a: [", {"Content_Type": "application/yaml"}, 400, "BadRequest", "Service: line 1: "),
        ("POST", SERVICES, "a", {"Content_Type": "text/html"}, 415, "UnsupportedMediaType", "unknown format"),
        ("POST", SERVICES, b"\x00", {"Content_Type": "application/vnd.kubernetes.protobuf"}, 400, "BadRequest", " 0]"),
        ("POST", SERVICES, BytesIO(b"x" * 3_200_000), {}, 413, "RequestEntityTooLarge", "limit is 3145728"),
        ("POST", f"{SERVICES}?dryRun=Some", service(), {}, 422, "Invalid", 'dryRun: Unsupported value: ["Some"]'),
        ("POST", f"{SERVICES}?fieldValidation=x", service(), {}, 422, "Invalid", '"", "Ignore", "Strict", "Warn"'),
        ("POST", f"{SERVICES}?fieldValidation=Strict", {**service(), "spce": 1}, {}, 400, "BadRequest", "spce"),
        ("POST", SERVICES, {**service(), "spec": {"ports": 5}}, {}, 400, "BadRequest", "ports: expected a list"),
        ("PATCH", f"{SERVICES}/a", "{}", {"Content_Type": "application/json"}, 415, "UnsupportedMediaType", "patch"),
        (
            "PATCH", f"{SERVICES}/a", "{}", {"Content_Type": "application/apply-patch+yaml"}, 422,
            "Invalid", 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply',
        ),
        (
            "PATCH", f"{SERVICES}/a?fieldManager=me", "[]", {"Content_Type": "application/apply-patch+yaml"}, 400,
            "BadRequest", "the body is not a Service: expected an object, got a list",
        ),
        ("POST", f"{SERVICES}?fieldManager={'x' * 129}", {}, {}, 422, "Invalid", "fieldManager: Too long"),
        ("PUT", f"{SERVICES}/a?fieldManager=a%07", {}, {}, 422, "Invalid", 'fieldManager: Invalid value: "a'),
        ("PATCH", f"{SERVICES}/a?force=true", {}, MERGE, 422, "Invalid", "force: Forbidden: may not be specified"),
        ("GET", f"{SERVICES}?timeoutSeconds=abc", None, {}, 400, "BadRequest", '"abc"'),
        ("GET", SERVICES, None, {"Impersonate_User": "bob"}, 400, "BadRequest", "impersonation is not supported"),
        ("POST", SERVICES, "[" * 100_000, {"Content_Type": "application/json"}, 400, "BadRequest", "nested too deeply"),
        ("POST", SERVICES, b"no gzip", {"Content_Encoding": "gzip"}, 415, "UnsupportedMediaType", "gzip"),
        ("DELETE", f"{SERVICES}/a", {"preconditions": "x"}, {}, 400, "BadRequest", "preconditions: expected an ob"),
        ("DELETE", f"{SERVICES}/a", {"kind": "Service"}, {}, 400, "BadRequest", "kind: expected DeleteOptions"),
        ("DELETE", f"{SERVICES}/a", {"propagationPolicy": "x"}, {}, 422, "Invalid", '"Foreground", "Background", '),
        ("DELETE", f"{SERVICES}/a?gracePeriodSeconds=", None, {}, 400, "BadRequest", "expected an integer of 64"),
        (
            "DELETE", f"{SERVICES}/a?orphanDependents=1&propagationPolicy=Orphan", None, {}, 422,
            "Invalid", "orphanDependents and deletionPropagation cannot be both set",
        ),
        ("DELETE", f"{SERVICES}/a", {"gracePeriodSeconds": "x"}, {}, 400, "BadRequest", "gracePeriodSeconds"),
        ("GET", f"{SERVICES}?watch=1&timeoutSeconds={'9' * 400}", None, {}, 400, "BadRequest", "an integer of 64 bits"),
        ("GET", f"{SERVICES}?continue={FUTURE}", None, {}, 400, "BadRequest", "revision 99 is still to come"),
        ("GET", f"{SERVICES}?limit=x", None, {}, 400, "BadRequest", 'limit: expected an integer of 64 bits, got "x"'),
        ("DELETE", f"{SERVICES}?limit=x", None, {}, 400, "BadRequest", "limit: expected an integer of 64 bits"),
        ("DELETE", f"{SERVICES}?sendInitialEvents=true", None, {}, 422, "Invalid", "is forbidden for list"),
        ("DELETE", f"{SERVICES}?resourceVersion=x", None, {}, 400, "BadRequest", "invalid resource version: resourceV"),
        ("GET", f"{SERVICES}?watch=1&resourceVersion=x", None, {}, 500, None, 'resourceVersion: Invalid value: "x": s'),
        ("GET", f"{SERVICES}?labelSelector=a%20b", None, {}, 400, "BadRequest", "unable to parse requirement"),
        ("GET", f"{SERVICES}?resourceVersion=99", None, {}, 504, "Timeout", "Timeout: Too large resource version: 99,"),
        ("GET", f"{SERVICES}?includeObject=x", None, {}, 400, "BadRequest", "includeObject"),
        ("GET", f"{SERVICES}?watch=1&sendInitialEvents=true", None, {}, 422, "Invalid", "NotOlderThan"),
        ("GET", f"{SERVICES}?sendInitialEvents=true", None, {}, 422, "Invalid", "is forbidden for list"),
        ("GET", f"{SERVICES}?watch=1&resourceVersionMatch=Exact", None, {}, 422, "Invalid", "for watch unless"),
        ("GET", "/api/v1/namespaces", None, {"Origin": "http://example.com"}, 403, "Forbidden", "web pages"),
        ("POST", SERVICES, service(), {"Origin": "null"}, 403, "Forbidden", "web pages"),
        ("OPTIONS", SERVICES, None, {"Origin": "http://localhost:3000"}, 403, "Forbidden", "web pages"),
        ("GET", SERVICES, None, {"Sec_Fetch_Site": "cross-site"}, 403, "Forbidden", "web pages"),
        ("GET", f"{SERVICES}?watch=1", None, {"Sec_Fetch_Site": "same-site"}, 403, "Forbidden", "web pages"),
        ("GET", SERVICES, None, {"Referer": "http://example.com/x"}, 403, "Forbidden", "web pages"),
        ("GET", SERVICES, None, {"Referer": "http://[x"}, 403, "Forbidden", "web pages"),
        ("GET", "/api/v1/namespaces", None, {"Host": "rebound.example"}, 403, "Forbidden", "'rebound.example'"),
    ],
)  # fmt: skip
async def test_refusals(
    client: Client, method: str, path: str, body: object, headers: dict[str, str], code: int, reason: str, text: str
) -> None:
    status, refusal, _ = await client(method, path, body, **headers)
    assert (status, refusal["kind"], refusal["status"], refusal.get("reason")) == (code, "Status", "Failure", reason)
    assert refusal["code"] == code
    assert text in refusal["message"]


@pytest.mark.parametrize("site", ["none", "same-origin"])
async def test_a_person_with_a_browser_is_answered(client: Client, site: str) -> None:
    own = f"http://127.0.0.1:{client.server.address[1]}/api/v1"
    assert (await client("GET", SERVICES, Sec_Fetch_Site=site, Referer=own))[0] == 200


async def test_head(client: Client) -> None:
    assert (await client("HEAD", SERVICES))[0] == 405
    assert (await client("HEAD", "/api/v1/namespaces/default"))[0] == 200


async def test_unknown_fields_are_warned_about_and_dropped(client: Client) -> None:
    status, created, response = await client("POST", SERVICES, {**service(), "spce": {"a": 1}})
    assert status == 201
    assert "spce" not in created
    assert response.headers["Warning"] == '299 - "unknown field \\"spce\\""'
    status, _, response = await client("POST", f"{SERVICES}?fieldValidation=Ignore", {**service("b"), "spce": 1})
    assert (status, "Warning" in response.headers) == (201, False)


async def test_warnings_fit_into_headers(client: Client) -> None:
    unknown = {"a\r\nX-Mine: b\0": 1, "x" * 10_000: 1, **{f"f{number}": 1 for number in range(1000)}}
    status, created, response = await client("POST", SERVICES, {**service(), **unknown})
    assert (status, created["metadata"]["name"]) == (201, "web")
    warnings = response.headers.getall("Warning")
    assert "X-Mine" not in response.headers
    assert warnings[0].replace("\N{REPLACEMENT CHARACTER}", "?") == '299 - "unknown field \\"a??X-Mine: b?\\""'
    assert len(warnings) <= 100
    assert max(map(len, warnings)) < 300


@pytest.mark.parametrize("query", ["", "?includeObject=x"])
async def test_what_cannot_be_answered_is_not_written(client: Client, query: str) -> None:
    await client("POST", SERVICES, service("there"))
    accept = "application/json" if query else "text/html"
    for method, path, body in (("POST", SERVICES, service()), ("DELETE", f"{SERVICES}/there", None)):
        assert (await client(method, f"{path}{query}", body, Accept=accept))[0] in {400, 406}
    assert [found["metadata"]["name"] for found in client.api.list(Request(SERVICE)).items] == ["there"]


@pytest.mark.parametrize("path", [SERVICES, f"{SERVICES}/web"])
async def test_a_dry_run_in_delete_options_deletes_nothing(client: Client, path: str) -> None:
    await client("POST", SERVICES, service())
    assert (await client("DELETE", path, {"dryRun": ["All"]}))[0] == 200
    assert (await client("DELETE", path, {"dryRun": ["Some"]}))[0] == 422
    assert (await client("GET", f"{SERVICES}/web"))[0] == 200
    assert (await client("DELETE", path, {"dryRun": []}))[0] == 200
    assert (await client("GET", f"{SERVICES}/web"))[0] == 404


async def test_concurrent_writers_lose_nothing(client: Client) -> None:
    _, _, _ = await client("POST", SERVICES, service(annotations={"n": "0"}))

    async def increment() -> int:
        conflicts = 0
        while True:
            _, obj, _ = await client("GET", f"{SERVICES}/web")
            obj["metadata"]["annotations"]["n"] = str(int(obj["metadata"]["annotations"]["n"]) + 1)
            status, _, _ = await client("PUT", f"{SERVICES}/web", obj)
            if status == 200:
                return conflicts
            assert status == 409
            conflicts += 1

    conflicts = await asyncio.gather(*(increment() for _ in range(12)))
    assert sum(conflicts) > 0, "the writers did meet"
    assert client.api.get(Request(SERVICE, "default", "web"))["metadata"]["annotations"] == {"n": "12"}
