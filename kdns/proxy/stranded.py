"""Endpoints that a client has no way to, whatever the rules say: some sources' packets do not leave the node."""

from __future__ import annotations

from typing import NamedTuple

from kdns.proxy.backends import Backend
from kdns.proxy.config import Address, is_link_local_ipv6
from kdns.proxy.plan import FamilyPlan


class Stranded(NamedTuple):
    """Those of the endpoints that are out of reach, and why; "" where it is none of them."""

    backends: tuple[Backend, ...] = ()
    why: str = ""


def stranded(half: FamilyPlan, source: Address, destination: Address, backends: tuple[Backend, ...]) -> Stranded:
    """What the kernel keeps from being reached: it decides by source address before, or after, the rules translate.

    Mode iptables has route_localnet set as long as its node ports are at 127.0.0.1; other modes leave it as it is.
    """
    if source.is_loopback:
        return _from_loopback(half, source, destination, backends)
    if is_link_local_ipv6(source):
        return _elsewhere(half, backends, f"the kernel forwards nothing from the link-local address {source}")
    return _at_loopback(half, source, backends)


def _from_loopback(half: FamilyPlan, source: Address, destination: Address, backends: tuple[Backend, ...]) -> Stranded:
    why = f"the kernel lets nothing from {source} out of this node"
    if half.family == "IPv6":
        return _elsewhere(half, backends, why)
    if half.localhost_node_ports and not half.mode.relays:
        return Stranded()
    unless = "unless net.ipv4.conf.all.route_localnet is 1"
    if half.node.has(destination):
        return _elsewhere(half, backends, f"{why}, {unless}")
    return Stranded(backends, f"the kernel sends nothing from {source} to what is not this node's own, {unless}")


def _at_loopback(half: FamilyPlan, source: Address, backends: tuple[Backend, ...]) -> Stranded:
    """Endpoints at loopback addresses, as the Services of `kdns up` itself have them: only the node reaches its own."""
    if half.mode.relays or half.localhost_node_ports or half.node.has(source):
        return Stranded()
    found = tuple(each for each in backends if each.address == "::1" or each.address.startswith("127."))
    return Stranded(found, "the kernel takes nothing for loopback addresses from anybody else" if found else "")


def _elsewhere(half: FamilyPlan, backends: tuple[Backend, ...], why: str) -> Stranded:
    if half.mode.relays:
        return Stranded()
    own = set(map(str, half.node.addresses))
    found = tuple(each for each in backends if each.address not in own)
    return Stranded(found, why if found else "")
