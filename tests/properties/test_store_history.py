"""A list and a watch from its revision always reach the current state; pages are of one snapshot."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_objects import put

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import SERVICE, Json
from kdns.controlplane.storage import listing
from kdns.controlplane.storage.listing import ListOptions
from kdns.controlplane.storage.store import Filter, Store, StoredObject, Subscription

NAMES = "abcd"


@dataclass(frozen=True)
class Change:
    """Put (label None: delete) one object."""

    namespace: str
    name: str
    label: str | None


changes = st.lists(
    st.builds(Change, st.sampled_from("xy"), st.sampled_from(NAMES), st.sampled_from([None, "1", "2"])), max_size=40
)
filters = st.builds(
    lambda namespace, selector: listing.filter_of(namespace, selector, ""),
    st.sampled_from([None, "x"]),
    st.sampled_from(["", "v=1", "v!=1", "!v"]),
)


def apply(store: Store, change: Change) -> None:
    key = (change.namespace, change.name)
    old = store.get(SERVICE, key)
    if change.label is not None:
        metadata: Json = {"name": change.name, "namespace": change.namespace, "labels": {"v": change.label}}
        put(store, SERVICE, key, {"metadata": metadata}, old)
    elif old:
        store.delete(old)


def listed(store: Store, wanted: Filter, revision: int = 0) -> dict[tuple[str, str], bytes]:
    return {version.key: version.encoded for version in store.page(SERVICE, wanted, revision=revision).items}


def followed(state: dict[tuple[str, str], bytes], subscription: Subscription) -> dict[tuple[str, str], bytes]:
    """The state after the events; each event must be consistent with the state before."""
    state, last = dict(state), 0
    for event in subscription.take():
        assert event.stored.revision > last
        last, key = event.stored.revision, event.stored.key
        assert (event.type == "ADDED") is (key not in state)
        if event.type == "DELETED":
            del state[key]
        else:
            state[key] = event.stored.encoded
    return state


@given(before=changes, after=changes, wanted=filters)
def test_list_then_watch_is_the_present(before: list[Change], after: list[Change], wanted: Filter) -> None:
    store = Store()
    for change in before:
        apply(store, change)
    state, revision = listed(store, wanted), store.revision
    live = store.watch(SERVICE, wanted, since=revision)
    for change in after:
        apply(store, change)
    resumed = store.watch(SERVICE, wanted, since=revision)
    assert listed(store, wanted, revision) == state
    assert followed(state, live) == followed(state, resumed) == listed(store, wanted)


@given(history=changes, wanted=filters, limit=st.integers(1, 4), between=changes)
def test_pages_are_one_moment(history: list[Change], wanted: Filter, limit: int, between: list[Change]) -> None:
    store = Store()
    for change in history:
        apply(store, change)
    moment, token, pending = listed(store, wanted), "", list(between)
    found: list[StoredObject] = []
    first = True
    while first or token:
        first = False
        page = listing.page(store, SERVICE, wanted, ListOptions(limit=limit, continue_token=token))
        assert len(page.stored) <= limit
        found += page.stored
        token = page.continue_token
        if pending:
            apply(store, pending.pop())
    assert {version.key: version.encoded for version in found} == moment
    assert [version.key for version in found] == sorted(moment)


@given(history=changes, bound=st.integers(1, 5), since=st.integers(1, 45), wanted=filters)
def test_a_bounded_history_is_whole_or_410(history: list[Change], bound: int, since: int, wanted: Filter) -> None:
    bounded, whole = Store(history_commits=bound), Store()
    for change in history:
        apply(bounded, change)
        apply(whole, change)
    if since > whole.revision:
        return
    expected = [event.line for event in whole.watch(SERVICE, wanted, since=since).take()]
    if since < bounded.oldest(SERVICE):
        with pytest.raises(StatusError, match="too old resource version"):
            bounded.watch(SERVICE, wanted, since=since)
    else:
        assert [event.line for event in bounded.watch(SERVICE, wanted, since=since).take()] == expected
