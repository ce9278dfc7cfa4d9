"""The desired content of the kernel in mode ipvs, one family of a plan, and the changes from one plan to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kdns.net import VERSION, Network, is_loopback, parse_network, parse_unmapped_address
from kdns.netlink.ipvs import Destination, ServerOptions, VirtualServer, VirtualServerKey
from kdns.netlink.uapi import IP_VS_SVC_F_PERSISTENT, IP_VS_SVC_F_SCHED2
from kdns.proxy.ipvs.base_chains import base_chains, changed_out_filter, out_filter
from kdns.proxy.ipvs.sets import IPVS_IPS, IpSet, SetMember, empty_sets, front_entries, port_entries
from kdns.proxy.ipvs.settings import DEFAULT_SCHEDULER, IpvsSettings
from kdns.proxy.plan.counted import Counted
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKey, PortName, PortPlan
from kdns.proxy.plan.planner import Difference
from kdns.proxy.settings.section import DEFAULT_MARK
from kdns.proxy.settings.settings import Settings
from kdns.proxy.xtables.rules import Rule
from kdns.proxy.xtables.settings import IptablesSettings

SCHEDULER_FLAGS: Final = {"mh": IP_VS_SVC_F_SCHED2}
"""Flags that kube-proxy sets for a scheduler: without it, mh sends all connections of a client to one endpoint."""
_ENDPOINT: Final = Destination()
Servers: TypeAlias = Mapping[VirtualServerKey, tuple[VirtualServer | None, VirtualServer | None]]
"""Virtual servers before and after a change; None: absent."""
Entries: TypeAlias = Mapping[str, Sequence[str]]
"""Entries by the name of their set in the kernel."""
ObjectName: TypeAlias = tuple[object, ...]
"""An object of the kernel: (address,), a virtual server's key, or (virtual server, destination)."""


@dataclass(frozen=True, slots=True)
class IpvsOptions:
    """Options of the content beside the plan. `excluded`: virtual servers in these networks are not kdns's.

    `scheduler` is the kernel's name of one. `masquerade_mark` is the bit of packet marks that asks for masquerade.
    """

    excluded: tuple[Network, ...] = ()
    scheduler: str = DEFAULT_SCHEDULER
    masquerade_mark: int = DEFAULT_MARK

    @classmethod
    def of(cls, settings: Settings) -> IpvsOptions:
        own = settings.section(IpvsSettings)
        excluded = tuple(network for text in own.exclude_cidrs if (network := parse_network(text)))
        return cls(excluded, own.kernel_scheduler, settings.section(IptablesSettings).mark)


DEFAULTS: Final = IpvsOptions()


@dataclass(frozen=True, slots=True)
class Change:
    """A plan's changes in the kernel; everything else is kept.

    `restore` is input of iptables-restore --noflush, "" for none. A virtual server that is to go may still have
    connections: it can stay with weights of 0 until they end, since rules of the frame refuse or drop new ones.
    """

    virtual_servers: Servers = field(default_factory=dict)
    new_addresses: tuple[str, ...] = ()
    old_addresses: tuple[str, ...] = ()
    new_entries: Entries = field(default_factory=dict)
    old_entries: Entries = field(default_factory=dict)
    restore: str = ""

    def __bool__(self) -> bool:
        return bool(self.virtual_servers or self.new_entries or self.old_entries or self.restore)


class Ipvs:
    """One family's content, which follows the family's plan. One event loop owns it.

    `sets` are by their names in the kernel. The node's own addresses must not have those of kube-ipvs0 among them
    (`NodeView.addresses`).
    """

    def __init__(self, family_plan: FamilyPlan, options: IpvsOptions = DEFAULTS) -> None:
        self.family_plan, self.options = family_plan, options
        self.virtual_servers: dict[VirtualServerKey, VirtualServer] = {}
        self._sets = empty_sets(family_plan.family)
        self.sets: Mapping[str, IpSet] = {ip_set.name: ip_set for ip_set in self._sets.values()}
        self._members = Counted[SetMember]()
        self._out_filters = Counted[Rule]()
        self._node = frozenset(map(str, family_plan.node.addresses))
        self._node_ports = tuple(
            str(address) for address in family_plan.node.addresses if address in family_plan.node_ports
        )
        self._follow(
            {key: (None, front) for key, front in family_plan.fronts.items()},
            {name: (None, port) for name, port in family_plan.ports.items()},
        )

    @property
    def addresses(self) -> AbstractSet[str]:
        return self._sets[IPVS_IPS].entries.keys()

    @property
    def base_chains(self) -> str:
        return base_chains(self.family_plan, self.options.masquerade_mark, self._out_filters.counts)

    def front_at(self, key: VirtualServerKey) -> Front | None:
        """An address of a Service comes before a node port."""
        front = self.family_plan.fronts.get(FrontKey(key.address, key.protocol, key.port))
        if front is None and key.address in self._node_ports:
            front = self.family_plan.fronts.get(FrontKey("", key.protocol, key.port))
        return front

    def object_names(self, front: Front) -> Iterator[ObjectName]:
        yield (front.key.address,)
        for key in self._at(front.key):
            yield key
            server = self.virtual_servers.get(key)
            yield from ((key, destination) for destination in (server.destinations if server else ()))

    def follow(self, family_plan: FamilyPlan, difference: Difference) -> Change:
        """The change that leads to this plan of the same node. Its cost is that of the difference."""
        self.family_plan = family_plan
        return self._follow(difference.fronts, difference.ports)

    def is_stale(self, key: VirtualServerKey) -> bool:
        """Whether to remove a virtual server of the kernel: one of this family, and not in excludeCIDRs."""
        address = parse_unmapped_address(key.address)
        return (
            key not in self.virtual_servers
            and address is not None
            and address.version == VERSION[self.family_plan.family]
            and not any(address in network for network in self.options.excluded)
        )

    def _follow(
        self,
        fronts: Mapping[FrontKey, tuple[Front | None, Front | None]],
        ports: Mapping[PortName, tuple[PortPlan | None, PortPlan | None]],
    ) -> Change:
        servers = {}
        for key in dict.fromkeys(key for front in fronts for key in self._at(front)):
            before, after = self.virtual_servers.get(key), self._server(key)
            if before == after:
                continue
            servers[key] = before, after
            if after:
                self.virtual_servers[key] = after
            else:
                del self.virtual_servers[key]
        old_fronts, new_fronts = ([pair[at] for pair in fronts.values()] for at in (0, 1))
        old_ports, new_ports = ([pair[at] for pair in ports.values()] for at in (0, 1))
        added, removed = self._members.replace(
            self._entries(old_fronts, old_ports), self._entries(new_fronts, new_ports)
        )
        for name, entry in removed:
            del self._sets[name].entries[entry]
        for name, entry in added:
            self._sets[name].entries[entry] = None
        new_rules, old_rules = self._out_filters.replace(self._filters(old_fronts), self._filters(new_fronts))
        return Change(
            servers,
            tuple(entry for name, entry in added if name == IPVS_IPS),
            tuple(entry for name, entry in removed if name == IPVS_IPS),
            self._by_set(added),
            self._by_set(removed),
            changed_out_filter(old_rules, new_rules),
        )

    def _at(self, key: FrontKey) -> Iterator[VirtualServerKey]:
        """Where the virtual servers of a front are; those of a node port are at the node's addresses."""
        for address in (key.address,) if key.address else self._node_ports:
            yield VirtualServerKey(address, key.port, key.protocol)

    def _server(self, key: VirtualServerKey) -> VirtualServer | None:
        front = self.front_at(key)
        return virtual_server(front, self.options.scheduler) if front else None

    def _entries(self, fronts: Iterable[Front | None], ports: Iterable[PortPlan | None]) -> Iterator[SetMember]:
        for front in filter(None, fronts):
            yield from self._front_entries(front)
        for port in filter(None, ports):
            yield from port_entries(port, self.family_plan)

    def _filters(self, fronts: Iterable[Front | None]) -> Iterator[Rule]:
        for front in filter(None, fronts):
            yield from out_filter(front, self.family_plan)

    def _front_entries(self, front: Front) -> Iterator[SetMember]:
        yield from front_entries(front, self._node_ports)
        address = front.key.address
        if address and address not in self._node and not is_loopback(address):
            yield IPVS_IPS, address

    def _by_set(self, members: Iterable[SetMember]) -> Entries:
        entries: dict[str, list[str]] = {}
        for name, entry in members:
            entries.setdefault(self._sets[name].name, []).append(entry)
        return entries


def virtual_server(front: Front, scheduler: str) -> VirtualServer | None:
    if not front.lists:
        return None
    flags, affinity_s = SCHEDULER_FLAGS.get(scheduler, 0), front.port.affinity_s
    flags |= IP_VS_SVC_F_PERSISTENT if affinity_s else 0
    destinations = {
        (endpoint.address, endpoint.port): _ENDPOINT for endpoint in front.port.endpoints_of(front.lists[0])
    }
    return VirtualServer(ServerOptions(scheduler, flags, affinity_s), destinations)
