"""What a change touches: the answers that may have become wrong, by subject."""

from ipaddress import ip_address

import pytest
from cluster_objects import endpoint_slice, pod, service

from kdns.answers.response import Subject
from kdns.cluster.objects import Endpoint, EndpointSlice, Meta, Namespace, Object, ServiceImport, SliceLabels, SliceMeta
from kdns.cluster.state import Change, State
from kdns.plugins.sources.kubernetes.subjects import APEX, NAMESPACES, REVERSE, of_address, of_pod, of_service, touched


def ip(text: str) -> bytes:
    return ip_address(text).packed


WEB, DB = of_service(("shop", "web")), of_service(("shop", "db"))
EARLIER = (endpoint_slice("web-0", "web", "10.1.0.7"), endpoint_slice("db-0", "db", "10.1.0.8"))


@pytest.mark.parametrize(
    ("old", "new", "subjects"),
    [
        pytest.param(
            None, service("web", "10.0.0.1", "fd00::1"),
            {WEB, REVERSE, of_address(ip("10.0.0.1")), of_address(ip("fd00::1")), of_address(ip("10.1.0.7"))},
            id="a Service comes, and its endpoints have a name now",
        ),
        pytest.param(
            service("web", "10.0.0.1"), service("web", "10.0.0.2"),
            {WEB, REVERSE, of_address(ip("10.0.0.1")), of_address(ip("10.0.0.2")), of_address(ip("10.1.0.7"))},
            id="a Service moves",
        ),
        pytest.param(service("cache", "None"), None, {of_service(("shop", "cache")), REVERSE}, id="a Service goes"),
        pytest.param(
            endpoint_slice("s", "web", "10.1.0.1"), endpoint_slice("s", "db", Endpoint(("10.1.0.2", "10.1.0.3"))),
            {WEB, DB, REVERSE, *(of_address(ip(f"10.1.0.{number}")) for number in (1, 2, 3))},
            id="a slice changes hands",
        ),
        pytest.param(
            endpoint_slice("s", "web", Endpoint(("10.1.0.1", "10.1.0.2"))),
            endpoint_slice("s", "web", Endpoint(("10.1.0.1", "10.1.0.3"))),
            {WEB, REVERSE, *(of_address(ip(f"10.1.0.{number}")) for number in (1, 2, 3))},
            id="an endpoint changes: of all its addresses",
        ),
        pytest.param(
            endpoint_slice("s", "web", "10.1.0.1", "10.1.0.2", "10.1.0.4"),
            endpoint_slice("s", "web", "10.1.0.1", Endpoint(("10.1.0.2",), hostname="a"), "10.1.0.3"),
            {WEB, REVERSE, *(of_address(ip(f"10.1.0.{number}")) for number in (2, 3, 4))},
            id="an endpoint stays, one is renamed, one moves",
        ),
        pytest.param(
            endpoint_slice("s", "web", "10.1.0.1"), endpoint_slice("s", "db", "10.1.0.1"),
            {WEB, DB, REVERSE, of_address(ip("10.1.0.1"))},
            id="a slice changes hands, its endpoint stays",
        ),
        pytest.param(None, ServiceImport(Meta("web", "shop")), {WEB}, id="a ServiceImport comes"),
        pytest.param(
            None, EndpointSlice(SliceMeta("s", "shop", SliceLabels(import_name="db"))), {DB, REVERSE},
            id="a slice of a ServiceImport",
        ),
        pytest.param(
            None, endpoint_slice("s", "", "10.1.0.1"), {REVERSE, of_address(ip("10.1.0.1"))}, id="a slice of nobody"
        ),
        pytest.param(endpoint_slice("s", "web"), None, {WEB, REVERSE}, id="an empty slice"),
        pytest.param(None, pod("p", "10.2.0.1"), {of_pod(ip("10.2.0.1"))}, id="a pod"),
        pytest.param(
            pod("p", "10.2.0.1"), pod("p", "10.2.0.1", phase="Failed"), {of_pod(ip("10.2.0.1"))}, id="a pod that failed"
        ),
        pytest.param(None, pod("p", phase="Pending"), set(), id="a pod without an address"),
        pytest.param(None, Namespace(Meta("shop")), {NAMESPACES}, id="a namespace comes"),
        pytest.param(Namespace(Meta("shop")), None, {NAMESPACES}, id="a namespace goes"),
    ],
)  # fmt: skip
def test_touched(old: Object | None, new: Object | None, subjects: set[Subject]) -> None:
    state = State()
    for one in (*EARLIER, old):
        if one:
            state.upsert(one)
    key = (old or new or EARLIER[0]).key
    change = state.upsert(new) if new else state.delete(type(old or EARLIER[0]), key)
    assert isinstance(change, Change)
    assert set(touched(change, state)) == {APEX} | subjects
