"""events.k8s.io/v1: the same Events as in the core group, by other names, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from rest_client import TABLE, Client, serving

from kdns.controlplane.meta.kinds import EVENT, Json
from kdns.controlplane.server.patch import APPLY_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from kdns.controlplane.server.request import Request

NEW = "/apis/events.k8s.io/v1/namespaces/default/events"
CORE = "/api/v1/namespaces/default/events"
ABOUT = {"kind": "Pod", "namespace": "default", "name": "p"}
TIME = "2023-11-14T22:13:20.000000Z"
SENT: Json = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "e"},
    "eventTime": TIME,
    "reportingController": "example.com/robot",
    "reportingInstance": "robot-1",
    "action": "Lift",
    "reason": "Lifted",
    "regarding": ABOUT,
    "note": "it went up",
    "type": "Normal",
}
OLD: Json = {
    "metadata": {"name": "old"},
    "involvedObject": ABOUT,
    "reason": "Fell",
    "message": "it went down",
    "source": {"component": "c"},
    "firstTimestamp": "2023-11-14T22:13:20Z",
    "lastTimestamp": "2023-11-14T22:13:20Z",
    "count": 2,
    "type": "Warning",
}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with serving() as client:
        yield client


def without(obj: Json, *fields: str) -> Json:
    return {field: value for field, value in obj.items() if field not in fields}


async def test_what_one_group_takes_the_other_shows(client: Client) -> None:
    status, made, _ = await client("POST", NEW, SENT)
    absent: Json = {"deprecatedSource": {}, "deprecatedFirstTimestamp": None, "deprecatedLastTimestamp": None}
    assert (status, without(made, "metadata")) == (201, without(SENT, "metadata") | absent)
    _, core, _ = await client("GET", f"{CORE}/e")
    assert without(core, "metadata") == {
        "kind": "Event",
        "apiVersion": "v1",
        "eventTime": TIME,
        "reportingComponent": "example.com/robot",
        "reportingInstance": "robot-1",
        "action": "Lift",
        "reason": "Lifted",
        "involvedObject": ABOUT,
        "message": "it went up",
        "type": "Normal",
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
    }
    await client("POST", CORE, OLD)
    _, shown, _ = await client("GET", f"{NEW}/old")
    assert without(shown, "metadata") == {
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "eventTime": TIME,
        "regarding": ABOUT,
        "reason": "Fell",
        "note": "it went down",
        "deprecatedSource": {"component": "c"},
        "deprecatedFirstTimestamp": "2023-11-14T22:13:20Z",
        "deprecatedLastTimestamp": "2023-11-14T22:13:20Z",
        "deprecatedCount": 2,
        "type": "Warning",
    }
    assert shown["metadata"]["uid"] == (await client("GET", f"{CORE}/old"))[1]["metadata"]["uid"]


async def test_lists_watches_and_tables_have_its_form(client: Client) -> None:
    await client("POST", CORE, OLD)
    _, listed, _ = await client("GET", NEW)
    assert (listed["kind"], listed["apiVersion"]) == ("EventList", "events.k8s.io/v1")
    assert [item["note"] for item in listed["items"]] == ["it went down"]
    _, everywhere, _ = await client("GET", "/apis/events.k8s.io/v1/events?fieldSelector=metadata.name%3Dold")
    assert everywhere["items"] == listed["items"]
    (event,) = await client.lines(f"{NEW}?watch=true", 1)
    assert (event["type"], without(event["object"], "kind", "apiVersion")) == ("ADDED", listed["items"][0])
    tables = [(await client("GET", f"{path}?includeObject=None", Accept=TABLE))[1] for path in (NEW, CORE)]
    assert tables[0]["rows"] == tables[1]["rows"]
    assert "it went down" in tables[0]["rows"][0]["cells"]
    first, *_ = await client.lines(f"{NEW}?watch=true&includeObject=None", 1, Accept=TABLE)
    assert first["object"]["rows"] == tables[0]["rows"]


@pytest.mark.parametrize("patch_type", [STRATEGIC_MERGE_PATCH, MERGE_PATCH])
async def test_a_series_is_patched_as_recorders_do_it(client: Client, patch_type: str) -> None:
    await client("POST", NEW, SENT)
    series = {"count": 2, "lastObservedTime": "2023-11-14T22:14:20.000000Z"}
    status, patched, _ = await client("PATCH", f"{NEW}/e", {"series": series}, Content_Type=patch_type)
    assert (status, patched["series"], patched["note"]) == (200, series, "it went up")
    assert client.api.get(Request(EVENT, "default", "e"))["series"] == series


async def test_what_is_read_can_be_written_back(client: Client) -> None:
    await client("POST", CORE, OLD)
    await client("POST", NEW, SENT)
    for name in ("old", "e"):
        _, shown, _ = await client("GET", f"{NEW}/{name}")
        shown["metadata"]["labels"] = {"by": "hand"}
        status, written, _ = await client("PUT", f"{NEW}/{name}", shown)
        assert (status, written["metadata"]["labels"]) == (200, {"by": "hand"})
    assert client.api.get(Request(EVENT, "default", "old"))["eventTime"] is None
    status, made, _ = await client("PUT", f"{NEW}/put", {**SENT, "metadata": {"name": "put"}})
    assert (status, made["apiVersion"], made["note"]) == (201, "events.k8s.io/v1", "it went up")


async def test_apply_and_delete(client: Client) -> None:
    path = f"{NEW}/e?fieldManager=robot"
    for status in (201, 200):
        code, made, _ = await client("PATCH", path, SENT, Content_Type=APPLY_PATCH)
        assert (code, made["apiVersion"], made["note"]) == (status, "events.k8s.io/v1", "it went up")
    code, told, _ = await client("PATCH", path, {**SENT, "apiVersion": "v1"}, Content_Type=APPLY_PATCH)
    assert (code, told["reason"]) == (400, "BadRequest")
    code, told, _ = await client("DELETE", f"{NEW}/e")
    assert (code, told["details"]["group"], told["details"]["name"]) == (200, "events.k8s.io", "e")
    assert (await client("GET", f"{CORE}/e"))[0] == 404


@pytest.mark.parametrize(
    ("change", "causes"),
    [
        ({"eventTime": None}, ["eventTime: Required value"]),
        ({"type": "Bad"}, ['type: Invalid value: "": has invalid value: Bad']),
        ({"action": ""}, ["action: Required value"]),
        ({"reason": "r" * 129}, ['reason: Invalid value: "": can have at most 128 characters']),
        ({"note": "n" * 1025}, ['message: Invalid value: "": can have at most 1024 characters']),
        ({"deprecatedCount": 1}, ['count: Invalid value: "": needs to be unset']),
        ({"deprecatedSource": {"component": "c"}}, ['source: Invalid value: "": needs to be unset']),
        (
            {"series": {"count": 1, "lastObservedTime": TIME}},
            ['series.count: Invalid value: "": should be at least 2'],
        ),
    ],
)
async def test_new_events_are_complete(client: Client, change: dict[str, Any], causes: list[str]) -> None:
    status, told, _ = await client("POST", NEW, {**SENT, **change})
    found = [f"{cause['field']}: {cause['message']}" for cause in told["details"].get("causes", [])]
    assert (status, found) == (422, causes), told


async def test_what_happened_does_not_change(client: Client) -> None:
    await client("POST", NEW, SENT)
    status, told, _ = await client("PATCH", f"{NEW}/e", {"note": "it fell"}, Content_Type=MERGE_PATCH)
    assert (status, told["details"]["causes"][0]["field"]) == (422, "message")
    assert told["message"] == 'Event "e" is invalid: message: Invalid value: "it fell": field is immutable'
    status, told, _ = await client("POST", NEW, {**SENT, "apiVersion": "v1"})
    assert (status, told["reason"]) == (400, "BadRequest")
