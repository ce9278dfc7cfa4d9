"""Chains and matches that modes iptables and ipvs have in common."""

from __future__ import annotations

from typing import Final

from kdns.proxy.plan.plan import FamilyPlan
from kdns.proxy.xtables.names import MARK_MASQUERADE, NAT, POSTROUTING
from kdns.proxy.xtables.rules import Chain, comment, interface, rule, source

OWNER: Final = "kdns"
"""The comment of the rule in the canary chain of table mangle. kube-proxy's canary chains are empty."""
LOCAL_DESTINATION: Final = "-m addrtype --dst-type LOCAL"
LOCAL_SOURCE: Final = "-m addrtype --src-type LOCAL"


def mark_masquerade(mark: str) -> Chain:
    """Returns the chain that marks packets to be masqueraded, with kdns's own mark.

    Every sync of a kube-proxy rewrites this chain, so kdns's mark shows that kdns wrote table nat last.
    """
    return Chain(NAT, MARK_MASQUERADE, (comment(OWNER), f"-j MARK --set-xmark {mark}/{mark}"))


def postrouting(mark: str) -> Chain:
    masquerade = rule(comment("kubernetes service traffic requiring SNAT"), "-j MASQUERADE --random-fully")
    unmarked = f"-m mark ! --mark {mark}/{mark} -j RETURN"
    return Chain(NAT, POSTROUTING, (unmarked, f"-j MARK --set-xmark {mark}/0x0", masquerade))


def local_pods(family_plan: FamilyPlan) -> str:
    """Returns the match of packets of this node's Pods, "" if they cannot be detected."""
    pods = family_plan.local_pods
    if pods is None:
        return ""
    if pods.bridge:
        return interface(pods.bridge)
    return interface(f"{pods.interface_prefix}+") if pods.interface_prefix else source(pods.networks[0])


def not_local_pods(family_plan: FamilyPlan) -> str:
    """Returns the match of all other packets, "" if they cannot be detected."""
    found = local_pods(family_plan)
    return f"! {found}" if found else ""
