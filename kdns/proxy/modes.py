"""The modes that kdns has: one row each."""

from __future__ import annotations

from typing import Final

from kdns.proxy.iptables import mode as iptables
from kdns.proxy.ipvs import mode as ipvs
from kdns.proxy.kernelspace import mode as kernelspace
from kdns.proxy.mode import Mode
from kdns.proxy.nftables import mode as nftables
from kdns.proxy.settings.section import Section
from kdns.proxy.userspace import mode as userspace

MODES: Final[dict[str, Mode]] = {
    mode.name: mode for mode in (nftables.MODE, iptables.MODE, ipvs.MODE, userspace.MODE, kernelspace.MODE)
}


def relaying() -> str:
    """Returns the names of the modes that need no rules for the machine's own addresses."""
    return " or ".join(mode.name for mode in MODES.values() if mode.semantics.relays)


def sections() -> tuple[type[Section], ...]:
    return tuple(dict.fromkeys(section for mode in MODES.values() for section in mode.sections))
