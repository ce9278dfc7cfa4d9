"""Mode iptables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kdns.proxy.mode import Mode, Switch
from kdns.proxy.plan.semantics import Semantics
from kdns.proxy.xtables.settings import IptablesSettings

if TYPE_CHECKING:
    from kdns.proxy.plan.plan import Plan
    from kdns.proxy.settings.settings import Settings

IPTABLES: Final = Semantics(
    "iptables",
    hairpins_everywhere=True,
    loopback_node_ports=frozenset({"IPv4"}),
    accepts_health_checks=True,
    routes_loopback=True,
)


def _text(plan: Plan, settings: Settings) -> str:
    from kdns.proxy.iptables.base_chains import Features  # noqa: PLC0415 - nothing else is imported for the mode's row
    from kdns.proxy.iptables.tables import iptables_text  # noqa: PLC0415 - nothing else of the mode is imported for its row

    return iptables_text(plan, Features(masquerade_mark=settings.section(IptablesSettings).mark))


MODE: Final = Mode(
    IPTABLES,
    "kdns.proxy.iptables",
    _text,
    IptablesSettings,
    sync_failures="kubeproxy_sync_proxy_rules_iptables_restore_failures",
    cleanup_failures="kdns_proxy_iptables_cleanup_failures",
    is_common=True,
    loopback_switch=Switch(IptablesSettings, "localhost_node_ports"),
)
