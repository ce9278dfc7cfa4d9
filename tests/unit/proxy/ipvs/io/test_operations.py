"""What leads virtual servers from what there is to what is wanted, as rows."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kdns.netlink.io.ipvs import Destination, ServerKey, ServerOptions
from kdns.proxy.ipvs.io.operations import Present, decide, present_of
from kdns.proxy.ipvs.virtual_servers import Destination as Wanted
from kdns.proxy.ipvs.virtual_servers import VirtualServer

TCP: ServerKey = ("10.96.0.1", 80, "TCP")
UDP: ServerKey = ("10.96.0.1", 53, "UDP")
RR = ServerOptions("rr")


def wanted(*endpoints: str, scheduler: str = "rr", affinity_s: int = 0) -> VirtualServer:
    destinations = tuple(Wanted(each, 8080) for each in endpoints)
    return VirtualServer(scheduler, destinations, 1 if affinity_s else 0, affinity_s)


def there(endpoints: Mapping[str, int], options: ServerOptions = RR) -> Present:
    """Endpoints with their weights."""
    return Present(
        options, {(each, 8080): Destination(weight, 0, 0, masquerades=True) for each, weight in endpoints.items()}
    )


@pytest.mark.parametrize(
    ("key", "present", "server", "operations", "leaving", "gone"),
    [
        (TCP, None, wanted("a", "b"), ["new server", "new destination a 1", "new destination b 1"], [], False),
        (TCP, None, wanted(), ["new server"], [], False),
        (TCP, there({"a": 1}), wanted("a"), [], [], False),
        (TCP, there({"a": 1}), wanted("a", "b"), ["new destination b 1"], [], False),
        (TCP, there({"a": 1}), wanted("b"), ["new destination b 1", "set destination a 0"], ["a"], False),
        (UDP, there({"a": 1}), wanted("b"), ["new destination b 1", "delete destination a 0"], [], False),
        (TCP, there({"a": 0, "b": 1}), wanted("b"), [], ["a"], False),
        (TCP, there({"a": 0}), wanted("a"), ["set destination a 1"], [], False),
        (TCP, there({"a": 3}), wanted("a"), ["set destination a 1"], [], False),
        (TCP, there({"a": 1}), wanted("a", scheduler="lc"), ["set server"], [], False),
        (TCP, there({"a": 1}), wanted("a", affinity_s=60), ["set server"], [], False),
        (TCP, there({"a": 1}, ServerOptions("rr", 1, 60)), wanted("a", affinity_s=60), [], [], False),
        (TCP, there({"a": 1, "b": 0}), None, ["set destination a 0"], ["a", "b"], True),
        (TCP, there({}), None, ["delete server"], [], False),
        (UDP, there({"a": 1}), None, ["delete server"], [], False),
        (TCP, None, None, [], [], False),
    ],
)
def test_what_is_done(
    key: ServerKey,
    present: Present | None,
    server: VirtualServer | None,
    operations: list[str],
    leaving: list[str],
    gone: bool,
) -> None:
    decision = decide([(key, present, server)])
    assert [
        f"{each.verb.name.lower().replace('_', ' ')}"
        + (f" {each.destination[0]} {each.weight}" if each.destination else "")
        for each in decision.operations
    ] == operations
    assert {each.server for each in decision.operations} <= {key}
    assert decision.leaving == ({key: [(each, 8080) for each in leaving]} if leaving else {})
    assert decision.gone == ([key] if gone else [])


def test_destinations_that_other_schedulers_do_not_masquerade_are_set() -> None:
    direct = Present(RR, {("a", 8080): Destination(1, 0, 0, masquerades=False)})
    assert [each.verb.name for each in decide([(TCP, direct, wanted("a"))]).operations] == ["SET_DESTINATION"]


def test_what_is_new_comes_before_what_goes() -> None:
    decision = decide([(UDP, there({"a": 1}), None), (TCP, None, wanted("a"))])
    assert [each.verb.name for each in decision.operations] == ["NEW_SERVER", "NEW_DESTINATION", "DELETE_SERVER"]


def test_what_was_wanted_is_there_then() -> None:
    assert present_of(None) is None
    assert present_of(wanted("a", affinity_s=60)) == there({"a": 1}, ServerOptions("rr", 1, 60))
