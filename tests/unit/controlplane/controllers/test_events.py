"""Events: what a notice becomes, that repetitions count, and that Events go after an hour."""

from kdns.controlplane.apimachinery.kinds import EVENT, NODE, SERVICE, Json
from kdns.controlplane.controllers.events import TTL_S, EventExpiry, aggregate_key, new_event, repeated
from kdns.controlplane.controllers.reconciler import Change, Event, Request

NOW_S = 1_700_000_000.0
ABOUT: Json = {"metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7"}}


def event(message: str = "it is so") -> Event:
    return Event(SERVICE, ABOUT, "Warning", "Because", message)


def test_an_event_says_what_who_and_when() -> None:
    made = new_event(event(), "some-controller", NOW_S)
    assert made["metadata"] == {"name": f"web.{int(NOW_S * 1e9):x}", "namespace": "shop"}
    assert made["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Service",
        "name": "web",
        "namespace": "shop",
        "resourceVersion": "7",
        "uid": "u1",
    }
    assert (made["type"], made["reason"], made["message"], made["count"]) == ("Warning", "Because", "it is so", 1)
    assert made["source"] == {"component": "some-controller"}
    assert made["firstTimestamp"] == made["lastTimestamp"] == "2023-11-14T22:13:20Z"


def test_events_of_cluster_scoped_objects_are_in_default() -> None:
    about = {"metadata": {"name": "node-1", "uid": "u2"}}
    assert new_event(Event(NODE, about, "Normal", "R", "m"), "c", NOW_S)["metadata"]["namespace"] == "default"


def test_a_repetition_counts() -> None:
    again = repeated(new_event(event(), "c", NOW_S), NOW_S + 60)
    assert (again["count"], again["firstTimestamp"], again["lastTimestamp"]) == (
        2,
        "2023-11-14T22:13:20Z",
        "2023-11-14T22:14:20Z",
    )


def test_only_the_same_words_about_the_same_object_are_a_repetition() -> None:
    known = aggregate_key(event(), "c")
    assert known == aggregate_key(event(), "c")
    assert known not in {aggregate_key(event("something else"), "c"), aggregate_key(event(), "another")}


def test_events_go_an_hour_after_their_last_write() -> None:
    expiry = EventExpiry()
    names = ("a", "b")
    events = {name: {"metadata": {"name": name, "namespace": "shop"}} for name in names}
    for name in names:
        assert list(expiry.observe(Change(EVENT, ("shop", name), events[name], 1))) == [("events",)]
    assert expiry.reconcile(Request(("events",), NOW_S)).requeue_after_s == TTL_S
    expiry.observe(Change(EVENT, ("shop", "a"), events["a"], 2))
    expiry.reconcile(Request(("events",), NOW_S + 10))
    due = expiry.reconcile(Request(("events",), NOW_S + TTL_S))
    assert [(action.verb, action.obj) for action in due.actions] == [("delete", events["b"])]
    assert due.requeue_after_s == 10
    expiry.observe(Change(EVENT, ("shop", "b"), None, 3))
    assert not expiry.reconcile(Request(("events",), NOW_S + TTL_S)).actions


def test_events_expire_after_the_clock_was_set_back() -> None:
    """Neither those of before nor those that are written afterwards wait until the clock is there again."""
    expiry = EventExpiry()
    year_s = 365 * 24 * 3600.0
    for now_s, name in ((NOW_S + year_s, "before"), (NOW_S, "after")):
        expiry.observe(Change(EVENT, ("shop", name), {"metadata": {"name": name, "namespace": "shop"}}, 1))
        assert expiry.reconcile(Request(("events",), now_s)).requeue_after_s == TTL_S
    due = expiry.reconcile(Request(("events",), NOW_S + TTL_S))
    assert [action.obj["metadata"]["name"] for action in due.actions] == ["before", "after"]
