"""Lists that are the beginning of a watch: what ends them, and what is done if they do not end."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from fake_api import TYPES, Json, initial_end, line
from reflected import ScriptedApi, reflect

from kdns.cluster.io import pager
from kdns.cluster.io.reflector import WatchStats
from kdns.cluster.objects import Service
from kdns.cluster.state import Change, State
from kdns.cluster.watch import Timing
from kdns.errors import ApiServerError

SERVICE = TYPES["services"]
EXPIRED = line({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}})
ETCD = line({"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd"}})
BOOKMARK = line({"type": "BOOKMARK", "object": SERVICE | {"metadata": {"resourceVersion": "5"}}})
END = line(initial_end("services", 9))
STAYS_OPEN = b""


def item(name: str, **spec: object) -> Json:
    return {"metadata": {"name": name, "namespace": "x", "resourceVersion": "3"}, "spec": spec}


def event(what: str, name: str, **spec: object) -> bytes:
    return line({"type": what, "object": SERVICE | item(name, **spec)})


def added(names: str) -> bytes:
    return b"".join(event("ADDED", name) for name in names)


@dataclass
class Api(ScriptedApi):
    """Has these streams, one after the other, each of them chunks or an error.

    A list of pages has the Services `a` and `b`.
    """

    streams: list[list[bytes] | ApiServerError]
    requests: list[str] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def page(self, path: str, params: Mapping[str, str]) -> AsyncIterator[bytes]:
        assert path
        self.requests.append("page" if params["limit"] != "1" else "version")
        metadata = {"resourceVersion": "8"}
        yield json.dumps(
            {"kind": "ServiceList", "apiVersion": "v1", "metadata": metadata, "items": [item("a"), item("b")]}
        ).encode()

    @asynccontextmanager
    async def stream(self, path: str, params: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        if "watch" not in params:
            yield self.page(path, params)
            return
        is_initial = params.get("sendInitialEvents") == "true"
        if is_initial:
            assert (params["resourceVersionMatch"], params["allowWatchBookmarks"]) == ("NotOlderThan", "true")
        assert is_initial != ("resourceVersion" in params)
        self.requests.append("stream" if is_initial else f"watch {params['resourceVersion']}")
        if not self.streams:
            self.done.set()
            await asyncio.Event().wait()
        sent = self.streams.pop(0)
        if isinstance(sent, ApiServerError):
            raise sent

        async def chunks() -> AsyncIterator[bytes]:
            for chunk in sent:
                if chunk == STAYS_OPEN:
                    await asyncio.Event().wait()
                yield chunk

        yield chunks()


@dataclass
class Run:
    state: State = field(default_factory=State)
    stats: WatchStats = field(default_factory=WatchStats)
    removed: list[str] = field(default_factory=list)

    @property
    def names(self) -> str:
        return "".join(sorted(name for _, name in self.state.services))

    async def follow(self, api: Api, timing: Timing | None = None) -> None:
        def changed(changes: list[Change]) -> None:
            self.removed.extend(change.key[1] for change in changes if change.new is None)

        timing = timing or Timing(confirm_s=0.0)
        await reflect(api, self.state, changed, api.done, stats=self.stats, timing=timing)


@pytest.mark.parametrize("chunk_bytes", [1, 50, 100_000])
async def test_a_stream_is_a_list_and_its_watch(chunk_bytes: int) -> None:
    """The watch goes on from the bookmark; events between the objects and it count."""
    body = added("abc") + event("MODIFIED", "b") + event("DELETED", "c") + added("d") + END + added("e")
    run, api = Run(), Api([[body[at : at + chunk_bytes] for at in range(0, len(body), chunk_bytes)]])
    await run.follow(api)
    assert run.names == "abde"
    assert run.removed == ["c"]
    assert Service in run.state.synced
    assert (run.stats.lists, run.stats.events) == (1, 1)
    assert api.requests[0] == "stream"


async def test_a_later_stream_deletes_what_it_lacked_at_its_end_only() -> None:
    run = Run()
    await run.follow(Api([[added("abcd") + END, EXPIRED], [added("abc")]]))
    assert (run.names, run.removed) == ("ab", ["c", "d"]), "by the list of pages"
    run = Run()
    await run.follow(Api([[added("abcd") + END, EXPIRED], [added("ab"), event("ADDED", "e") + END]]))
    assert (run.names, run.removed) == ("abe", ["c", "d"])
    assert run.stats.relists == {"expired": 1}


async def test_a_stream_that_lacks_most_has_to_be_confirmed() -> None:
    run, api = Run(), Api([[added("abcd") + END, EXPIRED], [added("a") + END], [added("abc") + END]])
    await run.follow(api)
    assert (run.names, run.removed) == ("abc", ["d"])
    assert api.requests[:3] == ["stream"] * 3


@pytest.mark.parametrize(
    ("first", "is_asked_again"),
    [
        pytest.param(ApiServerError("", "forbidden", 422), False, id="422"),
        pytest.param(ApiServerError("", "bad request", 400), False, id="400"),
        pytest.param([added("a"), BOOKMARK], False, id="a usual bookmark: the parameter was ignored"),
        pytest.param([added("a"), STAYS_OPEN], False, id="no bookmark: the same"),
        pytest.param(ApiServerError("", "internal", 500), True, id="500"),
        pytest.param([added("a"), ETCD], True, id="an error midway"),
        pytest.param([added("a")], True, id="an end midway"),
        pytest.param([added("a"), b"nonsense\n"], True, id="nonsense midway"),
    ],
)
async def test_a_list_is_made_in_pages_instead(first: list[bytes] | ApiServerError, is_asked_again: bool) -> None:
    """And the next list begins with a stream again, unless the server has none."""
    run, api = Run(), Api([first, [EXPIRED]])
    await run.follow(api, Timing(initial_s=0.05))
    assert run.names == "ab"
    assert Service in run.state.synced
    again = ["stream"] if is_asked_again else ["page", "watch 8"]
    assert api.requests == ["stream", "page", "watch 8", *again]


async def test_an_object_that_does_not_decode_is_kept() -> None:
    run = Run()
    await run.follow(Api([[added("abc") + END, EXPIRED], [added("a") + event("ADDED", "b", ports=3) + END]]))
    assert (run.names, run.removed) == ("ab", ["c"])


@pytest.mark.parametrize("names", ["abc", "aaa"])
async def test_a_stream_without_an_end_is_bounded(monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    monkeypatch.setattr(pager, "OBJECTS_MAX", 2)
    run, api = Run(), Api([[added(names)]])
    await run.follow(api)
    assert run.stats.errors == {"endless": 1}
    assert api.requests == ["stream", "page", "watch 8"]
