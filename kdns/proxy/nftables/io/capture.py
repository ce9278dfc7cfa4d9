"""Capture for relays by nftables: the table of mode nftables with relays in place of endpoints."""

from __future__ import annotations

from collections.abc import Mapping

from kdns.net import Address, Family
from kdns.proxy.nftables.capture import capture_table
from kdns.proxy.nftables.io import nft
from kdns.proxy.nftables.io.proxier import NftablesProxier
from kdns.proxy.nftables.objects import TABLE
from kdns.proxy.nftables.table import Table
from kdns.proxy.plan.plan import FamilyPlan
from kdns.proxy.userspace.relays import RelayKey


class NftablesCapture(NftablesProxier):
    """See `kdns.proxy.userspace.io.capture.Capture`."""

    def __init__(self) -> None:
        super().__init__()
        self.relay_ports: Mapping[RelayKey, int] = {}
        self.relay_addresses: dict[Family, Address | None] = {}

    def prepare(self) -> None:
        """See `nft.prepare`."""
        nft.prepare()

    def _table(self, family_plan: FamilyPlan) -> Table:
        return capture_table(family_plan, self.relay_ports, self.relay_addresses[family_plan.family])


async def capture_refusal() -> str:
    """Returns why nftables would reject rules that capture, "" if it would not. Nothing is changed.

    The capabilities of the process do not tell: in a user namespace it may have all, and none over the network.
    """
    chain = f"ip {TABLE}-check capture"
    return await nft.refusal() or await nft.check(
        f"add table ip {TABLE}-check",
        f"add chain {chain} {{ type nat hook prerouting priority dstnat; }}",
        f"add rule {chain} meta l4proto tcp redirect to :1",
    )


async def nftables_capture() -> tuple[NftablesCapture | None, str]:
    """Returns the capture, or None and the reason why nftables cannot do it here."""
    refusal = await capture_refusal()
    return (None, refusal) if refusal else (NftablesCapture(), "")
