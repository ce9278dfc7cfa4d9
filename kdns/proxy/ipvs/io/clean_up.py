"""Removes mode ipvs, kdns's or kube-proxy's, from the kernel: virtual servers, kube-ipvs0 with its addresses, sets.

A virtual server belongs to the mode if its address is on kube-ipvs0, if a set has an entry for it, or if all its
destinations have weight 0. Virtual servers in excludeCIDRs, and all others, are kept.

If another mode takes over, connections of TCP and SCTP continue until they end, at most for DRAIN_S. Their virtual
servers get weights of 0, and keep their addresses; new connections are translated before they reach these. UDP flows
do not end, and connection tracking would lead them past the rules of the other mode, so they are deleted from it, and
their virtual servers at once. Differs: kube-proxy --cleanup removes all virtual servers of the machine at once.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from kdns import logs
from kdns.net import FAMILIES, Network, family_of_text, parse_network
from kdns.netlink.addresses import VIRTUAL_LINK
from kdns.netlink.io import ipvs as netlink_ipvs
from kdns.netlink.io.addresses import change_link_addresses, link_addresses
from kdns.netlink.io.conntrack import delete_flows, udp_flows
from kdns.netlink.io.ipset import ipsets
from kdns.netlink.io.ipvs import Ipvs, ipvs
from kdns.netlink.ipvs import Operation, Verb, VirtualServerKey
from kdns.proxy.ipvs import sets
from kdns.proxy.ipvs.draining import DRAIN_S, Draining
from kdns.proxy.ipvs.io import link
from kdns.proxy.ipvs.io.kernel import VirtualServers, read_servers
from kdns.proxy.ipvs.io.sets import TRIAL, replacing
from kdns.proxy.ipvs.settings import IpvsSettings
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.kernel_mode import in_thread
from kdns.proxy.sync.io.proxier import CleanUp, Footprint
from kdns.proxy.xtables.io.clean_up import CHAINS, MARKS
from kdns.runtime.tasks import observed

POLL_S: Final = 2.0
_NAMED: Final = 10
"""Virtual servers that are named when they are removed."""
_OF_ADDRESSES: Final = frozenset({sets.CLUSTER_IP, sets.EXTERNAL_IP, sets.EXTERNAL_IP_LOCAL, sets.LOAD_BALANCER})
"""Sets of fronts with addresses: some are the node's own, and so not on kube-ipvs0."""
_LASTING: Final = frozenset({"TCP", "SCTP"})
"""The protocols whose connections end by themselves."""
_UNWANTED: Final = frozenset[str]().__contains__
_IP_SET: Final = Path("/sys/module/ip_set")

_draining: set[asyncio.Task[None]] = set()
"""Tasks that wait for the end of connections in this network namespace."""

log = logs.get(__name__)


@dataclass(slots=True)
class Leftovers:
    """The link's index (0: none), its addresses, virtual servers, and sets."""

    link: int = 0
    addresses: frozenset[str] = frozenset()
    servers: list[VirtualServerKey] = field(default_factory=list)
    sets: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.link or self.servers or self.sets)

    def words(self) -> list[str]:
        found = [f"virtual server {key}" for key in self.servers[:_NAMED]]
        if len(self.servers) > _NAMED:
            found.append(f"{len(self.servers) - _NAMED} more virtual servers")
        found += [f"link {VIRTUAL_LINK}"] if self.link else []
        return found + [f"set {name}" for name in self.sets]


@dataclass(frozen=True, slots=True)
class IpvsPart:
    """All virtual servers, sets and the link."""


async def remove_ipvs(settings: Settings | None, kept: Footprint) -> Sequence[str]:
    """Removes it; see `CleanUp`. What connections need goes later where another mode is kept, which serves new ones."""
    # What kdns leaves has the names of kube-proxy's.
    if kept.part(IpvsPart) or (kept.keep_kube_proxy and not kept.marked):
        return []
    excluded = settings.section(IpvsSettings).exclude_cidrs if settings else ()
    networks = tuple(network for text in excluded if (network := parse_network(text)))
    await stop_draining()
    leftovers = await in_thread(lambda: find(networks))
    if leftovers and kept.parts:
        servers = await in_thread(lambda: _begin_draining(leftovers))
        if waiting := servers.draining.servers:
            log.info("connections of IPVS are draining", virtual_servers=len(waiting), at_most_s=DRAIN_S)
            task = observed(_drain(leftovers, servers), "connections of IPVS")
            _draining.add(task)
            task.add_done_callback(_draining.discard)
            return []
    return await in_thread(lambda: _remove(leftovers)) if leftovers else []


async def stop_draining() -> None:
    """Leaves what connections still need to whoever comes next: mode ipvs, or another clean-up."""
    tasks = tuple(_draining)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def find(excluded: Collection[Network]) -> Leftovers:
    leftovers = Leftovers()
    with suppress(OSError):
        leftovers.link = socket.if_nametoindex(VIRTUAL_LINK)
        leftovers.addresses = frozenset(link_addresses(leftovers.link))
    node_ports: set[tuple[str, int]] = set()
    fronts: set[VirtualServerKey] = set()
    if _IP_SET.exists():
        with ipsets() as kernel:
            own = {sets.set_name(name, family): name for name in sets.SETS for family in FAMILIES}
            own |= {replacing(name): "" for name in own} | {TRIAL: ""}
            leftovers.sets = [name for name in kernel.headers() if name in own]
            for name in leftovers.sets:
                if own[name] in _OF_ADDRESSES:
                    fronts |= {key for entry in kernel.entries(name) if (key := _front(entry))}
                for protocol, general in sets.NODE_PORTS.items():
                    if own[name] == general:
                        ports = (entry.rpartition(":")[2] for entry in kernel.entries(name))
                        node_ports |= {(protocol, int(port)) for port in ports}
    if netlink_ipvs.PROC.exists() and (leftovers.link or leftovers.sets):
        with ipvs() as kernel_of_servers:

            def is_ours(key: VirtualServerKey) -> bool:
                is_recorded = (
                    key.address in leftovers.addresses or key in fronts or (key.protocol, key.port) in node_ports
                )
                return is_recorded or _has_left(kernel_of_servers, key)

            leftovers.servers = [
                key
                for key in kernel_of_servers.servers()
                if not any(ip_address(key.address) in network for network in excluded) and is_ours(key)
            ]
    return leftovers


def _front(entry: str) -> VirtualServerKey | None:
    """The virtual server of 10.96.0.1,tcp:80; None if another program's set has other entries."""
    address, _, rest = entry.partition(",")
    protocol, _, port = rest.partition(":")
    return VirtualServerKey(address, int(port), protocol.upper()) if port.isdigit() else None


def _has_left(kernel: Ipvs, key: VirtualServerKey) -> bool:
    """Whether only old connections need it. At the node's own addresses, nothing else shows the owner."""
    existing = kernel.destinations(key).values()
    return bool(existing) and all(destination.masquerades and not destination.weight for destination in existing)


async def _drain(leftovers: Leftovers, servers: VirtualServers) -> None:
    while len(servers.draining):
        await asyncio.sleep(POLL_S)
        await in_thread(lambda: servers.check_draining(_UNWANTED, leftovers.link))
    log.info("stale rules removed", removed=await in_thread(lambda: _remove(leftovers)))


def _begin_draining(leftovers: Leftovers) -> VirtualServers:
    """Stops new connections, and deletes what has none.

    UDP flows are deleted before their virtual servers: the next packet of each begins a flow of the other mode. A
    packet of a connection without its virtual server would be dropped, and sendto(2) fail with EPERM.
    """
    servers = VirtualServers(time.monotonic, Draining(_LASTING))
    _forget_udp_flows(leftovers)
    with ipvs() as kernel:
        existing = read_servers(kernel)
        obsolete = ((key, existing[key], None) for key in leftovers.servers if key in existing)
        kernel.carry_out(servers.draining.restart(obsolete, time.monotonic()))
    if leftovers.link:
        change_link_addresses(leftovers.link, (), sorted(leftovers.addresses - servers.draining.addresses))
    servers.check_draining(_UNWANTED, leftovers.link)
    return servers


def _forget_udp_flows(leftovers: Leftovers) -> None:
    udp = {key[:2] for key in leftovers.servers if key.protocol == "UDP"}
    for family in FAMILIES if udp else ():
        own = {destination for destination in udp if family_of_text(destination[0]) == family}
        with suppress(OSError):
            delete_flows(family, udp_flows(family, lambda flow, own=own: flow.destination in own) if own else ())  # type: ignore[misc]


def _remove(leftovers: Leftovers) -> list[str]:
    """A set that a rule uses stays, and is logged."""
    found = leftovers.words()
    if leftovers.servers:
        with ipvs() as kernel:
            kernel.carry_out([Operation(Verb.DELETE_SERVER, key) for key in leftovers.servers])
    if leftovers.link:
        link.remove()
    busy = []
    if leftovers.sets:
        with ipsets() as kernel_of_sets:
            busy = [name for name in leftovers.sets if not kernel_of_sets.destroy(name)]
    if busy:
        log.warning("sets stay", sets=busy, reason="rules of iptables use them", expected="the removal of these rules")
    return [words for words in found if words.removeprefix("set ") not in busy]


CLEAN_UPS: Final = (CHAINS, CleanUp(remove_ipvs), MARKS)
