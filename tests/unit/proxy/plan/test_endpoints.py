"""Which rows of EndpointSlices become endpoints."""

import pytest

from kdns.cluster.objects import Conditions, Endpoint, EndpointPort, EndpointSlice, SliceMeta
from kdns.proxy.plan.endpoints import candidates


@pytest.mark.parametrize(
    ("port", "is_used"),
    [(None, False), (-1, False), (0, False), (1, True), (65535, True), (65536, False), (70000, False)],
)
def test_only_port_numbers_that_a_packet_can_have(port: int | None, *, is_used: bool) -> None:
    row = EndpointSlice(SliceMeta("s", "shop"), "IPv4", (Endpoint(("10.1.0.1",)),), (EndpointPort("p", port),))
    found = candidates([row], "IPv4", "p", "TCP", "here")
    assert [(each.endpoint.address, each.endpoint.port) for each in found] == ([("10.1.0.1", port)] if is_used else [])


@pytest.mark.parametrize("is_first", [True, False])
def test_of_an_address_in_two_slices_the_one_that_is_not_terminating_counts(*, is_first: bool) -> None:
    leaving = Endpoint(("10.1.0.1",), Conditions(ready=False, serving=True, terminating=True))
    port = (EndpointPort("p", 80),)
    rows = [EndpointSlice(SliceMeta("a", "shop"), "IPv4", (leaving,), port)]
    rows.insert(is_first, EndpointSlice(SliceMeta("b", "shop"), "IPv4", (Endpoint(("10.1.0.1",)),), port))
    (found,) = candidates(rows, "IPv4", "p", "TCP", "here")
    assert (found.is_ready, found.is_terminating) == (True, False)
