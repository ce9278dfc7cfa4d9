"""Reads virtual servers and addresses of the kernel, compares them with the desired ones, and changes them. Blocks.

A load adds destinations before the addresses that lead to them, so no connection meets an incomplete virtual server.
The addresses of a link that is down have no effect, so a new link gets all of them and is then brought up.
Deletions take the reverse order: the address first, unless connections need it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kdns import logs
from kdns.net import is_ipv6, join_host_port
from kdns.netlink.addresses import VIRTUAL_LINK
from kdns.netlink.io.addresses import change_link_addresses, link_addresses
from kdns.netlink.io.ipvs import Failures, Ipvs, ipvs
from kdns.netlink.ipvs import VirtualServer, VirtualServerKey
from kdns.proxy.ipvs.draining import Draining
from kdns.proxy.ipvs.ipvs import ObjectName
from kdns.proxy.node.io.host_settings import set_sysctl

Refused: TypeAlias = dict[ObjectName, str]
"""Objects that the kernel refuses, with the reason in words that name the object."""
Servers: TypeAlias = Mapping[VirtualServerKey, VirtualServer]
Pairs: TypeAlias = Mapping[VirtualServerKey, tuple[VirtualServer | None, VirtualServer | None]]
IsWanted: TypeAlias = Callable[[str], bool]
"""Whether an address is one of the plan's."""
_OF_CONTENT: Final = frozenset(
    {errno.EINVAL, errno.ERANGE, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EOPNOTSUPP, errno.EADDRNOTAVAIL}
)
"""Errors that say what the kernel does not take, whenever it is asked."""
_NO_IPV6: Final = f"net/ipv6/conf/{VIRTUAL_LINK}/disable_ipv6"

log = logs.get(__name__)


@dataclass(slots=True)
class VirtualServers:
    """The virtual servers and addresses that this process put into the kernel. One thread at a time uses it."""

    now_s: Callable[[], float]
    draining: Draining = field(default_factory=Draining)
    refused: Refused = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    """Failures of the last sync for reasons outside of the plan, in words."""
    without_ipv6: set[str] = field(default_factory=set)
    """Addresses that the link cannot have, since IPv6 is off."""

    def load(
        self, wanted: Servers, is_stale: Callable[[VirtualServerKey], bool], addresses: Iterable[str], link: int
    ) -> None:
        """Makes virtual servers and addresses equal to the desired ones; stale virtual servers are deleted."""
        self.refused.clear()
        self.failures.clear()
        self.without_ipv6.clear()
        with ipvs() as kernel:
            existing = read_servers(kernel)
            servers = (
                *((key, existing.get(key), server) for key, server in wanted.items()),
                *((key, server, None) for key, server in existing.items() if is_stale(key)),
            )
            self._note(kernel.carry_out(self.draining.restart(servers, self.now_s())))
            present = frozenset(addresses)
            self._addresses(link, present, link_addresses(link))
            self._delete_drained(kernel, link, present.__contains__, self.draining.servers)

    def change(self, servers: Pairs, new: Iterable[str], old: Iterable[str], is_wanted: IsWanted, link: int) -> None:
        """Carries out what changes; `is_wanted` is as it is afterwards."""
        self.failures.clear()
        with ipvs() as kernel:
            changes = ((key, self._existing(key, before), after) for key, (before, after) in servers.items())
            self._note(kernel.carry_out(self.draining.change(changes, self.now_s())))
            self._addresses(link, frozenset(new), old)
            self._delete_drained(kernel, link, is_wanted, [key for key in self.draining.servers if key in servers])

    def _existing(self, key: VirtualServerKey, server: VirtualServer | None) -> VirtualServer | None:
        """What the kernel has of a virtual server; what it refused of it is forgotten, to be tried again."""
        if server is None or not self.refused:
            return server
        taken = {name: one for name, one in server.destinations.items() if not self.refused.pop((key, name), "")}
        return None if self.refused.pop(key, "") else server._replace(destinations=taken)

    def check_draining(self, is_wanted: IsWanted, link: int) -> None:
        if len(self.draining):
            with ipvs() as kernel:
                self._delete_drained(kernel, link, is_wanted, self.draining.servers)

    def _addresses(self, link: int, wanted: frozenset[str], existing: Iterable[str]) -> None:
        """Adds missing addresses; deletes others, unless connections need them."""
        present = frozenset(existing)
        old = present - wanted - self.draining.addresses
        refused = change_link_addresses(link, sorted(wanted - present), sorted(old))
        if without := [address for address, error in refused.items() if error == errno.EACCES and is_ipv6(address)]:
            refused |= dict.fromkeys(without, 0) | self._with_ipv6(link, without)
        for address, error in refused.items():
            if error:
                self._failed((address,), f"address {address}", error)

    def _with_ipv6(self, link: int, addresses: list[str]) -> dict[str, int]:
        """Lets the link have IPv6, which is off by default on some nodes. Where it cannot, the rest works without."""
        _, reason = set_sysctl(_NO_IPV6, 0)
        refused = change_link_addresses(link, addresses, ())
        off = {address for address, error in refused.items() if error == errno.EACCES}
        if off and not self.without_ipv6:
            expected = f"{_NO_IPV6} = 0, or Services of IPv4 only"
            log.warning("IPv6 addresses not served: IPv6 is off", link=VIRTUAL_LINK, reason=reason, expected=expected)
        self.without_ipv6 |= off
        return {address: error for address, error in refused.items() if address not in off}

    def _delete_drained(self, kernel: Ipvs, link: int, is_wanted: IsWanted, keys: Collection[VirtualServerKey]) -> None:
        before = self.draining.addresses
        existing = {key: kernel.destinations(key) for key in keys}
        kernel.carry_out(list(self.draining.due(existing, self.now_s())))
        if free := [address for address in before - self.draining.addresses if not is_wanted(address)]:
            change_link_addresses(link, (), sorted(free))

    def _note(self, failures: Failures) -> None:
        """Keeps what the kernel does not take, apart from what fails now: somebody may have deleted a server.

        A destination fails too if its virtual server is refused.
        """
        for operation, error in failures:
            if operation.server in self.refused and operation.destination is not None:
                continue
            name = operation.server if operation.destination is None else (operation.server, operation.destination)
            self._failed(name, str(operation), error)

    def _failed(self, name: ObjectName, words: str, error: int) -> None:
        reason = f"{words}: {os.strerror(error)}"
        if error in _OF_CONTENT:
            self.refused[name] = reason
        else:
            self.failures.append(reason)


def read_servers(kernel: Ipvs) -> dict[VirtualServerKey, VirtualServer]:
    return {key: VirtualServer(options, kernel.destinations(key)) for key, options in kernel.servers().items()}


def changed_servers(kernel: Ipvs, sample: Servers) -> str:
    """The first difference from what this process wrote, in words, or ""."""
    for key, server in sample.items():
        name = f"virtual server {key}"
        options = kernel.server(key)
        if options is None:
            return f"{name} is gone"
        if options != server.options:
            return f"{name} has other settings"
        existing = kernel.destinations(key)
        for endpoint, destination in server.destinations.items():
            found = existing.get(endpoint)
            if found is None or found.weight != destination.weight or not found.masquerades:
                return f"{name} does not have {join_host_port(*endpoint)} with weight {destination.weight}"
        surplus = (
            endpoint for endpoint, found in existing.items() if found.weight and endpoint not in server.destinations
        )
        if more := next(surplus, None):
            return f"{name} has {join_host_port(*more)}, which is none of its endpoints"
    return ""
