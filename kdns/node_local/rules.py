"""Rules of a node-local DNS cache: its packets are not tracked, so that no table of connections fills up with queries.

Packets that are not tracked pass by the rules of Services too: the cluster IP of `kube-dns` is then the node's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kdns.net import is_ipv6

TABLE: Final = "kdns-node-local"
DELETION: Final = f"delete table inet {TABLE}"
"""Fails if the table does not exist."""
RAW: Final = -300
"""The priority of iptables' table raw, ahead of connection tracking."""


def ruleset(addresses: Iterable[str], ports: Iterable[int], health_port: int | None) -> str:
    """Text of nft, to be loaded in one transaction in place of the table before."""
    listed = {family: [each for each in addresses if is_ipv6(each) == family] for family in (False, True)}
    udp = ", ".join(map(str, sorted(set(ports))))
    tcp = ", ".join(map(str, sorted({*ports, *([health_port] if health_port else ())})))
    incoming, outgoing = [], []
    for is_six, own in listed.items():
        if own:
            family, each = ("ip6" if is_six else "ip"), ", ".join(own)
            for protocol, numbers in (("udp", udp), ("tcp", tcp)):
                asked = f"    {family} daddr {{ {each} }} {protocol} dport {{ {numbers} }} notrack"
                incoming.append(asked)
                outgoing += [asked, f"    {family} saddr {{ {each} }} {protocol} sport {{ {numbers} }} notrack"]
    return "\n".join((
        f"table inet {TABLE}",
        DELETION,
        f"table inet {TABLE} {{",
        '  comment "kdns: the node-local DNS cache is not tracked"',
        "  chain prerouting {",
        f"    type filter hook prerouting priority {RAW}; policy accept;",
        *incoming,
        "  }",
        "  chain output {",
        f"    type filter hook output priority {RAW}; policy accept;",
        *outgoing,
        "  }",
        "}",
    ))  # fmt: skip


def removal() -> str:
    """Works whether the table exists or not."""
    return f"table inet {TABLE}\n{DELETION}"
