"""What the REST server shows objects as: tables, metadata alone, YAML, indented, compressed; and discovery."""

import gzip
import json

from rest_client import SERVICES, Client, service
from served_kinds import REVIEWS, SERVED


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
    assert {group["name"] for group in groups["groups"]} == {*(kind.group for kind in (*SERVED, *REVIEWS))} - {""}
    _, resources, _ = await client("GET", "/api/v1")
    services = next(resource for resource in resources["resources"] if resource["name"] == "services")
    assert (services["shortNames"], services["kind"], services["namespaced"]) == (["svc"], "Service", True)
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    _, aggregated, response = await client("GET", "/apis", Accept=accept)
    assert aggregated["kind"] == "APIGroupDiscoveryList"
    assert "as=APIGroupDiscoveryList" in response.headers["Content-Type"]
    _, version, _ = await client("GET", "/version")
    assert version["gitVersion"].startswith("v1.36.0+kdns")
    assert (await client("GET", "/readyz"))[:2] == (200, "ok")
    _, index, _ = await client("GET", "/openapi/v3")
    for path in index["paths"]:
        assert (await client("GET", f"/openapi/v3/{path}"))[0] == 200
    assert (await client("GET", "/openapi/v3/apis/nothing/v1"))[0] == 404
    assert (await client("GET", "/openapi/v2"))[1]["swagger"] == "2.0"
    protobuf = {"Accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
    async with client.session.get("/openapi/v2", headers=protobuf) as answer:
        assert answer.headers["Content-Type"] == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
        assert await answer.read() == b"\n\x032.0"


async def test_no_answer_is_protobuf(client: Client) -> None:
    protobuf = "application/vnd.kubernetes.protobuf"
    await client("POST", SERVICES, service())
    for accept in (f"{protobuf}, */*", f"{protobuf},application/json"):
        for path in (SERVICES, f"{SERVICES}/web", f"{SERVICES}/none", "/apis", f"{SERVICES}?watch=1"):
            async with client.session.get(path, headers={"Accept": accept}) as answer:
                assert answer.headers["Content-Type"].partition(";")[0] == "application/json"
    status, refused, _ = await client("GET", SERVICES, Accept=protobuf)
    assert (status, refused["reason"]) == (406, "NotAcceptable")
