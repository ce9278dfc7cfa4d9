"""The ways of packets to a Service: to each of its destinations, from each kind of client with a way of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address, ip_network
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import urlencode

from kdns.cluster.objects import Service
from kdns.cluster.readiness import and_
from kdns.net import FAMILIES, VERSION, Address, Network, join_host_port, parse_address
from kdns.proxy.plan.config import NodeView
from kdns.proxy.plan.plan import FamilyPlan, Plan, PortName
from kdns.proxy.trace.text import FATES
from kdns.proxy.trace.trace import Packet, Trace, trace
from kdns.status.page import Cell, Link

HEADS: Final = ("To", "As", "From", "Way")
DESTINATIONS_MAX: Final = 30
HOSTS_MAX: Final = 16
ELSEWHERE: Final = {"IPv4": ip_network("192.0.2.0/24"), "IPv6": ip_network("2001:db8::/32")}
"""Where nobody is (RFC 5737, RFC 3849)."""


class Client(NamedTuple):
    """A kind of client in words, and one such."""

    who: str
    address: Address
    interface: str = ""


def ways(plan: Plan, service: Service, trace_path: str) -> Iterator[tuple[Cell, ...]]:
    """Yields rows of HEADS; the first cell leads to a trace of the packet at `trace_path`, "" for none."""
    names = [PortName(*service.key, port.name or "", port.protocol) for port in service.ports]
    fronts = (
        (family_plan, key, kind)
        for family_plan in map(plan.of, FAMILIES)
        for name in names
        if (port := family_plan.ports.get(name))
        for key, kind in port.fronts
    )
    for family_plan, key, kind in islice(fronts, DESTINATIONS_MAX):
        destination = parse_address(key.address) if key.address else _node_port_address(family_plan)
        if destination is None:
            yield str(key), kind.value, "", f"no {family_plan.family} address of this node has node ports"
            continue
        for whose, client, result in _results(
            plan, family_plan, Packet(destination, destination, key.protocol, key.port)
        ):
            is_own = result.front is not None and result.front.port.name[:2] == service.key
            reasons = result.reasons[1:] if is_own else result.reasons  # the first one says whose the front is
            to = f"{join_host_port(str(destination), key.port)}/{key.protocol}"
            query = urlencode({"from": str(client.address), "to": to})
            destination_cell = Link(to, f"{trace_path}?{query}") if trace_path else to
            way = "; ".join((FATES[result.fate], *reasons))
            yield destination_cell, kind.value, f"{whose}, such as {client.address}", way


def _results(plan: Plan, family_plan: FamilyPlan, packet: Packet) -> Iterator[tuple[str, Client, Trace]]:
    """Yields the clients that have the same way together."""
    alike: dict[object, list[tuple[Client, Trace]]] = {}
    for client in _clients(family_plan):
        result = trace(plan, replace(packet, source=client.address, interface=client.interface))
        way = result.fate, result.endpoints, result.masquerade, result.hairpins, result.on_node
        alike.setdefault(way, []).append((client, result))
    for results in alike.values():
        client, result = results[0]
        yield and_(client.who for client, _ in results), client, result


def _clients(family_plan: FamilyPlan) -> Iterator[Client]:
    node, pods, version = family_plan.node, family_plan.local_pods, VERSION[family_plan.family]
    elsewhere = _other_than(node, ELSEWHERE[family_plan.family])
    if pods:
        address = _other_than(node, pods.networks[0]) if pods.networks else elsewhere
        yield Client("Pods of this node", address, pods.bridge or pods.interface_prefix)
    yield Client("clients elsewhere", elsewhere)
    own = (address for address in (*node.primary, *node.addresses) if address.version == version)
    yield from (Client("this node", address) for address in islice(own, 1))


def _other_than(node: NodeView, network: Network) -> Address:
    """Returns an address of a network that the node does not have, if there is one."""
    addresses = (ip_address(int(network.network_address) + number) for number in range(1, HOSTS_MAX))
    return next((address for address in addresses if not node.has(address)), network.network_address)


def _node_port_address(family_plan: FamilyPlan) -> Address | None:
    node = family_plan.node
    return next((address for address in (*node.primary, *node.addresses) if address in family_plan.node_ports), None)
