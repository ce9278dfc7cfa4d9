"""The REST server over a real socket: routes, representations, refusals, watches."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from io import BytesIO
from itertools import count
from typing import Any

import aiohttp
import pytest

from kdns.aio import rest
from kdns.aio.rest_guard import RestConfig
from kdns.controlplane.api import Api
from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.controlplane.kinds import KINDS, NAMESPACE, SERVICE, Json
from kdns.controlplane.status import internal
from kdns.controlplane.store import Store
from kdns.controlplane.strategy import Strategies
from kdns.errors import InputError, ListenError

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
FUTURE = urlsafe_b64encode(b'{"rv":99,"namespace":"","name":""}').decode()
SERVICES = "/api/v1/namespaces/default/services"
PODS = "/api/v1/namespaces/default/pods"


def new_api() -> Api:
    numbers = count(1)
    api = Api(
        Store(history_commits=20),
        Strategies(ClusterConfig(), lambda _: 0),
        lambda: 1_700_000_000.0,
        lambda: f"uid-{next(numbers)}",
        lambda: f"{next(numbers)}",
    )
    api.create(NAMESPACE, "", {"metadata": {"name": "default"}})
    return api


def service(name: str = "web", **metadata: Any) -> Json:
    return {"metadata": {"name": name, **metadata}, "spec": {"ports": [{"port": 80}]}}


class Client:
    """The server and a client of it."""

    def __init__(self, api: Api, server: rest.RestServer, session: aiohttp.ClientSession) -> None:
        self.api, self.server, self.session = api, server, session

    async def __call__(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, Any, aiohttp.ClientResponse]:
        """(status, decoded body, response); `Content_Type=…` sets a header."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, (str, bytes, BytesIO)):
            body = json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        async with self.session.request(method, path, data=body, headers=sent) as response:
            text = await response.text()
            decoded = json.loads(text) if "json" in response.headers.get("Content-Type", "") and text else text
            return response.status, decoded, response

    async def lines(self, path: str, number: int, **headers: str) -> list[Any]:
        """The first lines of a watch."""
        async with asyncio.timeout(10), self.session.get(path, headers=headers) as response:
            assert response.status == 200
            return [json.loads(await response.content.readline()) for _ in range(number)]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    api = new_api()
    server = await rest.start(api, RestConfig(port=0, watches_max=3))
    host, port = server.address
    async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
        yield Client(api, server, session)
    await server.close()


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
        ("GET", "/api/v2", None, {}, 404, "NotFound", "could not find the requested resource"),
        ("GET", "/apis/apps/v0/deployments", None, {}, 404, "NotFound", "could not find the requested resource"),
        ("GET", "/api/v1/services/web", None, {}, 404, "NotFound", "could not find the requested resource"),
        ("GET", f"{SERVICES}/web/proxy", None, {}, 404, "NotFound", 'services "web" not found'),
        ("GET", "/api/v1/namespaces/default/nodes", None, {}, 404, "NotFound", "could not find"),
        ("GET", f"{SERVICES}/web", None, {}, 404, "NotFound", 'services "web" not found'),
        ("POST", f"{SERVICES}/web", service(), {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("POST", "/api/v1/services", service(), {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("DELETE", "/api/v1/services", None, {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("PUT", SERVICES, service(), {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("POST", "/version", None, {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("DELETE", f"{SERVICES}/web/status", None, {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("GET", f"{PODS}/p/eviction", None, {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("PUT", f"{PODS}/p/binding", {}, {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("POST", f"{PODS}/p/status", {}, {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("POST", f"{PODS}/p/eviction", {}, {}, 404, "NotFound", 'pods "p" not found'),
        ("POST", f"{PODS}/p/eviction", {"deleteOptions": 1}, {}, 400, "BadRequest", "cannot be handled as a Eviction"),
        ("DELETE", "/api/v1/namespaces/default", None, {}, 403, "Forbidden", "this namespace may not be deleted"),
        ("POST", SERVICES, "{", {"Content_Type": "application/json"}, 400, "BadRequest", "is no JSON"),
        ("POST", SERVICES, "[]", {"Content_Type": "application/json"}, 400, "BadRequest", "wanted an object"),
        ("POST", SERVICES, "a: [", {"Content_Type": "application/yaml"}, 400, "BadRequest", "is no YAML"),
        ("POST", SERVICES, "a", {"Content_Type": "text/html"}, 415, "UnsupportedMediaType", "unknown format"),
        ("POST", SERVICES, b"\x00", {"Content_Type": "application/vnd.kubernetes.protobuf"}, 400, "BadRequest", "k8s"),
        ("POST", SERVICES, BytesIO(b"x" * 3_200_000), {}, 413, "RequestEntityTooLarge", "limit is 3145728"),
        ("POST", f"{SERVICES}?dryRun=Some", service(), {}, 422, "Invalid", 'dryRun: Unsupported value: ["Some"]'),
        ("POST", f"{SERVICES}?fieldValidation=x", service(), {}, 422, "Invalid", '"", "Ignore", "Strict", "Warn"'),
        ("POST", f"{SERVICES}?fieldValidation=Strict", {**service(), "spce": 1}, {}, 400, "BadRequest", "spce"),
        ("POST", SERVICES, {**service(), "spec": {"ports": 5}}, {}, 400, "BadRequest", "cannot unmarshal number"),
        ("PATCH", f"{SERVICES}/a", "{}", {"Content_Type": "application/json"}, 415, "UnsupportedMediaType", "patch"),
        (
            "PATCH", f"{SERVICES}/a", "{}", {"Content_Type": "application/apply-patch+yaml"}, 422,
            "Invalid", 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply',
        ),
        ("DELETE", "/api/v1/watch/services", None, {}, 405, "MethodNotAllowed", "does not allow this method"),
        ("POST", SERVICES, "[" * 100_000, {"Content_Type": "application/json"}, 400, "BadRequest", "nested too deeply"),
        ("POST", SERVICES, b"no gzip", {"Content_Encoding": "gzip"}, 400, "BadRequest", "cannot be read"),
        ("DELETE", f"{SERVICES}/a", {"preconditions": "x"}, {}, 400, "BadRequest", "DeleteOptions.preconditions"),
        ("DELETE", f"{SERVICES}/a", {"gracePeriodSeconds": "x"}, {}, 400, "BadRequest", "gracePeriodSeconds"),
        ("GET", f"{SERVICES}?watch=1&timeoutSeconds={'9' * 400}", None, {}, 400, "BadRequest", "at most 18 digits"),
        ("GET", f"{SERVICES}?continue={FUTURE}", None, {}, 400, "BadRequest", "revision 99 is still to come"),
        ("GET", SERVICES, None, {"Accept": "text/html"}, 406, "NotAcceptable", "application/json"),
        ("GET", f"{SERVICES}?limit=x", None, {}, 400, "BadRequest", "limit: found 'x', wanted a number"),
        ("GET", f"{SERVICES}?fieldSelector=a=b", None, {}, 400, "BadRequest", "field label not supported: a"),
        ("GET", f"{SERVICES}?labelSelector=a%20b", None, {}, 400, "BadRequest", "unable to parse requirement"),
        ("GET", f"{SERVICES}?resourceVersion=99", None, {}, 504, "Timeout", "Too large resource version"),
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
    assert (status, refusal["kind"], refusal["status"], refusal["reason"]) == (code, "Status", "Failure", reason)
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
    assert [found["metadata"]["name"] for found in client.api.list(SERVICE, None).items] == ["there"]


@pytest.mark.parametrize("path", [SERVICES, f"{SERVICES}/web"])
async def test_a_dry_run_in_delete_options_deletes_nothing(client: Client, path: str) -> None:
    await client("POST", SERVICES, service())
    assert (await client("DELETE", path, {"dryRun": ["All"]}))[0] == 200
    assert (await client("DELETE", path, {"dryRun": ["Some"]}))[0] == 422
    assert (await client("GET", f"{SERVICES}/web"))[0] == 200
    assert (await client("DELETE", path, {"dryRun": []}))[0] == 200
    assert (await client("GET", f"{SERVICES}/web"))[0] == 404


async def test_tables(client: Client) -> None:
    await client("POST", SERVICES, service())
    _, table, _ = await client("GET", SERVICES, Accept=TABLE)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"]["resourceVersion"] == "4"
    assert table["rows"][0]["cells"][0] == "web"
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    _, table, _ = await client("GET", f"{SERVICES}/web?includeObject=Object", Accept=TABLE)
    assert table["rows"][0]["object"]["kind"] == "Service"


async def test_partial_object_metadata(client: Client) -> None:
    await client("POST", SERVICES, service())
    accept = "application/json;as=PartialObjectMetadata{};v=v1;g=meta.k8s.io"
    _, found, _ = await client("GET", SERVICES, Accept=accept.format("List"))
    assert (found["kind"], found["items"][0]["kind"]) == ("PartialObjectMetadataList", "PartialObjectMetadata")
    assert "spec" not in found["items"][0]
    _, one, _ = await client("GET", f"{SERVICES}/web", Accept=accept.format(""))
    assert one["metadata"]["name"] == "web"
    assert set(one) == {"kind", "apiVersion", "metadata"}


async def test_yaml_both_ways(client: Client) -> None:
    text = "metadata: {name: web, annotations: {when: 2020-01-01}}\nspec: {ports: [{port: 80}]}"
    text = text.replace("2020-01-01", '"2020-01-01"')
    status, created, response = await client(
        "POST", SERVICES, text, Content_Type="application/yaml", Accept="application/yaml"
    )
    assert (status, response.headers["Content-Type"].partition(";")[0]) == (201, "application/yaml")
    assert "kind: Service\n" in created


async def test_pretty_and_gzip(client: Client) -> None:
    assert "\n  " in await (await client.session.get("/api/v1/namespaces/default?pretty=true")).text()
    assert "\n" not in await (await client.session.get("/api/v1/namespaces/default")).text()
    note = {"a": "x" * 150_000}
    await client("POST", SERVICES, service(annotations=note))
    headers = {"Accept-Encoding": "gzip"}
    async with client.session.get(f"{SERVICES}/web", headers=headers, auto_decompress=False) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        body = gzip.decompress(await response.read())
    assert json.loads(body)["metadata"]["annotations"] == note


async def test_discovery(client: Client) -> None:
    _, versions, _ = await client("GET", "/api")
    assert versions["versions"] == ["v1"]
    _, groups, _ = await client("GET", "/apis")
    assert {group["name"] for group in groups["groups"]} == {kind.group for kind in KINDS} - {""}
    _, resources, _ = await client("GET", "/api/v1")
    services = next(resource for resource in resources["resources"] if resource["name"] == "services")
    assert (services["shortNames"], services["kind"], services["namespaced"]) == (["svc"], "Service", True)
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    _, aggregated, response = await client("GET", "/apis", Accept=accept)
    assert aggregated["kind"] == "APIGroupDiscoveryList"
    assert "as=APIGroupDiscoveryList" in response.headers["Content-Type"]
    found = {item["metadata"]["name"]: item["versions"][0]["resources"] for item in aggregated["items"]}
    assert [resource["resource"] for resource in found["discovery.k8s.io"]] == ["endpointslices"]
    _, version, _ = await client("GET", "/version")
    assert version["gitVersion"].startswith("v1.36.0+kdns")
    assert (await client("GET", "/readyz"))[:2] == (200, "ok")
    _, index, _ = await client("GET", "/openapi/v3")
    for path in index["paths"]:
        assert (await client("GET", f"/openapi/v3/{path}"))[0] == 200
    assert (await client("GET", "/openapi/v3/apis/nothing/v1"))[0] == 404
    assert (await client("GET", "/openapi/v2"))[1]["swagger"] == "2.0"


async def test_watch(client: Client) -> None:
    await client("POST", SERVICES, service("a"))

    async def change() -> None:
        await client("POST", SERVICES, service("b"))
        await client("DELETE", f"{SERVICES}/a")

    lines, _ = await asyncio.gather(client.lines(f"{SERVICES}?watch=true", 3), change())
    assert [(line["type"], line["object"]["metadata"]["name"]) for line in lines] == [
        ("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a"),
    ]  # fmt: skip
    resumed = await client.lines("/api/v1/watch/services?resourceVersion=3", 2)
    assert resumed == lines[1:]


async def test_watch_of_tables_describes_columns_once(client: Client) -> None:
    for name in "ab":
        await client("POST", SERVICES, service(name))
    first, second = await client.lines(f"{SERVICES}?watch=true", 2, Accept=TABLE)
    assert first["object"]["columnDefinitions"]
    assert not second["object"]["columnDefinitions"]
    assert second["object"]["rows"][0]["cells"][0] == "b"


async def test_watch_list_ends_with_its_bookmark(client: Client) -> None:
    await client("POST", SERVICES, service())
    query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"
    async with client.session.get(f"{SERVICES}?{query}") as response:
        lines = [json.loads(line) async for line in response.content]
    assert [line["type"] for line in lines] == ["ADDED", "BOOKMARK", "BOOKMARK"]
    assert lines[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert "annotations" not in lines[2]["object"]["metadata"], "the last bookmark of a watch whose time is up"
    assert lines[2]["object"]["metadata"]["resourceVersion"] == "4"


async def test_a_forgotten_revision_is_an_error_event(client: Client) -> None:
    for number in range(25):
        await client("POST", SERVICES, service(f"s{number}"))
    (line,) = await client.lines(f"{SERVICES}?watch=1&resourceVersion=2", 1)
    assert (line["type"], line["object"]["code"], line["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_watches_are_bounded_and_end_at_close(client: Client) -> None:
    watches = [await client.session.get(f"{SERVICES}?watch=1") for _ in range(3)]
    status, refusal, response = await client("GET", f"{SERVICES}?watch=1")
    assert (status, refusal["reason"], response.headers["Retry-After"]) == (429, "TooManyRequests", "1")
    async with asyncio.timeout(10):
        await client.server.close()
        assert [await watch.read() for watch in watches] == [b"", b"", b""]


async def test_a_client_that_leaves_is_forgotten(client: Client) -> None:
    for _ in range(10):
        watch = await client.session.get(f"{SERVICES}?watch=1")
        watch.close()
        async with asyncio.timeout(10):
            while client.server.watching:  # noqa: ASYNC110 - the server offers a count, not an event
                await asyncio.sleep(0.01)


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
    assert client.api.get(SERVICE, "default", "web")["metadata"]["annotations"] == {"n": "12"}


async def test_tokens() -> None:
    server = await rest.start(new_api(), RestConfig(port=0, tokens=("first", "second")))
    host, port = server.address
    async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
        rows = [
            ("/api/v1/namespaces", {}, 401),
            ("/api/v1/namespaces", {"Authorization": "Bearer third"}, 401),
            ("/api/v1/namespaces", {"Authorization": "Bearer \xe9"}, 401),
            ("/api/v1/namespaces", {"Authorization": "Bearer "}, 401),
            ("/api/v1/namespaces", {"Authorization": "Basic second"}, 401),
            ("/api/v1/namespaces", {"Authorization": "Bearer second"}, 200),
            ("/api/v1/namespaces", {"Authorization": "bearer first", "Origin": "http://a"}, 200),
            ("/healthz", {}, 200),
        ]
        for path, headers, code in rows:
            async with session.get(path, headers=headers) as response:
                assert response.status == code, (path, headers)
    await server.close()


@pytest.mark.parametrize(
    ("config", "missing"),
    [
        (RestConfig("0.0.0.0", 0), "without a token file and TLS"),
        (RestConfig("0.0.0.0", 0, tokens=("t",)), "without TLS"),
        (RestConfig("::", 0, ssl_context=ssl.create_default_context()), "without a token file"),
        (RestConfig(port=0, tokens=("good", "")), "empty token"),
    ],
)
async def test_open_addresses_need_tokens_and_tls(config: RestConfig, missing: str) -> None:
    with pytest.raises(InputError, match=missing):
        await rest.start(new_api(), config)


async def test_a_taken_port_is_named() -> None:
    server = await rest.start(new_api(), RestConfig(port=0))
    with pytest.raises(ListenError, match=f"127.0.0.1:{server.address[1]}"):
        await rest.start(new_api(), RestConfig(port=server.address[1]))
    await server.close()


async def test_what_is_shown_is_durable() -> None:
    gate, written = asyncio.Event(), asyncio.Event()

    async def durable() -> None:
        written.set()
        await gate.wait()

    server = await rest.start(new_api(), RestConfig(port=0), durable)
    host, port = server.address
    async with aiohttp.ClientSession(f"http://{host}:{port}") as session, asyncio.timeout(10):
        watch = await session.get(f"{SERVICES}?watch=1")
        replies = [asyncio.create_task(session.post(SERVICES, json=service()))]
        await written.wait()
        paths = (f"{SERVICES}/web", SERVICES, f"{SERVICES}/none")
        replies += [asyncio.create_task(session.get(path)) for path in paths]
        line = asyncio.create_task(watch.content.readline())
        assert (await session.get("/version")).status == 200
        assert not line.done()
        assert not any(reply.done() for reply in replies[:3])
        gate.set()
        assert [(await reply).status for reply in replies] == [201, 200, 200, 404]
        assert json.loads(await line)["type"] == "ADDED"
    await server.close()


async def test_what_cannot_be_kept_is_not_shown() -> None:
    failing = False

    async def durable() -> None:
        if failing:
            raise internal("disk full")

    server = await rest.start(new_api(), RestConfig(port=0), durable)
    host, port = server.address
    async with aiohttp.ClientSession(f"http://{host}:{port}") as session, asyncio.timeout(10):
        watch = await session.get(f"{SERVICES}?watch=1")
        assert (await session.get("/readyz")).status == 200
        failing = True
        for method, path in (("POST", SERVICES), ("GET", f"{SERVICES}/web"), ("GET", SERVICES), ("GET", "/readyz")):
            async with session.request(method, path, json=service() if method == "POST" else None) as response:
                assert (response.status, "disk full" in await response.text()) == (500, True), (method, path)
        assert (await session.get("/livez")).status == 200
        (line,) = [json.loads(line) async for line in watch.content]
        assert (line["type"], line["object"]["code"]) == ("ERROR", 500)
    await server.close()
