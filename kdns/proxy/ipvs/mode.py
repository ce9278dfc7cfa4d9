"""Mode ipvs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kdns.proxy.ipvs.settings import IpvsSettings, chosen_by
from kdns.proxy.mode import Mode
from kdns.proxy.plan.semantics import Semantics
from kdns.proxy.xtables.settings import IptablesSettings

if TYPE_CHECKING:
    from kdns.proxy.plan.plan import Plan
    from kdns.proxy.settings.settings import Settings

IPVS: Final = Semantics(
    "ipvs",
    guards_without_endpoints=True,
    rejects_undefined_ports=True,
    link_local_node_ports=False,
    accepts_health_checks=True,
    has_one_list=True,
    owns_addresses=True,
)


def _text(plan: Plan, settings: Settings) -> str:
    from kdns.proxy.ipvs.ipvs import IpvsOptions  # noqa: PLC0415 - nothing else of the mode is imported for its row
    from kdns.proxy.ipvs.text import ipvs_text  # noqa: PLC0415 - nothing else of the mode is imported for its row

    return ipvs_text(plan, IpvsOptions.of(settings))


MODE: Final = Mode(
    IPVS,
    "kdns.proxy.ipvs",
    _text,
    IptablesSettings,
    own_periods=IpvsSettings,
    sync_failures="kubeproxy_sync_proxy_rules_iptables_restore_failures",
    cleanup_failures="kdns_proxy_ipvs_cleanup_failures",
    fallbacks=("iptables", "nftables"),
    deprecated="ipvs is deprecated in Kubernetes since 1.35. Consider using `nftables`",
    is_common=True,
    chosen_by=lambda settings: chosen_by(settings.section(IpvsSettings).kernel_scheduler),
)
