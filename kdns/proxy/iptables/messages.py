"""Which of nftables' messages are about mode iptables' rules. Other programs write the same tables, and often: only
what changes our chains, or the jumps to them, counts.

Differs: kube-proxy looks every 30 s whether a chain of table mangle is there. It does not notice a flush of nat alone,
or of a Service's chain, until a full sync is due for other reasons.
"""

from __future__ import annotations

from typing import Final

from kdns.netlink import uapi
from kdns.netlink.protocol import ADDRESS_FAMILY, NFGENMSG, Message, attributes, text_of
from kdns.netlink.xtables import chains_in
from kdns.proxy.xtables.names import FILTER, FIREWALL, FIXED, is_iptables_chain

_LOOPBACK: Final = (FILTER, FIREWALL)
_REMOVALS: Final = {uapi.NFT_MSG_DELRULE, uapi.NFT_MSG_DELCHAIN}


def changes_rules(message: Message) -> bool:
    """Whether a message changes our chains, or removes a jump to them.

    In KUBE-FIREWALL others may add rules. It has the rule without which route_localnet lets others reach 127.0.0.1.
    """
    body, kind = message.body, message.kind & 0xFF
    if body[0] not in ADDRESS_FAMILY.values() or (b"KUBE-" not in body and kind != uapi.NFT_MSG_DELTABLE):
        return False
    row = attributes(body, NFGENMSG.size)
    table = text_of(row.get(uapi.NFTA_TABLE_NAME, b""))
    if kind == uapi.NFT_MSG_DELTABLE or table not in FIXED:
        return table in FIXED
    is_rule = kind in {uapi.NFT_MSG_NEWRULE, uapi.NFT_MSG_DELRULE}
    chain = text_of(row.get(uapi.NFTA_RULE_CHAIN if is_rule else uapi.NFTA_CHAIN_NAME, b""))
    is_loopback = (table, chain) == _LOOPBACK
    if is_iptables_chain(table, chain) and not is_loopback:
        return True
    if kind not in _REMOVALS:
        return False
    targets = chains_in(body) if kind == uapi.NFT_MSG_DELRULE else ()
    return is_loopback or any(is_iptables_chain(table, target) for target in targets)
