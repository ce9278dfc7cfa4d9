"""No cache keeps a client's text of any length: what is too long to be valid is not looked up."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from served_kinds import CATALOGUE

from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, POD, SERVICE
from kdns.controlplane.controllers.events import AggregateKey, aggregate_key
from kdns.controlplane.controllers.reconciler import Event
from kdns.controlplane.endpoints.pod_endpoints import addresses_in
from kdns.controlplane.fieldmanager.ownership import all_paths, path_element
from kdns.controlplane.schema.schema import field_at, object_of
from kdns.controlplane.server.representation import Renderer, Representation
from kdns.controlplane.storage.store import WatchEvent, stored_object_of
from kdns.dns.names import labels_of
from kdns.net import parse_address

TEXTS, CHARACTERS = 20, 100_000

containers = field_at(POD, "spec.containers")
events: dict[AggregateKey, None] = {}


def watched(text: str) -> bytes:
    obj = {"metadata": {"name": "a", "annotations": {"a": text}}}
    event = WatchEvent("ADDED", stored_object_of(CONFIG_MAP, ("default", "a"), obj, 1))
    return Renderer(CATALOGUE, CONFIG_MAP, Representation(form="Table")).event(event, 0.0, first=True)


def recorded(text: str) -> None:
    notice = Event(SERVICE, {"metadata": {"name": "a", "uid": text[:6]}}, "Normal", "Why", text)
    events[aggregate_key(notice, "a-controller")] = None


@pytest.mark.parametrize(
    "function",
    [
        formats.dns_label,
        formats.dns_label_1035,
        formats.dns_subdomain,
        formats.label_value,
        formats.qualified_name,
        lambda text: formats.qualified_name(f"{text}/{text}"),
        formats.config_key,
        formats.ip_problems,
        formats.cidr_problems,
        parse_address,
        labels_of,
        lambda text: addresses_in({"status": {"podIP": text, "podIPs": [{"ip": text}]}}, "IPv4"),
        lambda text: path_element(containers, {"name": text}),
        lambda text: all_paths(object_of(POD), {text: 1, "spec": {"containers": [{"name": "a", text: 1}]}}),
        recorded,
        watched,
    ],
)
def test_long_texts_are_not_kept(function: Callable[[str], Any]) -> None:
    function("0" * CHARACTERS)  # what is made at the first call
    tracemalloc.start()
    try:
        for number in range(TEXTS):
            function(f"{number:06}" + "a" * CHARACTERS)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < TEXTS * CHARACTERS / 4
