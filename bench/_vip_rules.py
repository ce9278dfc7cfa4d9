"""Rules that send a cluster IP's packets to endpoints, in several shapes: kdns's own, one rule by hand, kube-proxy's.

Each shape is text for one program that reads it from its standard input.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_network
from typing import Any, Final, NamedTuple

import msgspec
from _kube_proxy_rules import kube_proxy_iptables, kube_proxy_nftables
from _vip_services import AFFINITY_S, ENDPOINTS, PORT, RANGES, TARGET_PORT, Service, Setting

from kdns.aio.process import gc_paused
from kdns.cluster.objects import EndpointSlice
from kdns.cluster.objects import Service as KubernetesService
from kdns.cluster.watch import RESOURCES
from kdns.net import Family
from kdns.proxy.nftables.objects import NFT_FAMILY
from kdns.proxy.nftables.table import Table
from kdns.proxy.plan.config import LocalPods, NodeView, ProxyConfig
from kdns.proxy.plan.planner import plan
from kdns.proxy.plan.state import ProxyState


def by_hand(given: Setting) -> Iterator[str]:
    """What one would write for this one Service and no other."""
    asked, ip = given.asked, NFT_FAMILY[given.family]
    yield f"table {ip} by-hand {{\n\tchain prerouting {{\n\t\ttype nat hook prerouting priority -100;"
    places = ", ".join(f"{number} : {address}" for number, address in enumerate(asked.endpoints))
    for protocol in asked.protocols:
        to = f"numgen random mod {ENDPOINTS} map {{ {places} }} : {TARGET_PORT}"
        yield f"\t\t{ip} daddr {asked.vip} {protocol} dport {PORT} dnat to {to}"
    yield "\t}\n}"


def kdns(given: Setting) -> Iterator[str]:
    """What `kdns proxy` writes."""
    ranges, state = RANGES[given.family], ProxyState()
    pods, services = ip_network(ranges.pods), ip_network(ranges.services)
    config = ProxyConfig(local_pods=LocalPods((pods,)), service_cidrs=(services,))
    with gc_paused():
        for service in given.services:
            obj, endpoint_slice = (msgspec.Raw(json.dumps(each)) for each in _objects(service, given.family))
            state.upsert(RESOURCES[KubernetesService].decode(obj))
            state.upsert(RESOURCES[EndpointSlice].decode(endpoint_slice))
        yield Table(plan(state, NodeView(), config).of(given.family)).whole()


def _objects(service: Service, family: Family) -> tuple[dict[str, Any], dict[str, Any]]:
    metadata = {"name": service.name, "namespace": "bench", "labels": {"kubernetes.io/service-name": service.name}}
    ports = [{"name": each, "protocol": each.upper()} for each in service.protocols]
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
        "endpoints": [{"addresses": [each], "conditions": {"ready": True}} for each in service.endpoints],
        "ports": [port | {"port": TARGET_PORT} for port in ports],
    }
    return {"metadata": metadata, "spec": spec}, endpoint_slice


class Shape(NamedTuple):
    """A way to write the rules, and the program that reads them, by family."""

    name: str
    text: Callable[[Setting], Iterator[str]]
    argv: Mapping[Family, tuple[str, ...]]
    package: str
    has_affinity: bool = True


_NFT: Final[Mapping[Family, tuple[str, ...]]] = {"IPv4": ("nft", "-f", "-"), "IPv6": ("nft", "-f", "-")}
SHAPES: Final = (
    Shape("one dnat rule by hand", by_hand, _NFT, "nftables", has_affinity=False),
    Shape("kdns", kdns, _NFT, "nftables"),
    Shape("shape of kube-proxy's nftables", kube_proxy_nftables, _NFT, "nftables"),
    Shape(
        "shape of kube-proxy's iptables",
        kube_proxy_iptables,
        {"IPv4": ("iptables-restore",), "IPv6": ("ip6tables-restore",)},
        "iptables",
    ),
)
