"""The relays of a node: opened and closed as the plan wants them, and what cannot be opened said once."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from kdns import logs
from kdns.aio.relay import TcpRelay
from kdns.aio.relays import Shared, listener
from kdns.aio.udprelay import UdpRelay
from kdns.errors import ListenError
from kdns.proxy.config import FAMILIES, Address, Family
from kdns.proxy.plan import FamilyPlan, PortPlan
from kdns.proxy.userspace import LISTS, RelayKey, is_loopback, node_port_binds

KINDS: Final[Mapping[str, socket.SocketKind]] = {"TCP": socket.SOCK_STREAM, "UDP": socket.SOCK_DGRAM}

LAST_FREE: Final = 60999
"""The last port that Linux gives by itself (net.ipv4.ip_local_port_range)."""

Relay: TypeAlias = TcpRelay | UdpRelay

log = logs.get(__name__)


class Binds(NamedTuple):
    """Where a relay listens; port 0 is any that is free."""

    addresses: tuple[str, ...]
    port: int


class RelaySet:
    """Relays by what they serve. Those at any port take it from `ports`; empty: the kernel chooses."""

    def __init__(self, shared: Shared, ports: range, udp_idle_s: float) -> None:
        self.binds: dict[RelayKey, Binds] = {}
        self.missing: dict[RelayKey, str] = {}
        self.captured: dict[RelayKey, int] = {}
        """The ports of those that are at any port."""
        self._shared, self._udp_idle_s = shared, udp_idle_s
        self._ports, self._last_port = ports, ports.start - 1
        self._relays: dict[RelayKey, Relay] = {}

    def open(self, wanted: Mapping[RelayKey, Binds]) -> None:
        """Open those that are not open."""
        for key, binds in wanted.items():
            if key in self._relays:
                continue
            try:
                relay = self._relays[key] = self._opened(key, binds)
            except ListenError as error:
                self._miss(key, binds, str(error))
                continue
            self.binds[key] = binds
            self.missing.pop(key, None)
            if not binds.port:
                self.captured[key] = relay.port

    def close(self, keys: Iterable[RelayKey]) -> None:
        """Close these listeners; TCP connections go on."""
        for key in tuple(keys):
            self.missing.pop(key, None)
            self.captured.pop(key, None)
            if key in self._relays:
                self._shared.room.give(len(self.binds.pop(key).addresses))
                self._relays.pop(key).close()

    def keep_flows(self, family: Family, port: PortPlan) -> None:
        """End UDP flows to endpoints that the Service port has no more."""
        for key, _ in port.fronts:
            for name in ("", *LISTS):
                relay = self._relays.get(RelayKey(family, key, name))
                if isinstance(relay, UdpRelay):
                    relay.keep(port.backends.reachable)

    def _opened(self, key: RelayKey, binds: Binds) -> Relay:
        kind = KINDS[key.front.protocol]
        ports = (binds.port,) if binds.port else self._free_ports()
        with ExitStack() as undone:
            sockets = [undone.enter_context(listener(address, kind, ports)) for address in binds.addresses]
            undone.pop_all()
        if not binds.port:
            self._last_port = sockets[0].getsockname()[1]
        self._shared.room.used += len(sockets)
        if kind == socket.SOCK_STREAM:
            return TcpRelay(key, sockets, self._shared)
        return UdpRelay(key, sockets, self._shared, self._udp_idle_s)

    def _free_ports(self) -> Iterable[int]:
        """The range's ports, from the one after the last that was given.

        Where there is no range, the kernel gives the first, and again whenever the next number is taken: it looks for
        long where many are.
        """
        if not self._ports:
            return (self._last_port + 1, 0) if 0 < self._last_port < LAST_FREE else (0,)
        return chain(range(self._last_port + 1, self._ports.stop), range(self._ports.start, self._last_port + 1))

    def _miss(self, key: RelayKey, binds: Binds, reason: str) -> None:
        """Say once why a front cannot be reached."""
        if binds.port and key.front.address and not is_loopback(key.front):
            reason += "; to capture what others send there takes the capability NET_ADMIN"
        if self.missing.get(key) != reason:
            self.missing[key] = reason
            front = self._shared.relaying.front(key)
            log.warning("a Service cannot be reached", service=str(front.port.name) if front else "", reason=reason)


def where(half: FamilyPlan, key: RelayKey, to: Address | None) -> Binds:
    """Where a relay listens: at the node's address `to` for what is captured, else at the front itself."""
    if key.list:
        anywhere = "0.0.0.0" if key.family == "IPv4" else "::"
        return Binds((str(to) if to else anywhere,), 0)
    if not key.front.address:
        return Binds(node_port_binds(half), key.front.port)
    return Binds((key.front.address,), key.front.port)


def families() -> tuple[Family, ...]:
    """Those that this machine has sockets of: both, but where it was started without IPv6."""
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()
    except OSError:
        return FAMILIES[:1]
    return FAMILIES


def usable(address: Address | None) -> Address | None:
    """The address, if this machine really has it."""
    if address is None:
        return None
    try:
        listener(str(address), socket.SOCK_DGRAM, (0,)).close()
    except ListenError:
        return None
    return address
