import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from fake_api import TYPES, Cluster, FakeApi, RefusedError, endpoint_slice, expired, line, meta, service, until

from kdns.cluster.io.informer import FollowStats, follow
from kdns.cluster.objects import EndpointSlice, Namespace, Pod, Service
from kdns.cluster.source import Scope, Source
from kdns.cluster.state import Change, State
from kdns.cluster.watch import Timing

TIMING = Timing(page_objects=10, backoff_s=0.02, backoff_cap_s=0.1, healthy_s=0.05, report_s=0.05)
SERVICES = Scope(kinds=(Service,))


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.put("namespaces", meta("default"))
    for number in range(35):
        cluster.put("services", service(f"s{number:02}", f"10.96.0.{number + 1}"))
        cluster.put("endpointslices", endpoint_slice(f"s{number:02}", f"10.244.0.{number + 1}"))
    return cluster


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[FakeApi]:
    api = FakeApi(cluster)
    await api.start()
    yield api
    await api.stop()


@dataclass
class Follower:
    state: State = field(default_factory=State)
    stats: FollowStats = field(default_factory=FollowStats)
    batches: list[list[Change]] = field(default_factory=list)

    @property
    def removed(self) -> list[str]:
        return [change.key[1] for batch in self.batches for change in batch if change.new is None]


@asynccontextmanager
async def following(
    api: FakeApi, timing: Timing = TIMING, scope: Scope = SERVICES, source: Source | None = None
) -> AsyncIterator[Follower]:
    follower = Follower()
    source = source or Source(endpoint=api.url)
    task = asyncio.create_task(
        follow(source, follower.state, follower.batches.append, follower.stats, scope=scope, timing=timing)
    )
    try:
        yield follower
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()


async def test_everything_is_listed_in_pages_then_watched(api: FakeApi, cluster: Cluster) -> None:
    cluster.put("pods", meta("p", "default"))
    async with following(api, scope=Scope(kinds=(Namespace, Service, EndpointSlice, Pod))) as follower:
        await until(lambda: len(follower.state.synced) == 4)
        assert cluster.holds(follower.state)
        sizes = [len(batch) for batch in follower.batches if batch and isinstance(batch[0].new, Service)]
        assert (sum(sizes), len(sizes) >= 4, max(sizes)) == (35, True, 10)  # a page may take several turns
        await until(lambda: sum(map(len, api.watching.values())) == 4)
        cluster.put("services", service("new", "10.96.1.1"))
        cluster.put("services", service("s00", "10.96.1.2"))
        cluster.delete("services", ("default", "s01"))
        cluster.delete("namespaces", ("", "default"))
        await until(lambda: cluster.holds(follower.state))
    asked = [
        (verb, params) for verb, plural, params in api.requests if (plural, verb != "stream") == ("services", True)
    ]
    queries = [params for verb, params in asked if verb == "watch"]
    assert len(asked) - len(queries) == 4  # pages of the list
    assert len(queries) == 1
    assert queries[0]["allowWatchBookmarks"] == "true"
    assert 300 <= int(queries[0]["timeoutSeconds"]) <= 600
    assert all(headers["Accept"] == "application/json" for headers in api.headers)


async def test_selectors_reach_the_server(api: FakeApi) -> None:
    scope = Scope(labels="app in (a,b)", namespace_labels="team=x")
    async with following(api, scope=scope):
        await until(lambda: sum(map(len, api.watching.values())) == 3)
    wanted = {"namespaces": "team=x", "services": "app in (a,b)", "endpointslices": "app in (a,b)"}
    assert {(plural, params["labelSelector"]) for _, plural, params in api.requests} == set(wanted.items())


async def test_an_empty_cluster_counts_as_synced(api: FakeApi, cluster: Cluster) -> None:
    cluster.objects.clear()
    async with following(api) as follower:
        await until(lambda: Service in follower.state.synced)
        assert follower.batches == [[]]


async def test_a_dropped_watch_is_resumed_without_a_list(api: FakeApi, cluster: Cluster, logs: list[Any]) -> None:
    async with following(api) as follower:
        for number in range(5):
            await until(lambda: bool(api.watching["services"]))
            api.drop()
            cluster.put("services", service("moving", f"10.97.0.{number}"))
            cluster.put("services", service(f"extra{number}"))
            await until(lambda: cluster.holds(follower.state))
        assert api.lists("services") == 1
        assert api.watches("services") > 1
        assert follower.removed == []
        extra = [change.key[1] for batch in follower.batches for change in batch if change.key[1].startswith("extra")]
        assert extra == [f"extra{number}" for number in range(5)]
        assert not [entry for entry in logs if entry["event"] == "api server lost"], "it was there all the time"


@pytest.mark.parametrize("how", ["on resume", "in stream"])
async def test_410_makes_a_list_that_is_compared_in_place(api: FakeApi, cluster: Cluster, how: str) -> None:
    async with following(api) as follower:
        await until(lambda: bool(api.watching["services"]))
        first = len(follower.batches)
        api.silent = True
        cluster.delete("services", ("default", "s07"))
        cluster.put("services", service("s08", "10.98.0.1"))
        cluster.compact()
        api.silent = False
        if how == "on resume":
            api.drop()
        else:
            await api.send("services", line({"type": "ERROR", "object": expired().status}))
        await until(lambda: cluster.holds(follower.state))
        assert api.lists("services") == 2
        assert follower.removed == ["s07"]
        assert follower.stats.kinds[Service].relists == {"expired": 1}
        changed = [change.key[1] for batch in follower.batches[first:] for change in batch]
        assert changed == ["s08", "s07"]


async def test_a_stalled_watch_heals(api: FakeApi, cluster: Cluster) -> None:
    async with following(api, replace(TIMING, idle_s=0.2)) as follower:
        await until(lambda: bool(api.watching["services"]))
        api.silent = True
        cluster.put("services", service("unseen"))
        stalled = set(api.watching["services"])
        await until(lambda: api.watches("services") > 1)
        assert not cluster.holds(follower.state)
        api.silent = False
        await until(lambda: cluster.holds(follower.state))
        await until(lambda: not stalled & api.watching["services"])
        assert api.lists("services") == 1


async def test_events_lost_by_the_server_are_found_by_the_verifying_list(api: FakeApi, cluster: Cluster) -> None:
    async with following(api, replace(TIMING, idle_s=0.1, verify_s=0.3)) as follower:
        await until(lambda: bool(api.watching["services"]))
        cluster.put("services", service("lost"))
        api.silent = True
        await until(lambda: cluster.holds(follower.state))
        assert follower.stats.kinds[Service].relists["verify"] >= 1


async def test_a_killed_api_changes_nothing_and_is_followed_again(
    api: FakeApi, cluster: Cluster, logs: list[Any]
) -> None:
    async with following(api) as follower:
        await until(lambda: bool(api.watching["services"]))
        await api.stop()
        cluster.put("services", service("meanwhile"))
        cluster.delete("services", ("default", "s03"))
        await until(lambda: any(entry["event"] == "api server still unreachable" for entry in logs))
        assert len(follower.state.services) == 35
        assert not follower.stats.kinds[Service].connected
        await api.start()
        await until(lambda: cluster.holds(follower.state))
        assert api.lists("services") == 1, "resumed, not listed"
    events = [entry["event"] for entry in logs]
    assert events.count("api server lost") == events.count("api server back") == 1
    lost = next(entry for entry in logs if entry["event"] == "api server lost")
    assert lost["server"] == api.url
    assert follower.stats.rest.requests["<error>", "GET", f"127.0.0.1:{api.port}"] > 0


async def test_a_start_without_an_api(cluster: Cluster, logs: list[Any]) -> None:
    probe = FakeApi(cluster)
    await probe.start()
    await probe.stop()
    async with following(probe) as follower:
        await until(lambda: any(entry["event"] == "api server lost" for entry in logs))
        assert not follower.state.synced
        await probe.start()
        await until(lambda: cluster.holds(follower.state))
    await probe.stop()


@pytest.mark.parametrize(
    ("fault", "wanted"),
    [
        (RefusedError(403, "Forbidden", "cannot list"), 'resources: ["services"], verbs: ["list", "watch"]'),
        (RefusedError(401, "Unauthorized", "who?"), "token, client certificate"),
        (RefusedError(500, "InternalError", "etcd is away"), None),
    ],
    ids=["403", "401", "500"],
)
@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_refusals_are_told_once_and_tried_again(
    api: FakeApi, cluster: Cluster, logs: list[Any], verb: str, fault: RefusedError, wanted: str | None
) -> None:
    api.refuse_always[verb, "services"] = fault
    async with following(api, replace(TIMING, report_s=60.0)) as follower:
        await until(lambda: follower.stats.kinds.get(Service) is not None)
        await until(lambda: follower.stats.kinds[Service].errors[str(fault.code)] >= 2)
        told = [entry for entry in logs if entry["event"] == "api server refuses"]
        assert len(told) == 1
        assert (told[0]["kind"], told[0]["status"], told[0]["reason"]) == ("services", fault.code, fault.message)
        assert wanted is None or wanted in told[0]["expected"]
        api.refuse_always.clear()
        await until(lambda: bool(api.watching["services"]))
        assert len(follower.state.services) == len(cluster.objects["services"])
        await until(lambda: any(entry["event"] == "api server no longer refuses" for entry in logs))


async def test_retry_after_is_obeyed(api: FakeApi) -> None:
    api.refuse["list", "services"].append(RefusedError(429, "TooManyRequests", "slow down", {"Retry-After": "1"}))
    began_s = asyncio.get_running_loop().time()
    async with following(api) as follower:
        await until(lambda: Service in follower.state.synced)
    assert asyncio.get_running_loop().time() - began_s >= 1.0


@pytest.mark.parametrize(
    "raw", [b"{]\n", b'{"type":"ADDED"}\n', b"nonsense\n", b'{"type":"ADDED","object":{"metadata":\n', b'"\xff"\n']
)
async def test_a_malformed_event_makes_a_new_list(api: FakeApi, cluster: Cluster, logs: list[Any], raw: bytes) -> None:
    async with following(api) as follower:
        await until(lambda: bool(api.watching["services"]))
        await api.send("services", raw)
        await until(lambda: api.lists("services") == 2)
        cluster.put("services", service("after"))
        await until(lambda: ("default", "after") in follower.state.services)
        assert follower.removed == []
        assert follower.stats.kinds[Service].relists == {"malformed": 1}
    assert any(entry["event"] == "api server response malformed" for entry in logs)


async def test_an_unreadable_object_harms_only_itself(api: FakeApi, cluster: Cluster, logs: list[Any]) -> None:
    broken = service("s05") | {"spec": {"ports": "none"}}
    async with following(api) as follower:
        await until(lambda: bool(api.watching["services"]))
        cluster.put("services", broken)
        cluster.put("services", service("s06", "10.99.0.1"))
        await until(lambda: follower.state.services["default", "s06"].spec.cluster_ip == "10.99.0.1")
        await api.send("services", line({"type": "ERROR", "object": expired().status}))
        await until(lambda: api.watches("services") == 2)
        assert api.lists("services") == 2
        assert follower.state.services["default", "s05"].spec.cluster_ip == "10.96.0.6", "the last readable one stays"
        assert follower.removed == []
    assert {entry["key"] for entry in logs if entry["event"] == "object malformed"} == {("default", "s05")}


async def test_a_server_that_went_back_in_time_is_listed_again(api: FakeApi) -> None:
    async with following(api) as follower:
        await until(lambda: bool(api.watching["services"]))
        bookmark = {"type": "BOOKMARK", "object": TYPES["services"] | {"metadata": {"resourceVersion": "7"}}}
        await api.send("services", line(bookmark))
        await until(lambda: api.lists("services") == 2)
        assert follower.stats.kinds[Service].relists == {"restored": 1}


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ([RefusedError(500, "InternalError", "unknown")] * 3, "refused"),
        ([RefusedError(504, "Timeout", "Too large resource version: 9, current: 7")], "restored"),
        ([RefusedError(429, "TooManyRequests", "busy")] * 5, None),
        ([RefusedError(403, "Forbidden", "not yet")] * 5, None),
    ],
    ids=["500", "too large", "429", "403"],
)
async def test_which_refusals_to_resume_make_a_new_list(
    api: FakeApi, fault: list[RefusedError], cause: str | None
) -> None:
    async with following(api) as follower:
        await until(lambda: bool(api.watching["services"]))
        api.refuse["watch", "services"].extend(fault)
        api.drop()
        await until(lambda: api.watches("services") == len(fault) + 2 and bool(api.watching["services"]))
        assert follower.stats.kinds[Service].relists == ({cause: 1} if cause else {})
        assert follower.stats.kinds[Service].errors[str(fault[0].code)] == len(fault)
        assert follower.removed == []


async def test_bookmarks_move_the_point_of_resumption(api: FakeApi, cluster: Cluster) -> None:
    async with following(api) as follower:
        await until(lambda: bool(api.watching["services"]))
        cluster.put("endpointslices", endpoint_slice("elsewhere"))
        bookmark = {
            "type": "BOOKMARK",
            "object": TYPES["services"] | {"metadata": {"resourceVersion": str(cluster.version)}},
        }
        await api.send("services", line(bookmark))
        await until(lambda: follower.stats.kinds[Service].resource_version == str(cluster.version))
        cluster.compact()
        api.drop()
        await until(lambda: api.watches("services") == 2)
        assert api.lists("services") == 1


async def test_a_list_whose_pages_expire_is_made_in_one_piece(api: FakeApi, cluster: Cluster) -> None:
    original = cluster.page

    def forgetful(plural: str, params: dict[str, Any]) -> dict[str, Any]:
        page = original(plural, params)
        if "limit" in params and "continue" not in params:
            cluster.delete("services", ("default", "s00"))
            cluster.compact()
        return page

    cluster.page = forgetful  # type: ignore[method-assign]
    async with following(api) as follower:
        await until(lambda: Service in follower.state.synced)
        assert set(follower.state.services) == set(cluster.objects["services"])
        assert follower.removed == ["s00"]
        assert [params for verb, _, params in api.requests if verb == "list"][2] == {}


async def test_the_request_rate_is_limited(api: FakeApi) -> None:
    source = Source(endpoint=api.url, qps=10, burst=2, max_inflight=1)
    began_s = asyncio.get_running_loop().time()
    async with following(api, scope=Scope(), source=source) as follower:
        await until(lambda: len(follower.state.synced) == 3)
    # 1 + 4 + 4 lists at 10 a second, of which two are free
    assert asyncio.get_running_loop().time() - began_s >= 0.6
    throttled = follower.stats.rest.throttled["GET", f"127.0.0.1:{api.port}"]
    assert sum(throttled.counts) >= 9
    asked_s = sum(duration.sum for duration in follower.stats.rest.durations.values())
    assert throttled.sum + asked_s > 0.5, "who asks slowly has less to wait"
