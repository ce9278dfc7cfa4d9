"""The renderers of the proxy modes: a plan as the text of its mode, for people and for tests.

A mode's part of the kernel and its sockets have a row of the same name in `takeover/io/modes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kdns.proxy.iptables.text import iptables_text
from kdns.proxy.ipvs.text import ipvs_text
from kdns.proxy.nftables.capture import userspace_text
from kdns.proxy.nftables.table import ruleset
from kdns.proxy.plan.plan import Plan

RENDERERS: Final[Mapping[str, Callable[[Plan], str]]] = {
    "nftables": ruleset,
    "iptables": iptables_text,
    "ipvs": ipvs_text,
    "userspace": userspace_text,
}


def rendered(plan: Plan) -> str:
    """Returns the text of a plan, which has a mode of kdns's."""
    return RENDERERS[plan.ipv4.mode.name](plan)
