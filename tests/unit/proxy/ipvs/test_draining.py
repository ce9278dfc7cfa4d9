"""Endpoints in use that end: when they are deleted, as scripts of what the kernel shows."""

from kdns.netlink.ipvs import Destination, DestinationKey, ServerOptions, VirtualServer, VirtualServerKey
from kdns.proxy.ipvs.draining import DRAIN_S, Draining

WEB = VirtualServerKey("10.96.0.1", 80, "TCP")
API = VirtualServerKey("10.96.0.2", 443, "TCP")
A, B = ("10.0.0.1", 8080), ("10.0.0.2", 8080)


def found(active: int = 0, inactive: int = 0, weight: int = 0) -> Destination:
    return Destination(weight, active, inactive)


def server(*names: DestinationKey) -> VirtualServer:
    return VirtualServer(ServerOptions("rr"), {name: Destination() for name in names})


def due(
    draining: Draining, existing: dict[VirtualServerKey, dict[DestinationKey, Destination]], now_s: float = 0.0
) -> list[str]:
    return [str(each) for each in draining.due(existing, now_s)]


def test_a_destination_goes_when_its_last_connection_is_gone() -> None:
    draining = Draining()
    draining.change([(WEB, server(A, B), server())], 0.0)
    assert (draining.servers, len(draining)) == ([WEB], 2)
    busy = {WEB: {A: found(active=1), B: found(inactive=2)}}
    assert due(draining, busy) == []
    assert due(draining, {WEB: {A: found(), B: found(inactive=1)}}) == [
        "delete destination 10.0.0.1:8080 of 10.96.0.1:80/TCP"
    ]
    assert len(draining) == 1
    assert due(draining, {WEB: {B: found(inactive=1)}}, now_s=1e9) == []
    assert due(draining, {WEB: {B: found()}}) == ["delete destination 10.0.0.2:8080 of 10.96.0.1:80/TCP"]
    assert draining.servers == []


def test_one_that_comes_back_is_left_alone() -> None:
    draining = Draining()
    draining.change([(WEB, server(A, B), None)], 0.0)
    draining.change([(WEB, None, server(A))], 0.0)
    assert draining.addresses == frozenset()
    assert due(draining, {WEB: {A: found(weight=1), B: found()}}, now_s=DRAIN_S) == [
        "delete destination 10.0.0.2:8080 of 10.96.0.1:80/TCP"
    ]
    draining.change([(WEB, server(A), server())], 0.0)
    draining.change([(WEB, None, server(A))], 0.0)
    assert draining.servers == []


def test_one_that_somebody_else_deleted_is_forgotten() -> None:
    draining = Draining()
    draining.change([(WEB, server(A), server())], 0.0)
    assert due(draining, {WEB: {B: found(weight=1)}}) == []
    assert draining.servers == []


def test_a_virtual_server_goes_with_its_last_connection() -> None:
    draining = Draining()
    draining.change([(WEB, server(A), None), (API, server(B), None)], 0.0)
    assert draining.addresses == {"10.96.0.1", "10.96.0.2"}
    assert due(draining, {WEB: {A: found(active=1)}, API: {B: found()}}) == ["delete server 10.96.0.2:443/TCP"]
    assert draining.addresses == {"10.96.0.1"}
    assert due(draining, {WEB: {A: found()}}) == ["delete server 10.96.0.1:80/TCP"]
    assert (draining.addresses, draining.servers) == (frozenset(), [])


def test_a_virtual_server_does_not_wait_for_ever() -> None:
    draining = Draining()
    draining.change([(WEB, server(A), None)], 100.0)
    busy = {WEB: {A: found(active=1)}}
    assert due(draining, busy, now_s=99.0 + DRAIN_S) == []
    draining.change([(WEB, server(A), None)], 99.0 + DRAIN_S)
    assert due(draining, busy, now_s=100.0 + DRAIN_S) == ["delete server 10.96.0.1:80/TCP"]


def test_a_full_sync_gives_no_more_time() -> None:
    draining = Draining()
    draining.change([(WEB, server(A), None), (API, server(A), None)], 0.0)
    draining.restart([(WEB, server(A), None)], 500.0)
    assert draining.servers == [WEB]
    assert draining.addresses == {"10.96.0.1"}
    assert due(draining, {WEB: {A: found(active=1)}}, now_s=DRAIN_S) == ["delete server 10.96.0.1:80/TCP"]
