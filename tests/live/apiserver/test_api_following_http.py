"""Watches over a real socket: from the first event to the last, and how many."""

import asyncio
import json

from rest_client import SERVICES, TABLE, Client, service, serving


async def test_watch(client: Client) -> None:
    await client("POST", SERVICES, service("a"))

    async def change() -> None:
        await client("POST", SERVICES, service("b"))
        await client("DELETE", f"{SERVICES}/a")

    lines, _ = await asyncio.gather(client.lines(f"{SERVICES}?watch=true", 3), change())
    assert [(line["type"], line["object"]["metadata"]["name"]) for line in lines] == [
        ("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a"),
    ]  # fmt: skip
    resumed = await client.lines("/api/v1/services?watch=1&resourceVersion=3", 2)
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


async def test_bookmarks_come_again_and_again() -> None:
    async with serving(bookmark_interval_s=0.01) as client:
        lines = await client.lines(f"{SERVICES}?watch=1&resourceVersion=2&allowWatchBookmarks=true", 3)
    assert [line["type"] for line in lines] == ["BOOKMARK"] * 3


async def test_watches_are_bounded_and_end_at_close(client: Client) -> None:
    watches = [await client.session.get(f"{SERVICES}?watch=1") for _ in range(3)]
    status, refusal, response = await client("GET", f"{SERVICES}?watch=1")
    assert (status, refusal["reason"], response.headers["Retry-After"]) == (429, "TooManyRequests", "1")
    async with asyncio.timeout(60):
        await client.server.close()
        assert [await watch.read() for watch in watches] == [b"", b"", b""]


async def test_a_client_that_leaves_is_forgotten(client: Client) -> None:
    for _ in range(10):
        watch = await client.session.get(f"{SERVICES}?watch=1")
        watch.close()
        async with asyncio.timeout(60):
            while client.server.watching:  # noqa: ASYNC110 - the server offers a count, not an event
                await asyncio.sleep(0.01)


async def test_a_watch_is_no_yaml(client: Client) -> None:
    assert (await client("GET", f"{SERVICES}?watch=1", Accept="application/yaml"))[0] == 406
