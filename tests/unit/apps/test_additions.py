"""Servers of this machine as Services, from --add and from compose files."""

from pathlib import Path
from typing import Any

import pytest

from kdns.apps.additions import Addition, added, composed, manifests
from kdns.errors import InputError
from kdns.runtime.files.yaml import documents


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("web=127.0.0.1:8000", [Addition("default", "web", "127.0.0.1", 8000)]),
        ("web=localhost:8000", [Addition("default", "web", "127.0.0.1", 8000)]),
        ("web=0.0.0.0:8000", [Addition("default", "web", "127.0.0.1", 8000)]),
        ("shop/cart=[::1]:80", [Addition("shop", "cart", "::1", 80)]),
        (
            "cart=192.0.2.5:80,192.0.2.6:80",
            [Addition("default", "cart", "192.0.2.5", 80), Addition("default", "cart", "192.0.2.6", 80)],
        ),
    ],
)
def test_what_is_added(text: str, found: list[Addition]) -> None:
    assert added([text]) == found


@pytest.mark.parametrize(
    "text",
    ["web", "web=", "web=8000", "web=example.org:80", "web=127.0.0.1:0", "web=127.0.0.1:70000", "Web=127.0.0.1:80",
     "a.b/web=127.0.0.1:80", "=127.0.0.1:80", "web=127.0.0.1:80,"],
)  # fmt: skip
def test_another_form_is_refused_with_the_right_one(text: str) -> None:
    with pytest.raises(InputError, match=r"--add '.*expected \[NAMESPACE/\]NAME=HOST:PORT"):
        added([text])


COMPOSE = """\
services:
  web:
    ports:
      - "${WEB_PORT:-8080}:80"
      - "$OTHER:81"
      - 3000
  my_db:
    ports:
      - {target: 5432, published: "5433"}
      - {target: 5432, published: 5434, protocol: udp, host_ip: "::"}
      - "127.0.0.1:9000-9001:9000-9001/udp"
      - "[::1]:7000:7000"
  worker: {image: x}
"""


def test_published_ports_of_a_compose_file(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE)
    assert [(each.name, each.address, each.port, each.protocol) for each in composed(file, {"OTHER": "8081"})] == [
        ("web", "127.0.0.1", 8080, "TCP"),
        ("web", "127.0.0.1", 8081, "TCP"),
        ("my-db", "127.0.0.1", 5433, "TCP"),
        ("my-db", "::1", 5434, "UDP"),
        ("my-db", "127.0.0.1", 9000, "UDP"),
        ("my-db", "127.0.0.1", 9001, "UDP"),
        ("my-db", "::1", 7000, "TCP"),
    ]
    assert composed(file, {"OTHER": "8081", "WEB_PORT": "9"})[0].port == 9


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("version: 3", r"compose.yaml:1: expected a compose file, which has `services`"),
        ("services: {web: {ports: ['80:x']}}", r"services.web.ports: expected \[HOST:\]PUBLISHED.*, got '80:x'"),
        ("services: {web: {ports: ['0:80']}}", r"services.web.ports: expected"),
        ("services: {web: {ports: [{target: 80, published: 80, host_ip: 5}]}}", r"services.web.ports: expected"),
        ("services: {web: {ports: ['80:80/sctp']}}", r"services.web.ports: expected"),
        (
            "services: {web: {ports: ['1-65535:1-65535']}}",
            r"services.web.ports: expected a range of at most 1000 ports",
        ),
        ("services: {9web: {ports: ['80:80']}}", r"services.9web.ports: the service's name as a Service's, '9web'"),
    ],
)
def test_a_compose_file_with_mistakes(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=why):
        composed(file, {})


def objects(*texts: str, has_relays: bool = False, has_proxy: bool = False) -> list[dict[str, Any]]:
    text = manifests(added(texts), has_relays=has_relays, has_proxy=has_proxy)
    return [document.value for document in documents("added", text)]


def test_a_service_and_its_slices() -> None:
    service, *slices = objects("web=127.0.0.1:8000,[::1]:8000,127.0.0.1:8001")
    assert service["spec"] == {
        "clusterIP": "None",
        "ipFamilies": ["IPv4", "IPv6"],
        "ipFamilyPolicy": "RequireDualStack",
        "ports": [
            {"name": "tcp-8000", "port": 8000, "protocol": "TCP"},
            {"name": "tcp-8001", "port": 8001, "protocol": "TCP"},
        ],
    }
    assert [
        (endpoint_slice["addressType"], endpoint_slice["endpoints"][0]["addresses"], endpoint_slice["ports"][0]["port"])
        for endpoint_slice in slices
    ] == [
        ("IPv4", ["127.0.0.1"], 8000),
        ("IPv6", ["::1"], 8000),
        ("IPv4", ["127.0.0.1"], 8001),
    ]
    assert len({endpoint_slice["metadata"]["name"] for endpoint_slice in slices}) == 3


@pytest.mark.parametrize(
    ("server", "has_relays", "has_proxy", "is_virtual"),
    [
        ("127.0.0.1:80", False, False, False),
        ("127.0.0.1:80", False, True, False),
        ("127.0.0.1:80", True, True, True),
        ("192.0.2.5:80", False, False, False),
        ("192.0.2.5:80", False, True, True),
    ],
)
def test_a_cluster_ip_where_the_dataplane_reaches_the_server(
    server: str, has_relays: bool, has_proxy: bool, is_virtual: bool
) -> None:
    service, _ = objects(f"web={server}", has_relays=has_relays, has_proxy=has_proxy)
    assert ("clusterIP" not in service["spec"]) == is_virtual


def test_namespaces_are_made_first() -> None:
    first, *_ = objects("web=127.0.0.1:80", "shop/cart=127.0.0.1:81", "shop/till=127.0.0.1:82")
    assert first == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
