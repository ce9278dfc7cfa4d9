"""What a mode applies to a node, as text: one row per mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kdns.errors import InputError
from kdns.proxy.config import FAMILIES
from kdns.proxy.nfttable import Table
from kdns.proxy.plan import Plan
from kdns.proxy.settings import Settings
from kdns.proxy.userspace import userspace_text


def nftables_text(plan: Plan, settings: Settings) -> str:
    """Both tables, as one transaction for `nft -f`."""
    return "".join(Table(plan.of(family)).whole(mark=settings.mark) for family in FAMILIES)


RENDERERS: Final[Mapping[str, Callable[[Plan, Settings], str]]] = {
    "nftables": nftables_text,
    "userspace": lambda plan, _: userspace_text(plan),
}


def rendered(plan: Plan, settings: Settings) -> str:
    """The text of the settings' mode; InputError for a mode that nothing renders."""
    if settings.mode not in RENDERERS:
        raise InputError(f"mode {settings.mode} cannot be rendered yet; there is {', '.join(RENDERERS)}")
    return RENDERERS[settings.mode](plan, settings)
