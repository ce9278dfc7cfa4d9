"""Mode userspace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from kdns.net import FAMILIES, MAX_PORT
from kdns.proxy.mode import Mode, Switch
from kdns.proxy.nftables.mode import NftablesSettings
from kdns.proxy.plan.semantics import TCP_UDP, Semantics
from kdns.proxy.settings.section import POSITIVE, Flag, Problem, Seconds, Section, invalid
from kdns.proxy.xtables.settings import IptablesSettings

if TYPE_CHECKING:
    from kdns.proxy.plan.plan import Plan
    from kdns.proxy.settings.settings import Settings

USERSPACE: Final = Semantics(
    "userspace",
    protocols=TCP_UDP,
    guards_without_endpoints=True,
    rejects_undefined_ports=True,
    drops_unallocated=True,
    loopback_node_ports=frozenset({"IPv4", "IPv6"}),
    relays=True,
)
_PORT_RANGE: Final = re.compile(r"\s*(?:([0-9]{1,5})(?:([-+])([0-9]{1,5}))?)?\s*")


@dataclass(frozen=True, slots=True)
class UserspaceSettings(Section):
    """Fields of the document itself, which kube-proxy had up to 1.25, with its mode userspace."""

    FLAGS: ClassVar[tuple[Flag, ...]] = (
        Flag("udp-timeout", "duration", "udp_idle_timeout_s", "Mode userspace: how long an idle UDP client is known."),
        Flag("proxy-port-range", "string", "port_range", "Mode userspace: the relays' ports, such as 300-2000."),
    )

    udp_idle_timeout_s: float = 0.25
    port_range: str = ""

    @property
    def relay_ports(self) -> range | None:
        """The ports of 300-2000, 300+1700, or a single one; empty for "" and 0, the kernel's choice; None: invalid."""
        match = _PORT_RANGE.fullmatch(self.port_range)
        if not match:
            return None
        first, last = int(match[1] or 0), int(match[3] or match[1] or 0)
        if match[2] == "+":
            last = min(first + last, MAX_PORT)
        if not first <= last <= MAX_PORT:
            return None
        return range(first, last + 1) if last else range(0)

    def problems(self, *, is_used: bool) -> Iterator[Problem]:
        del is_used
        if self.udp_idle_timeout_s <= 0:
            yield invalid("udpIdleTimeout", Seconds(self.udp_idle_timeout_s), POSITIVE)
        if self.relay_ports is None:
            yield invalid("portRange", self.port_range, "must be a valid port range (e.g. 300-2000)")


def _text(plan: Plan, settings: Settings) -> str:
    """Returns a description of every relay, and the rules of nftables that capture for relays."""
    from kdns.proxy.nftables.table import ruleset  # noqa: PLC0415 - nothing else of the mode is imported for its row
    from kdns.proxy.userspace.capture import Capture  # noqa: PLC0415
    from kdns.proxy.userspace.relays import listing, relay_addresses  # noqa: PLC0415

    lines, numbers = listing(plan)
    addresses = {family: next(relay_addresses(plan.of(family))) for family in FAMILIES}
    rules = ruleset(Capture(plan, numbers, addresses).plan, settings.section(NftablesSettings).mark)
    return "\n".join((*lines, "", rules))


MODE: Final = Mode(
    USERSPACE,
    "kdns.proxy.userspace",
    _text,
    NftablesSettings,
    own=(UserspaceSettings, IptablesSettings),
    sync_failures="kdns_proxy_userspace_sync_failures",
    cleanup_failures="kdns_proxy_userspace_cleanup_failures",
    loopback_switch=Switch(IptablesSettings, "localhost_node_ports"),
    chosen_by=lambda _settings: "each in turn",
)
