"""Rules that send a cluster IP's packets to endpoints, in several shapes: kdns's own, one rule by hand, kube-proxy's.

A shape is text for one program that reads it from its standard input. Where that is `kdns proxy` it runs on: relays
are a process, and virtual servers have no text that a program loads.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from _kube_proxy_rules import kube_proxy_iptables, kube_proxy_nftables
from _vip_services import AFFINITY_S, ENDPOINTS, PORT, RANGES, TARGET_PORT, Service, Setting

from kdns.cluster.objects import EndpointSlice
from kdns.cluster.objects import Service as KubernetesService
from kdns.cluster.watch import RESOURCES
from kdns.net import FAMILIES, Family
from kdns.proxy.iptables.base_chains import JUMPS, Features
from kdns.proxy.iptables.mode import IPTABLES
from kdns.proxy.iptables.tables import Tables
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.nftables.objects import NFT_FAMILY
from kdns.proxy.nftables.table import Table
from kdns.proxy.plan.config import LocalPods, NodeView, ProxyConfig
from kdns.proxy.plan.plan import FamilyPlan
from kdns.proxy.plan.planner import plan
from kdns.proxy.plan.semantics import Semantics
from kdns.proxy.plan.state import ProxyState
from kdns.proxy.xtables.rules import inserted
from kdns.runtime.process import gc_paused

CHAINS_PER_SECTION: Final = {"nft": 2000, "legacy": 0}
"""As `kdns proxy` has it."""


def by_hand(given: Setting) -> Iterator[str]:
    """What one would write for this one Service and no other."""
    asked, ip = given.asked, NFT_FAMILY[given.family]
    yield f"table {ip} by-hand {{\n\tchain prerouting {{\n\t\ttype nat hook prerouting priority -100;"
    places = ", ".join(f"{number} : {address}" for number, address in enumerate(asked.endpoints))
    for protocol in asked.protocols:
        to = f"numgen random mod {ENDPOINTS} map {{ {places} }} : {TARGET_PORT}"
        yield f"\t\t{ip} daddr {asked.vip} {protocol} dport {PORT} dnat to {to}"
    yield "\t}\n}"


def kdns_nftables(given: Setting) -> Iterator[str]:
    """What `kdns proxy` writes in mode nftables."""
    yield Table(_half(given, NFTABLES)).whole()


def kdns_iptables(given: Setting, chains_per_section: int) -> Iterator[str]:
    """What it writes in mode iptables, and the jumps."""
    tables = Tables(_half(given, IPTABLES), Features(chains_per_section=chains_per_section))
    yield tables.whole({}).rstrip("\n")
    yield from inserted(JUMPS).splitlines()


def _half(given: Setting, mode: Semantics) -> FamilyPlan:
    ranges, state = RANGES[given.family], ProxyState()
    pods, services = ip_network(ranges.pods), ip_network(ranges.services)
    config = ProxyConfig(mode=mode, local_pods=LocalPods((pods,)), service_cidrs=(services,))
    with gc_paused():
        for service in given.services:
            obj, endpoint_slice = (msgspec.Raw(json.dumps(each)) for each in objects(service, given.family))
            state.upsert(RESOURCES[KubernetesService].decode(obj))
            state.upsert(RESOURCES[EndpointSlice].decode(endpoint_slice))
        return plan(state, NodeView(), config).of(given.family)


def objects(service: Service, family: Family) -> tuple[dict[str, Any], dict[str, Any]]:
    """The Service and its EndpointSlice."""
    metadata = {"name": service.name, "namespace": "bench", "labels": {"kubernetes.io/service-name": service.name}}
    ports = [{"name": protocol, "protocol": protocol.upper()} for protocol in service.protocols]
    spec = {
        "type": "ClusterIP",
        "clusterIP": service.vip,
        "clusterIPs": [service.vip],
        "ipFamilies": [family],
        "ports": [port | {"port": PORT, "targetPort": TARGET_PORT} for port in ports],
        "sessionAffinity": "ClientIP" if service.affinity else "None",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": AFFINITY_S}} if service.affinity else None,
    }
    endpoint_slice = {
        "metadata": metadata,
        "addressType": family,
        "endpoints": [{"addresses": [endpoint], "conditions": {"ready": True}} for endpoint in service.endpoints],
        "ports": [port | {"port": TARGET_PORT} for port in ports],
    }
    return {"metadata": metadata, "spec": spec}, endpoint_slice


class Shape(NamedTuple):
    """A way to write the rules, and the program that reads them, by family. One that `serves` has to run on."""

    name: str
    text: Callable[[Setting], Iterator[str]]
    argv: Mapping[Family, tuple[str, ...]]
    package: str
    has_affinity: bool = True
    serves: bool = False


def _restores(backend: str) -> Mapping[Family, tuple[str, ...]]:
    return {
        "IPv4": (f"iptables-{backend}-restore", "--noflush"),
        "IPv6": (f"ip6tables-{backend}-restore", "--noflush"),
    }


def _objects(given: Setting) -> Iterator[str]:
    yield from (json.dumps(objects(service, given.family)) for service in given.services)


def _served(mode: str, package: str) -> Shape:
    argv: Mapping[Family, tuple[str, ...]] = {family: (sys.executable, PROXY, mode, family) for family in FAMILIES}
    return Shape(f"kdns, {mode}", _objects, argv, package, serves=True)


PROXY: Final = str(Path(__file__).with_name("_vip_proxy.py"))
_NFT: Final[Mapping[Family, tuple[str, ...]]] = {"IPv4": ("nft", "-f", "-"), "IPv6": ("nft", "-f", "-")}
SHAPES: Final = {
    shape.name: shape
    for shape in (
        Shape("one dnat rule by hand", by_hand, _NFT, "nftables", has_affinity=False),
        Shape("kdns, nftables", kdns_nftables, _NFT, "nftables"),
        Shape("shape of kube-proxy's nftables", kube_proxy_nftables, _NFT, "nftables"),
        *(
            shape
            for backend in ("nft", "legacy")
            for shape in (
                Shape(
                    f"kdns, iptables-{backend}",
                    partial(kdns_iptables, chains_per_section=CHAINS_PER_SECTION[backend]),
                    _restores(backend),
                    "iptables",
                ),
                Shape(
                    f"shape of kube-proxy's iptables, {backend}",
                    kube_proxy_iptables,
                    _restores(backend),
                    "iptables",
                ),
            )
        ),
        _served("userspace", "nftables"),
        _served("ipvs", "ipset"),
    )
}
