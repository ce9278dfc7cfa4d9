"""Mode nftables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from kdns.proxy.mode import Mode
from kdns.proxy.plan.semantics import Semantics
from kdns.proxy.settings.section import Masquerading, Problem

if TYPE_CHECKING:
    from kdns.proxy.plan.plan import Plan
    from kdns.proxy.settings.settings import Settings

NFTABLES: Final = Semantics(
    "nftables",
    guards_without_endpoints=True,
    rejects_undefined_ports=True,
    drops_unallocated=True,
    primary_node_ports=True,
)


@dataclass(frozen=True, slots=True)
class NftablesSettings(Masquerading):
    """The section `nftables`; kube-proxy has no flags for it."""

    PATH: ClassVar[str] = "nftables"

    def problems(self, *, is_used: bool) -> Iterator[Problem]:
        if is_used:
            yield from self.bit_problems()


def _text(plan: Plan, settings: Settings) -> str:
    from kdns.proxy.nftables.table import ruleset  # noqa: PLC0415 - nothing else of the mode is imported for its row

    return ruleset(plan, settings.section(NftablesSettings).mark)


MODE: Final = Mode(
    NFTABLES,
    "kdns.proxy.nftables",
    _text,
    NftablesSettings,
    sync_failures="kubeproxy_sync_proxy_rules_nftables_sync_failures",
    cleanup_failures="kubeproxy_sync_proxy_rules_nftables_cleanup_failures",
    is_common=True,
)
