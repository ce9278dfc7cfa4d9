"""What mode userspace may have left: rules that capture for relays."""

from __future__ import annotations

from typing import Final

from kdns.proxy.nftables.io.clean_up import TABLES
from kdns.proxy.xtables.io.clean_up import CHAINS, MARKS

CLEAN_UPS: Final = (TABLES, CHAINS, MARKS)
