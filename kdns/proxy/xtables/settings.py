"""The section `iptables`, of all modes that mark packets through iptables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from kdns.proxy.settings.section import Flag, Masquerading, Problem, pointer


@dataclass(frozen=True, slots=True)
class IptablesSettings(Masquerading):
    """`localhost_node_ports` counts for IPv4 only."""

    PATH: ClassVar[str] = "iptables"
    FLAGS: ClassVar[tuple[Flag, ...]] = (
        Flag("iptables-masquerade-bit", "int32", "masquerade_bit", "Modes iptables, ipvs: the mark's bit, 0-31."),
        Flag("iptables-localhost-nodeports", "bool", "localhost_node_ports", "Node ports at 127.0.0.1."),
        Flag(
            "iptables-sync-period",
            "duration",
            "sync_period_s",
            "The longest retry delay; not in mode ipvs.",
            is_of_mode=True,
        ),
        Flag(
            "iptables-min-sync-period",
            "duration",
            "min_sync_period_s",
            "From one sync to the next; not in mode ipvs.",
            is_of_mode=True,
        ),
    )

    localhost_node_ports: bool = pointer(default=True)

    def problems(self, *, is_used: bool) -> Iterator[Problem]:
        """The bit counts in no mode but those of iptables, and is checked in all, as in kube-proxy."""
        del is_used
        return self.bit_problems()
