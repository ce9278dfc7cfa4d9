"""The desired content of the kernel in mode ipvs, one family of a plan, and the changes from one plan to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kdns.net import Address, Network, parse_unmapped_address
from kdns.proxy.ipvs.frame import Frame, frame
from kdns.proxy.ipvs.sets import Entry, IpSet
from kdns.proxy.ipvs.virtual_servers import VirtualServer, VirtualServerKey, virtual_server
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKey, PortName, PortPlan
from kdns.proxy.plan.planner import Difference

Servers: TypeAlias = Mapping[VirtualServerKey, tuple[VirtualServer | None, VirtualServer | None]]
"""Virtual servers before and after a change; None: absent."""


@dataclass(frozen=True, slots=True)
class IpvsOptions:
    """What the rules depend on beside the plan. `excluded`: virtual servers in these networks are not kdns's."""

    excluded: tuple[Network, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """What a plan changes in the kernel; what is not in it stays. Sets are named as in the kernel."""

    virtual_servers: Servers = field(default_factory=dict)
    new_addresses: tuple[str, ...] = ()
    old_addresses: tuple[str, ...] = ()
    new_entries: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    old_entries: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any((self.virtual_servers, self.new_addresses, self.old_addresses, self.new_entries, self.old_entries))


class Ipvs:
    """One family's content, which follows its half of the plan. One event loop owns it.

    `addresses` are those of kube-ipvs0. The node's own addresses are not among them: kube-ipvs0 must not count for
    `NodeView.addresses`.
    """

    def __init__(self, half: FamilyPlan, options: IpvsOptions = IpvsOptions()) -> None:
        self.half, self.options = half, options
        self.frame: Frame = frame(half)
        self.virtual_servers: dict[VirtualServerKey, VirtualServer] = {}
        self.sets: dict[str, IpSet] = {}
        self._uses: Counter[str] = Counter()
        self._own = tuple(each for each in half.node.addresses if each in half.node_ports)
        self._follow({key: (None, front) for key, front in half.fronts.items()}, {})

    @property
    def addresses(self) -> frozenset[str]:
        """The addresses of kube-ipvs0, in canonical form."""
        return frozenset(self._uses)

    def follow(self, half: FamilyPlan, difference: Difference) -> Change:
        """The change that leads to this plan. Its cost is that of the difference."""
        self.half = half
        return self._follow(difference.fronts, difference.ports)

    def _follow(
        self,
        fronts: Mapping[FrontKey, tuple[Front | None, Front | None]],
        ports: Mapping[PortName, tuple[PortPlan | None, PortPlan | None]],
    ) -> Change:
        del ports
        servers = {}
        for key in dict.fromkeys(each for front in fronts for each in self._at(front)):
            before, after = self.virtual_servers.get(key), self._server(key)
            if before != after:
                servers[key] = before, after
                if after:
                    self.virtual_servers[key] = after
                else:
                    del self.virtual_servers[key]
        new, old = self._addresses(fronts.values())
        return Change(servers, new, old)

    def _at(self, key: FrontKey) -> Iterator[VirtualServerKey]:
        """Where the virtual servers of a front are; those of a node port are at the node's addresses."""
        if key.address:
            yield VirtualServerKey(key.address, key.port, key.protocol)
            return
        for address in self._own:
            yield VirtualServerKey(str(address), key.port, key.protocol)

    def _server(self, key: VirtualServerKey) -> VirtualServer | None:
        address = parse_unmapped_address(key.address)
        front = self.half.front_of(address, key.protocol, key.port) if address else None
        return virtual_server(front, self.half.family, self.half.scheduler) if front else None

    def _addresses(self, pairs: Iterable[tuple[Front | None, Front | None]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        before: dict[str, bool] = {}
        for pair in pairs:
            for front, step in zip(pair, (-1, 1), strict=True):
                address: Address | None = parse_unmapped_address(front.key.address) if front else None
                if address is None or self.half.node.has(address):
                    continue
                text = str(address)
                before.setdefault(text, text in self._uses)
                self._uses[text] += step
                if not self._uses[text]:
                    del self._uses[text]
        new = tuple(text for text, was in before.items() if not was and text in self._uses)
        return new, tuple(text for text, was in before.items() if was and text not in self._uses)
