"""The table of Services: which rows, in which order, on which page, and the page of one."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from kdns.cluster.objects import EndpointSlice, Key, Service
from kdns.cluster.state import State
from kdns.plugins.sources.kubernetes.options import Options
from kdns.status.io.services import matching_keys
from kdns.status.names import questions
from kdns.status.page import Link
from kdns.status.services import PAGE_ROWS, Search, endpoints_table, facts, ready_text, row, service_path, table

ZONES = Options(("cluster.local.", "10.in-addr.arpa."))


def service(key: str, **spec: Any) -> Service:
    namespace, _, name = key.partition("/")
    ingress = spec.pop("ingress", ())
    status = {"loadBalancer": {"ingress": ingress}}
    addresses = {"clusterIPs": [spec["clusterIP"]]} if "clusterIP" in spec else {}
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": namespace}, "spec": {**addresses, **spec}, "status": status}, Service
    )


def endpoint_slice(key: str, *ends: str, family: str = "IPv4") -> EndpointSlice:
    """An end is an address, and words: unready, terminating, serving; node=N, pod=P."""
    namespace, _, name = key.partition("/")
    return msgspec.convert(
        {
            "metadata": {
                "name": f"{name}-{family}-{len(ends)}",
                "namespace": namespace,
                "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": family,
            "endpoints": [*_endpoints(namespace, ends)],
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        },
        EndpointSlice,
    )


def _endpoints(namespace: str, ends: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for end in ends:
        address, *words = end.split()
        named = dict(word.split("=") for word in words if "=" in word)
        yield {
            "addresses": [address],
            "conditions": {
                "ready": not {"unready", "terminating"} & {*words},
                "serving": "serving" in words,
                "terminating": "terminating" in words,
            },
            **({"nodeName": named["node"]} if "node" in named else {}),
            **({"targetRef": {"kind": "Pod", "name": named["pod"], "namespace": namespace}} if "pod" in named else {}),
        }


ENDPOINTS_OF_DB = ", 10-1-0-4.db.shop.svc A, fd00--1.db.shop.svc AAAA"
STATE = State()
for known in (
    service("shop/web", clusterIP="10.96.0.1", ports=[{"port": 80, "name": "http"}, {"port": 53, "protocol": "UDP"}]),
    service("shop/db", clusterIP="None", ports=[{"port": 5432, "name": "sql"}]),
    service("shop-old/web", type="ExternalName", externalName="web.example.org"),
    service(
        "edge/gate",
        type="LoadBalancer",
        clusterIP="10.96.0.2",
        externalIPs=["192.0.2.7"],
        ports=[{"port": 443, "nodePort": 30443}],
        ingress=[{"ip": "192.0.2.8"}, {"hostname": "LB.example.org"}],
    ),
):
    STATE.upsert(known)
for known_slice in (
    endpoint_slice("shop/web", "10.1.0.1 node=n1 pod=web-a", "10.1.0.2 unready", "10.1.0.3 terminating serving"),
    endpoint_slice("shop/db", "10.1.0.4"),
    endpoint_slice("shop/db", "fd00::1", "fd00::2 terminating", family="IPv6"),
):
    STATE.upsert(known_slice)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", ["edge/gate", "shop/db", "shop/web", "shop-old/web"]),
        ("web", ["shop/web", "shop-old/web"]),
        ("shop/", ["shop/db", "shop/web"]),
        ("SHOP/ headless", ["shop/db"]),
        ("10.96.0", ["edge/gate", "shop/web"]),
        ("192.0.2.8", ["edge/gate"]),
        ("lb.example", ["edge/gate"]),
        ("53/udp", ["shop/web"]),
        (":30443", ["edge/gate"]),
        ("externalname", ["shop-old/web"]),
        ("nothing", []),
        ("<script>", []),
    ],
)
async def test_the_filter(text: str, keys: list[str]) -> None:
    """Ordered by namespace, then name, as kubectl does: `shop` comes before `shop-old`."""
    assert ["/".join(key) for key in await matching_keys(STATE, STATE.services, Search(text))] == keys


@pytest.mark.parametrize(
    ("key", "cells"),
    [
        (("shop", "web"), ("ClusterIP", "10.96.0.1", "80/TCP, 53/UDP", "1 of 3", "it is idle")),
        (("shop", "db"), ("headless", "", "5432/TCP", "IPv4 1 of 1, IPv6 1 of 2", "it is idle")),
        (("shop-old", "web"), ("ExternalName", "web.example.org", "", "", "it is idle")),
        (
            ("edge", "gate"),
            (
                "LoadBalancer",
                "10.96.0.2, 192.0.2.7, 192.0.2.8, LB.example.org",
                "443:30443/TCP",
                "0 of 0",
                "it is idle",
            ),
        ),
    ],
)
def test_rows(key: Key, cells: tuple[str, ...]) -> None:
    name, *others = row(STATE, STATE.services[key], "it is idle")
    assert name == Link("/".join(key), service_path(key))
    assert tuple(others) == cells


def test_a_dual_stack_service_has_one_number_where_its_families_agree() -> None:
    state = State()
    state.upsert(service("a/b", clusterIP="10.96.0.1"))
    state.upsert(endpoint_slice("a/b", "10.1.0.1", "10.1.0.2 unready"))
    state.upsert(endpoint_slice("a/b", "fd00::1", "fd00::2 unready", family="IPv6"))
    assert ready_text(state, state.services["a", "b"]) == "1 of 2"


@pytest.mark.parametrize(
    ("page", "count", "links"),
    [
        (1, 0, ""),
        (1, PAGE_ROWS, ""),
        (1, PAGE_ROWS + 1, "[1] 2 Next"),
        (2, PAGE_ROWS + 1, "Previous 1 [2]"),
        (50, 10_000, "Previous 1 49 [50] 51 100 Next"),
        (100, 10_000, "Previous 1 99 [100]"),
    ],
)
def test_pages(page: int, count: int, links: str) -> None:
    shown = table(Search("web", page), [("row",)], page, count)
    assert " ".join(f"[{link.text}]" if link.is_current else link.text for link in shown.pages) == links
    assert all(link.path.startswith("/status/services?filter=web") for link in shown.pages)


@pytest.mark.parametrize(
    ("asked", "page", "cluster"),
    [
        (("2", "1"), 2, 1),
        (("", ""), 1, 0),
        (("-1", "-1"), 1, 0),
        (("0", "x"), 0, 0),
        (("9" * 300, "9" * 300), 1, 0),
        (("٣", "²"), 1, 0),
    ],
)
def test_numbers_of_a_query_string(asked: tuple[str, str], page: int, cluster: int) -> None:
    search = Search.of("", asked[0], "", asked[1])
    assert (search.page, search.cluster) == (page, cluster)


def test_links_keep_what_is_searched_for() -> None:
    search = Search("a&b=<c>", 3, is_wrong=True, cluster=1)
    assert search.path(4) == "/status/services?filter=a%26b%3D%3Cc%3E&page=4&problems=only&cluster=1"
    form = search.form()
    assert [(link.text, link.is_current) for link in form.links] == [("All", False), ("With problems", True)]
    assert form.links[0].path == "/status/services?filter=a%26b%3D%3Cc%3E&cluster=1"
    assert form.hidden == (("problems", "only"), ("cluster", "1"))
    assert service_path(("shop", "<a&b=c>"), 1) == "/status/service?namespace=shop&name=%3Ca%26b%3Dc%3E&cluster=1"


def test_endpoints_without_columns_that_none_has() -> None:
    shown = endpoints_table(STATE, ("shop", "web"))
    assert shown.heads == ("Address", "State", "Pod", "Node")
    assert [*shown.rows] == [
        ("10.1.0.1", "ready", "web-a", "n1"),
        ("10.1.0.2", "not ready", "", ""),
        ("10.1.0.3", "terminating, still serves", "", ""),
    ]
    assert endpoints_table(STATE, ("edge", "gate")).rows == []


def test_of_many_endpoints_the_first_are_shown() -> None:
    state = State()
    state.upsert(endpoint_slice("a/b", *(f"10.1.{number // 250}.{number % 250}" for number in range(1000))))
    shown = endpoints_table(state, ("a", "b"))
    assert (len(shown.rows), shown.caption) == (PAGE_ROWS, f"{PAGE_ROWS} of 1,000 endpoints")


def test_facts_are_those_that_differ_from_the_defaults() -> None:
    assert [*facts(STATE, STATE.services["shop", "web"])] == [
        ("Type", "ClusterIP"),
        ("Addresses", "10.96.0.1"),
        ("Ports", "http 80/TCP, 53/UDP"),
        ("Ready endpoints", "1 of 3"),
    ]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (("shop", "web"), "web.shop.svc A, _http._tcp.web.shop.svc SRV, 1.0.96.10.in-addr.arpa. PTR"),
        (("shop", "db"), "db.shop.svc A, db.shop.svc AAAA, _http._tcp.db.shop.svc SRV" + ENDPOINTS_OF_DB),
        (("shop-old", "web"), "web.shop-old.svc CNAME"),
        (("edge", "gate"), "gate.edge.svc A, 2.0.96.10.in-addr.arpa. PTR"),
    ],
)
def test_names_worth_a_question(key: Key, expected: str) -> None:
    asked = [
        (name.removesuffix(".cluster.local."), qtype) for name, qtype in questions(STATE, STATE.services[key], ZONES)
    ]
    assert ", ".join(map(" ".join, asked)) == expected
    without_reverse = [*questions(STATE, STATE.services[key], Options(("cluster.local.",)))]
    assert "PTR" not in {qtype for _, qtype in without_reverse}
