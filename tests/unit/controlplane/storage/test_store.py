"""The store: revisions, watches with selectors, bounded history, pages of one snapshot."""

import pytest
from object_api import refused
from stored_objects import put

from kdns.controlplane.apimachinery.kinds import POD, SERVICE, Json
from kdns.controlplane.schema.serialization import serialized
from kdns.controlplane.storage import listing, store
from kdns.controlplane.storage.listing import ListOptions
from kdns.controlplane.storage.store import Commit, Filter, Store, Subscription


def service(name: str, namespace: str = "x", **labels: str) -> Json:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}}


class Cluster:
    """A store with short methods to change it."""

    def __init__(self, **options: int) -> None:
        commits, size_bytes = options.get("history_commits", 100), options.get("history_bytes", 1_000_000)
        self.store = Store(history_commits=commits, history_bytes=size_bytes)

    def put(self, name: str, namespace: str = "x", **labels: str) -> int:
        key = (namespace, name)
        old = self.store.get(SERVICE, key)
        return put(self.store, SERVICE, key, service(name, namespace, **labels), old).revision

    def delete(self, name: str, namespace: str = "x") -> int:
        old = self.store.get(SERVICE, (namespace, name))
        assert old
        return self.store.delete(old).revision

    def watch(self, selector: str = "", namespace: str | None = None, since: str = "") -> Subscription:
        wanted = listing.filter_of(namespace, selector, "")
        return listing.subscribe(self.store, SERVICE, wanted, ListOptions(resource_version=since))


def seen(subscription: Subscription) -> list[tuple[str, str, int]]:
    return [(event.type, event.stored.key[1], event.stored.revision) for event in subscription.take()]


def test_revisions_are_counted_over_all_kinds() -> None:
    cluster = Cluster()
    assert cluster.put("a") == 2
    put(cluster.store, POD, ("x", "p"), service("p"))
    assert cluster.put("a") == 4
    assert cluster.delete("a") == 5
    found = cluster.store.get(POD, ("x", "p"))
    assert found
    assert found.obj["metadata"]["resourceVersion"] == "3"
    assert found.encoded == (
        b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"x","resourceVersion":"3"},'
        b'"spec":{"containers":null},"status":{}}'
    )


def test_a_version_is_replaced_once() -> None:
    cluster = Cluster()
    cluster.put("a")
    old = cluster.store.get(SERVICE, ("x", "a"))
    cluster.put("a")
    error = refused(409, "the object has been modified", put, cluster.store, SERVICE, ("x", "a"), service("a"), old)
    assert error.reason == "Conflict"


def test_what_cannot_be_persisted_does_not_happen() -> None:
    def full(_: Commit) -> None:
        raise OSError("disk full")

    store = Store(persist=full)
    subscription = store.watch(SERVICE, Filter(), since=None)
    with pytest.raises(OSError, match="disk full"):
        put(store, SERVICE, ("x", "a"), service("a"))
    assert store.revision == 1
    assert store.get(SERVICE, ("x", "a")) is None
    assert subscription.take() == []


@pytest.mark.parametrize(
    ("selector", "namespace", "events"),
    [
        (
            "",
            None,
            [("ADDED", "a", 2), ("ADDED", "b", 3), ("MODIFIED", "a", 4), ("MODIFIED", "a", 5), ("DELETED", "a", 6)],
        ),
        ("", "y", [("ADDED", "b", 3)]),
        ("v=1", None, [("ADDED", "a", 2), ("DELETED", "a", 4), ("ADDED", "a", 5), ("DELETED", "a", 6)]),
        ("v=2", None, [("ADDED", "a", 4), ("DELETED", "a", 5)]),
        ("v=9", None, []),
    ],
)
def test_events_are_judged_against_the_watcher(
    selector: str, namespace: str, events: list[tuple[str, str, int]]
) -> None:
    cluster = Cluster()
    live = cluster.watch(selector, namespace)
    cluster.put("a", v="1")
    cluster.put("b", "y", v="0")
    cluster.put("a", v="2")
    cluster.put("a", v="1")
    cluster.delete("a")
    assert seen(live) == events
    assert seen(cluster.watch(selector, namespace, since="1")) == events
    assert seen(cluster.watch(selector, namespace, since="4")) == [event for event in events if event[2] > 4]


def test_a_watcher_is_woken_at_the_commit() -> None:
    cluster, woken = Cluster(), []
    subscription = cluster.watch("v=1")
    subscription.wake = lambda: woken.append(cluster.store.revision)
    cluster.put("a", v="2")
    cluster.put("a", v="1")
    assert woken == [3]
    subscription.close()
    cluster.put("a", v="1")
    assert woken == [3, 3]


@pytest.mark.parametrize("since", ["", "0"])
def test_without_a_revision_a_watch_begins_with_what_is_there(since: str) -> None:
    cluster = Cluster()
    cluster.put("b")
    cluster.put("a")
    subscription = cluster.watch(since=since)
    cluster.put("b")
    assert seen(subscription) == [("ADDED", "a", 3), ("ADDED", "b", 2), ("MODIFIED", "b", 4)]


def test_history_ends_with_410() -> None:
    cluster = Cluster(history_commits=2)
    for _ in range(4):
        cluster.put("a")
    assert seen(cluster.watch(since="3")) == [("MODIFIED", "a", 4), ("MODIFIED", "a", 5)]
    assert refused(410, "too old resource version: 2 (3)", cluster.watch, since="2").reason == "Expired"


def test_a_revision_to_come_ends_the_watch_quietly() -> None:
    assert Cluster().watch(since="1000000").closed


@pytest.mark.parametrize("since", ["x", "-1", "1.5"])
def test_a_revision_that_is_no_number(since: str) -> None:
    refused(500, "invalid syntax", Cluster().watch, since=since)


def test_a_slow_watcher_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "QUEUE_EVENTS", 2)
    cluster = Cluster()
    for name in "abc":
        cluster.put(name)
    slow, fast, initial = cluster.watch(since="4"), cluster.watch(since="4"), cluster.watch()
    for number in range(3):
        cluster.put("a")
        assert len(fast.take()) == 1
        assert slow.closed == initial.closed == (number == 2), "what is there does not count"
    assert (len(slow.take()), len(initial.take()), fast.closed) == (2, 5, False)


def test_history_is_bounded_in_bytes() -> None:
    size = len(put(Cluster().store, SERVICE, ("x", "a"), service("a", note="x" * 1000)).encoded)
    cluster = Cluster(history_bytes=size * 3)
    first = cluster.put("a", note="x" * 1000)
    for _ in range(2):
        cluster.put("a", note="x" * 1000)
    assert cluster.store.oldest(SERVICE) == 1
    last = cluster.put("a", note="x" * 1000)
    assert cluster.store.oldest(SERVICE) == first
    assert len(seen(cluster.watch(since=str(first)))) == 3
    cluster.put("a", note="x" * 10_000)
    cluster.put("a")
    assert cluster.store.oldest(SERVICE) == last + 1, "a version that is larger than all that fits is forgotten at once"
    assert seen(cluster.watch(since=str(last + 1))) == [("MODIFIED", "a", last + 2)]


def test_a_slow_watcher_is_closed_for_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "QUEUE_BYTES", 2500)
    cluster = Cluster()
    slow = cluster.watch(since="1")
    for _ in range(2):
        cluster.put("a", note="x" * 1000)
    assert len(slow.take(1)) == 1, "one piece at a time"
    closed = []
    for _ in range(2):
        cluster.put("a", note="x" * 1000)
        closed.append(slow.closed)
    assert (closed, len(slow.take())) == ([False, True], 2)
    large = cluster.watch(since=str(cluster.store.revision))
    cluster.put("a", note="x" * 5000)
    assert not large.closed, "a single event always fits"


def test_pieces_of_what_is_there() -> None:
    cluster = Cluster()
    for name in "abcd":
        cluster.put(name, note="x" * 100)
    subscription = cluster.watch()
    cluster.put("e")
    pieces = []
    while subscription.waiting:
        pieces.append("".join(event.stored.key[1] for event in subscription.take(300)))
    assert pieces == ["ab", "cd", "e"]


def test_old_versions_keep_their_bytes_only() -> None:
    cluster = Cluster(history_commits=500)
    cluster.put("a", v="1")
    version = cluster.store.get(SERVICE, ("x", "a"))
    assert version
    before = version.obj
    for number in range(3):
        cluster.put("a", v=str(number))
    assert version._obj is None  # noqa: SLF001 - what it holds is not shown
    assert serialized(SERVICE, version.obj) == serialized(SERVICE, before)
    assert len(cluster.watch("v=1", since="2").take()) == 3


def test_remaining_is_told_without_selectors_only() -> None:
    cluster = Cluster()
    for namespace in "xy":
        for name in "abc":
            cluster.put(name, namespace, v="1")
    for wanted, remaining in ((Filter(), 5), (Filter("x"), 2), (listing.filter_of(None, "v=1", ""), None)):
        page = listing.page(cluster.store, SERVICE, wanted, ListOptions(limit=1))
        assert (page.remaining, bool(page.continue_token)) == (remaining, True)


def test_a_lost_snapshot_offers_to_read_on() -> None:
    cluster = Cluster(history_commits=1)
    for name in "abc":
        cluster.put(name)

    def page(token: str) -> listing.ListResult:
        return listing.page(cluster.store, SERVICE, Filter(), ListOptions(limit=1, continue_token=token))

    token = page("").continue_token
    cluster.put("b")
    cluster.put("b")
    going_on = page(refused(410, "", page, token).body()["metadata"]["continue"])
    assert [(version.key[1], version.revision) for version in going_on.stored] == [("b", 6)]


@pytest.mark.parametrize(
    ("revision", "match", "limit", "names"),
    [
        ("", "", 0, "abc"),
        ("0", "", 1, "abc"),
        ("2", "", 0, "abc"),
        ("3", "NotOlderThan", 0, "abc"),
        ("3", "NotOlderThan", 5, "abc"),
        ("3", "Exact", 0, "ab"),
        ("3", "", 5, "ab"),
    ],
)
def test_a_list_at_a_revision(revision: str, match: str, limit: int, names: str) -> None:
    cluster = Cluster()
    for name in "abc":
        cluster.put(name)
    options = ListOptions(limit=limit, resource_version=revision, resource_version_match=match)
    found = listing.page(cluster.store, SERVICE, Filter(), options)
    assert "".join(version.key[1] for version in found.stored) == names


@pytest.mark.parametrize(
    ("revision", "match", "token", "code", "text"),
    [
        ("99", "", "", 504, "Too large resource version: 99, current: 2"),
        ("x", "", "", 400, "invalid syntax"),
        ("", "Exact", "", 422, "forbidden unless resourceVersion is provided"),
        ("0", "Exact", "", 422, '"exact" is forbidden for resourceVersion "0"'),
        ("1", "Older", "", 422, '"Older": supported values: "Exact", "NotOlderThan", ""'),
        ("1", "Exact", "e30", 422, "forbidden when continue is provided"),
        ("2", "", "e30", 400, "not allowed when using continue"),
        ("", "", "%%%", 400, "continue: expected a token of an earlier list"),
        ("", "", "e30=", 400, "continue: expected a token of an earlier list"),
        ("", "", "e30e3", 400, "continue: expected a token of an earlier list"),
        ("", "", "e30", 400, "continue: expected a token of an earlier list"),
    ],
)
def test_refused_lists(revision: str, match: str, token: str, code: int, text: str) -> None:
    cluster = Cluster()
    cluster.put("a")
    options = ListOptions(continue_token=token, resource_version=revision, resource_version_match=match)
    refused(code, text, listing.page, cluster.store, SERVICE, Filter(), options)
