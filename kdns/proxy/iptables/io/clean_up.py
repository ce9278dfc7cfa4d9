"""What mode iptables may have left."""

from __future__ import annotations

from typing import Final

from kdns.proxy.xtables.io.clean_up import CHAINS, MARKS

CLEAN_UPS: Final = (CHAINS, MARKS)
