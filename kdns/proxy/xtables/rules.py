"""Rules and chains of iptables as values, and the text that iptables-restore reads.

A rule is the text of its arguments, without the command and the chain. Text that is not kdns's own (names of Services,
of interfaces) gets into a rule by `comment` and `interface` only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from kdns.net import VERSION, Family, Network
from kdns.proxy.plan.plan import FamilyPlan, printable
from kdns.proxy.xtables.names import MARK_MASQUERADE, NAT, POSTROUTING

COMMENT_BYTES: Final = 255
"""iptables' limit for a comment."""

RESTORE: Final[dict[Family, str]] = {"IPv4": "iptables-restore", "IPv6": "ip6tables-restore"}
"""The programs that take the texts."""
OWNER: Final = "kdns"
"""The comment of the rule in the canary chain of table mangle. kube-proxy's canary chains are empty."""
LOCAL_DESTINATION: Final = "-m addrtype --dst-type LOCAL"
LOCAL_SOURCE: Final = "-m addrtype --src-type LOCAL"

Rule: TypeAlias = str


class Chain(NamedTuple):
    """A chain of one table with its rules in order."""

    table: str
    name: str
    rules: tuple[Rule, ...] = ()


class ChainRule(NamedTuple):
    """One rule of a chain that Services share, where order does not matter."""

    table: str
    chain: str
    rule: Rule


class Jump(NamedTuple):
    """The rule of a built-in chain that leads to one of ours, as the arguments of a program."""

    table: str
    chain: str
    rule: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(f'"{word}"' if " " in word else word for word in self.rule)


def jump(table: str, chain: str, target: str, *matches: str, text: str = "") -> Jump:
    commented = ("-m", "comment", "--comment", text) if text else ()
    return Jump(table, chain, (*matches, *commented, "-j", target))


def inserted(jumps: Collection[Jump]) -> str:
    """A restore that inserts jumps at the top of their chains, one after the other."""
    lines: list[str] = []
    for table in dict.fromkeys(jump.table for jump in jumps):
        lines += restore(table, (), (f"-I {jump.chain} {jump}" for jump in jumps if jump.table == table))
    return "\n".join((*lines, ""))


def quoted(text: str) -> str:
    """One argument: what could end the argument or the line becomes "?".

    iptables-restore knows escapes inside of quotation marks, so a backslash could end them.
    """
    return f'"{printable(text).replace(chr(92), "?")}"'


def comment(text: str) -> str:
    return f"-m comment --comment {quoted(text[:COMMENT_BYTES])}" if text else ""


def interface(name: str) -> str:
    """Matches packets that arrive on this interface; a name that ends in "+" is a prefix."""
    return f"-i {quoted(name)}"


def destination(address: str) -> str:
    return f"-d {host(address)}"


def source(network: Network | str) -> str:
    return f"-s {host(network) if isinstance(network, str) else network}"


def host(address: str) -> str:
    """As iptables-save prints it."""
    return f"{address}/128" if ":" in address else f"{address}/32"


def port(protocol: str, number: int) -> str:
    """`protocol` is in lower case."""
    return f"-p {protocol} -m {protocol} --dport {number}"


def rule(*parts: str) -> Rule:
    return " ".join(filter(None, parts))


def reject(family: Family) -> str:
    """The same ICMP error as kube-proxy's."""
    return f"-j REJECT --reject-with {'icmp' if VERSION[family] == VERSION['IPv4'] else 'icmp6'}-port-unreachable"


def restore(table: str, declared: Iterable[str], lines: Iterable[str], deleted: Sequence[str] = ()) -> Iterator[str]:
    """A restore of one table, with --noflush: declared chains are created or emptied, then lines are run.

    Chains to delete are emptied first too, since they may lead to each other.
    """
    yield f"*{table}"
    yield from (f":{name} - [0:0]" for name in declared)
    yield from (f":{name} - [0:0]" for name in deleted)
    yield from lines
    yield from (f"-X {name}" for name in deleted)
    yield "COMMIT"


def mark_masquerade(mark: str) -> Chain:
    """Marks packets to be masqueraded, with kdns's own mark.

    Every sync of a kube-proxy rewrites this chain, so kdns's mark shows that kdns wrote table nat last.
    """
    return Chain(NAT, MARK_MASQUERADE, (comment(OWNER), f"-j MARK --set-xmark {mark}/{mark}"))


def postrouting(mark: str) -> Chain:
    masquerade = rule(comment("kubernetes service traffic requiring SNAT"), "-j MASQUERADE --random-fully")
    unmarked = f"-m mark ! --mark {mark}/{mark} -j RETURN"
    return Chain(NAT, POSTROUTING, (unmarked, f"-j MARK --set-xmark {mark}/0x0", masquerade))


def local_pods(family_plan: FamilyPlan) -> str:
    """Matches packets of this node's Pods; "" if they cannot be detected."""
    pods = family_plan.local_pods
    if pods is None:
        return ""
    if pods.bridge:
        return interface(pods.bridge)
    return interface(f"{pods.interface_prefix}+") if pods.interface_prefix else source(pods.networks[0])


def not_local_pods(family_plan: FamilyPlan) -> str:
    """Empty if they cannot be detected."""
    found = local_pods(family_plan)
    return f"! {found}" if found else ""
