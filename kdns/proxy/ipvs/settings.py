"""The section `ipvs` of the settings, and the schedulers that it may name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from kdns.proxy.settings.section import CIDR, Flag, Periods, Problem, invalid, is_cidr, negative

DEFAULT_SCHEDULER: Final = "rr"
"""Round robin, kube-proxy's default of ipvs.scheduler."""
SCHEDULERS: Final = {
    "rr": "each in turn",
    "wrr": "each in turn",
    "lc": "the one with the fewest connections",
    "wlc": "the one with the fewest connections",
    "lblc": "the same as long as it has not too many connections",
    "lblcr": "of those used before the one with the fewest connections, and others where these have too many",
    "dh": "by a hash of the destination, always the same",
    "sh": "by a hash of the client's address",
    "mh": "by a hash of the client's address and port",
    "sed": "the one with the shortest expected delay, that is the fewest connections",
    "nq": "one without connections, or else the one with the shortest expected delay",
    "fo": "always the same, as long as it is there",
    "ovf": "the same as long as it has no connection, then the next",
    "twos": "the one with fewer connections of two that are drawn",
}
"""The kernel's schedulers, and which endpoint each chooses where all have the same weight."""


@dataclass(frozen=True, slots=True)
class IpvsSettings(Periods):
    """The section `ipvs`; a timeout of 0 leaves the kernel's."""

    PATH: ClassVar[str] = "ipvs"
    FLAGS: ClassVar[tuple[Flag, ...]] = (
        Flag("ipvs-sync-period", "duration", "sync_period_s", "Mode ipvs: the longest retry delay."),
        Flag("ipvs-min-sync-period", "duration", "min_sync_period_s", "Mode ipvs: from one sync to the next."),
        Flag("ipvs-scheduler", "string", "scheduler", "Mode ipvs: how an endpoint is chosen, such as rr."),
        Flag("ipvs-exclude-cidrs", "stringSlice", "exclude_cidrs", "Mode ipvs: addresses that clean-up leaves alone."),
        Flag("ipvs-strict-arp", "bool", "strict_arp", "Mode ipvs: answer ARP for own addresses only."),
        Flag("ipvs-tcp-timeout", "duration", "tcp_timeout_s", "Mode ipvs: idle TCP; 0 leaves it."),
        Flag("ipvs-tcpfin-timeout", "duration", "tcp_fin_timeout_s", "Mode ipvs: TCP after a FIN; 0 leaves it."),
        Flag("ipvs-udp-timeout", "duration", "udp_timeout_s", "Mode ipvs: idle UDP; 0 leaves it."),
    )

    min_sync_period_s: float = 0.0
    scheduler: str = ""
    exclude_cidrs: tuple[str, ...] = ()
    strict_arp: bool = False
    tcp_timeout_s: float = 0.0
    tcp_fin_timeout_s: float = 0.0
    udp_timeout_s: float = 0.0

    @property
    def kernel_scheduler(self) -> str:
        return self.scheduler or DEFAULT_SCHEDULER

    def problems(self, *, is_used: bool) -> Iterator[Problem]:
        if is_used:
            yield from negative(self.PATH, self, "tcp_timeout_s", "tcp_fin_timeout_s", "udp_timeout_s")
            for index, cidr in enumerate(self.exclude_cidrs):
                if not is_cidr(cidr):
                    yield invalid(f"ipvs.excludeCIDRs[{index}]", cidr, CIDR)


def chosen_by(scheduler: str) -> str:
    """Words that follow "one of 3 endpoints,"."""
    return SCHEDULERS.get(scheduler, f"as the kernel's scheduler {scheduler} chooses")
