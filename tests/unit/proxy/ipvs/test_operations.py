"""The operations that lead from existing virtual servers to desired ones, as rows."""

from collections.abc import Mapping

import pytest

from kdns.netlink.ipvs import Destination, ServerOptions, VirtualServer, VirtualServerKey
from kdns.proxy.ipvs.draining import Draining

TCP = VirtualServerKey("10.96.0.1", 80, "TCP")
UDP = VirtualServerKey("10.96.0.1", 53, "UDP")
RR = ServerOptions("rr")


def desired_server(*endpoints: str, scheduler: str = "rr", affinity_s: int = 0) -> VirtualServer:
    options = ServerOptions(scheduler, 1 if affinity_s else 0, affinity_s)
    return existing(dict.fromkeys(endpoints, 1), options)


def existing(endpoints: Mapping[str, int], options: ServerOptions = RR) -> VirtualServer:
    return VirtualServer(options, {(each, 8080): Destination(weight) for each, weight in endpoints.items()})


@pytest.mark.parametrize(
    ("key", "present", "desired", "operations", "drained", "obsolete"),
    [
        (TCP, None, desired_server("a", "b"), ["new server", "new destination a 1", "new destination b 1"], [], False),
        (TCP, None, desired_server(), ["new server"], [], False),
        (TCP, existing({"a": 1}), desired_server("a"), [], [], False),
        (TCP, existing({"a": 1}), desired_server("a", "b"), ["new destination b 1"], [], False),
        (TCP, existing({"a": 1}), desired_server("b"), ["new destination b 1", "set destination a 0"], ["a"], False),
        (UDP, existing({"a": 1}), desired_server("b"), ["new destination b 1", "delete destination a 0"], [], False),
        (TCP, existing({"a": 0, "b": 1}), desired_server("b"), [], ["a"], False),
        (TCP, existing({"a": 0}), desired_server("a"), ["set destination a 1"], [], False),
        (TCP, existing({"a": 3}), desired_server("a"), ["set destination a 1"], [], False),
        (TCP, existing({"a": 1}), desired_server("a", scheduler="lc"), ["set server"], [], False),
        (TCP, existing({"a": 1}), desired_server("a", affinity_s=60), ["set server"], [], False),
        (TCP, existing({"a": 1}, ServerOptions("rr", 1, 60)), desired_server("a", affinity_s=60), [], [], False),
        (TCP, existing({"a": 1, "b": 0}), None, ["set destination a 0"], ["a", "b"], True),
        (TCP, existing({}), None, ["delete server"], [], False),
        (UDP, existing({"a": 1}), None, ["delete server"], [], False),
        (TCP, None, None, [], [], False),
    ],
)
def test_operations(
    key: VirtualServerKey,
    present: VirtualServer | None,
    desired: VirtualServer | None,
    operations: list[str],
    drained: list[str],
    obsolete: bool,
) -> None:
    draining = Draining()
    changes = draining.change([(key, present, desired)], 0.0)
    assert [
        f"{change.verb.name.lower().replace('_', ' ')}"
        + (f" {change.destination[0]} {change.weight}" if change.destination else "")
        for change in changes
    ] == operations
    assert {change.server for change in changes} <= {key}
    assert draining.servers == ([key] if drained else [])
    assert len(draining) == len(drained)
    assert draining.addresses == ({key.address} if obsolete else set())


def test_destinations_that_other_schedulers_do_not_masquerade_are_set() -> None:
    direct = VirtualServer(RR, {("a", 8080): Destination(masquerades=False)})
    changes = Draining().change([(TCP, direct, desired_server("a"))], 0.0)
    assert [change.verb.name for change in changes] == ["SET_DESTINATION"]


def test_additions_come_before_removals() -> None:
    changes = Draining().change([(UDP, existing({"a": 1}), None), (TCP, None, desired_server("a"))], 0.0)
    assert [change.verb.name for change in changes] == ["NEW_SERVER", "NEW_DESTINATION", "DELETE_SERVER"]
