"""The packet filter's Protocol for mode userspace: rules that lead packets for virtual IPs to relays of this node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kdns.net import Address, Family
from kdns.proxy.sync.io.proxier import RunningMode
from kdns.proxy.userspace.relays import RelayKey


class Capture(RunningMode, Protocol):
    """The rules of capturing relays. They are synced with the same plans as the relays.

    `relay_ports` are the ports of relays, and are kept current by the relays' owner. `relay_addresses` is where relays
    listen, by family; None for the address of the interface that a packet comes in on.
    """

    relay_ports: Mapping[RelayKey, int]
    relay_addresses: dict[Family, Address | None]

    def prepare(self) -> None:
        """Opens what has to have a low descriptor number, before relays open many."""
        ...
