"""The relays of a node: opened and closed by the plan, with what could not be opened."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from kdns import logs
from kdns.errors import ListenError
from kdns.net import Address, Family, is_loopback
from kdns.proxy.plan.branches import ENDPOINT_SETS
from kdns.proxy.plan.plan import FamilyPlan, PortPlan
from kdns.proxy.userspace.io.resources import RelayResources
from kdns.proxy.userspace.io.sockets import listener
from kdns.proxy.userspace.io.tcp_relay import TcpRelay
from kdns.proxy.userspace.io.udp_relay import UdpRelay
from kdns.proxy.userspace.relays import RelayKey

SOCKET_KINDS: Final[Mapping[str, socket.SocketKind]] = {"TCP": socket.SOCK_STREAM, "UDP": socket.SOCK_DGRAM}

LAST_EPHEMERAL_PORT: Final = 60999
"""The last port that Linux chooses by itself (default of net.ipv4.ip_local_port_range)."""

MAX_NAMED: Final = 20
"""Fronts that a warning names; all are counted."""

Relay: TypeAlias = TcpRelay | UdpRelay

log = logs.get(__name__)


class ListenAddresses(NamedTuple):
    """Where a relay listens; port 0 is any free port."""

    addresses: tuple[str, ...]
    port: int


class RelaySet:
    """Relays by key. Those at any port take one of `ports`; empty: the kernel chooses.

    `listening` is where each relay was to listen, `missing` why others do not listen, and `captured_ports` the ports of
    those that are at any port. New relays end UDP flows that are idle for `udp_idle_s`.
    """

    def __init__(self, resources: RelayResources, ports: range, udp_idle_s: float) -> None:
        self.listening: dict[RelayKey, ListenAddresses] = {}
        self.missing: dict[RelayKey, str] = {}
        self.captured_ports: dict[RelayKey, int] = {}
        self._resources, self.udp_idle_s = resources, udp_idle_s
        self._ports, self._last_port = ports, ports.start - 1
        self._relays: dict[RelayKey, Relay] = {}

    def open(self, wanted: Mapping[RelayKey, ListenAddresses]) -> None:
        """Opens those that are not open. What cannot be opened is missing, and logged once for each reason."""
        unserved: dict[str, list[str]] = {}
        for key, addresses in wanted.items():
            if key in self._relays:
                continue
            try:
                relay = self._relays[key] = self._opened(key, addresses)
            except ListenError as error:
                reason = _reason(key, addresses, error)
                if self.missing.get(key) != reason:
                    self.missing[key] = reason
                    front = self._resources.sessions.front(key)
                    unserved.setdefault(reason, []).append(f"{front.port.name if front else ''} at {error.address}")
                continue
            self.listening[key] = addresses
            self.missing.pop(key, None)
            if not addresses.port:
                self.captured_ports[key] = relay.port
        for reason, fronts in unserved.items():
            named = ", ".join(fronts[:MAX_NAMED])
            log.warning("fronts not served", count=len(fronts), fronts=named, reason=reason)

    def close(self, keys: Iterable[RelayKey]) -> None:
        for key in tuple(keys):
            self.missing.pop(key, None)
            self.captured_ports.pop(key, None)
            if key in self._relays:
                self._resources.descriptors.used -= len(self.listening.pop(key).addresses)
                self._relays.pop(key).close()

    def end_stale_flows(self, family: Family, port: PortPlan) -> None:
        for key, _ in port.fronts:
            for name in (None, *ENDPOINT_SETS):
                relay = self._relays.get(RelayKey(family, key, name))
                if isinstance(relay, UdpRelay):
                    relay.end_flows_except(port.endpoints.reachable)

    def _opened(self, key: RelayKey, addresses: ListenAddresses) -> Relay:
        kind = SOCKET_KINDS[key.front.protocol]
        ports = (addresses.port,) if addresses.port else self._free_ports()
        with ExitStack() as on_failure:
            sockets = [on_failure.enter_context(listener(address, kind, ports)) for address in addresses.addresses]
            on_failure.pop_all()
        if not addresses.port:
            self._last_port = sockets[0].getsockname()[1]
        self._resources.descriptors.used += len(sockets)
        if kind == socket.SOCK_STREAM:
            return TcpRelay(key, sockets, self._resources)
        return UdpRelay(key, sockets, self._resources, self.udp_idle_s)

    def _free_ports(self) -> Iterable[int]:
        """Yields the range's ports, from the one after the last that was used.

        Without a range the kernel chooses the first one, and again whenever the next number is in use: to let it choose
        each time is slow where many ports are in use.
        """
        if not self._ports:
            return (self._last_port + 1, 0) if 0 < self._last_port < LAST_EPHEMERAL_PORT else (0,)
        return chain(range(self._last_port + 1, self._ports.stop), range(self._ports.start, self._last_port + 1))


def _reason(key: RelayKey, addresses: ListenAddresses, error: ListenError) -> str:
    if addresses.port and key.front.address and not is_loopback(key.front.address):
        return f"{error.reason}; to capture packets to addresses of others takes the capability NET_ADMIN"
    return error.reason


def listen_addresses(family_plan: FamilyPlan, key: RelayKey, own_address: Address) -> ListenAddresses:
    """Returns where a relay listens: a capturing one at the node's own address, all others at the front itself."""
    if key.endpoint_set:
        return ListenAddresses((str(own_address),), 0)
    if not key.front.address:
        return ListenAddresses(family_plan.node_ports.listen_addresses(loopback=True), key.front.port)
    return ListenAddresses((key.front.address,), key.front.port)
