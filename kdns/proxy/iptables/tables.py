"""The restores that lead one family's tables from one plan to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from kdns.proxy.iptables.frame import JUMPS, Features, frame
from kdns.proxy.iptables.fronts import front_rules, port_rules
from kdns.proxy.iptables.names import FILTER, FIREWALL, MANGLE, NAT, NODE_PORTS, SERVICE_PREFIXES, SERVICES
from kdns.proxy.iptables.rules import Chain, Jump, Placed, Rule, restore
from kdns.proxy.iptables.service_chains import service_chains
from kdns.proxy.plan.plan import FamilyPlan, PortName, PortPlan
from kdns.proxy.plan.planner import Difference

LARGE: Final = 1000
"""With more endpoints in a family, their rules have no comments."""
_LEADING: Final = ((NAT, SERVICES), (NAT, NODE_PORTS))
"""The chains that lead to Service ports' chains."""
_DELETED_AT_ONCE: Final = 500
_TABLES: Final = (FILTER, NAT, MANGLE)
"""In the order of a restore. The chain that says whose the rules are is in the last."""


class Tables:
    """One family's chains, which follow its half of the plan. One event loop owns it."""

    def __init__(self, half: FamilyPlan, features: Features) -> None:
        self.half, self.features = half, features
        self._endpoints = sum(_endpoints(port) for port in half.ports.values())

    @property
    def jumps(self) -> tuple[Jump, ...]:
        """The jumps from built-in chains, in the order in which they are to be inserted at the top."""
        return JUMPS

    @property
    def _has_comments(self) -> bool:
        return self._endpoints <= LARGE

    def whole(self, there: Mapping[str, Collection[str]]) -> str:
        """Everything, as input of iptables-restore --noflush, where there are these chains by table.

        Chains of Service ports that are of no use any more are deleted. KUBE-FIREWALL, which the kubelet uses too, is
        not emptied where nothing is to be in it.

        A Service port's chains are of one commit. Where there are several, those that lead to Service ports' chains are
        committed behind them, so packets see the old way or the new one.
        """
        shared = self._shared()
        fixed: dict[str, list[Chain]] = {FILTER: [], NAT: [], MANGLE: []}
        for chain in frame(self.half, self.features):
            if chain.rules or chain.name != FIREWALL or chain.name not in there.get(chain.table, ()):
                rules = shared.get((chain.table, chain.name), ())
                fixed[chain.table].append(chain._replace(rules=(*rules, *chain.rules)))
        leading = [chain for chain in fixed[NAT] if (NAT, chain.name) in _LEADING]
        others = [chain for chain in fixed[NAT] if (NAT, chain.name) not in _LEADING]
        batches, names = self._batches(), set[str]()
        lines = [*_section(FILTER, fixed[FILTER])]
        if not self.features.ports_per_section:
            own = [chain for batch in batches for chain in batch]
            stale = _stale(there, {chain.name for chain in own})
            lines += _section(NAT, (*others, *own, *leading), stale)
        else:
            lines += _section(NAT, others)
            for batch in batches:
                names |= {chain.name for chain in batch}
                lines += _section(NAT, batch)
            lines += _section(NAT, leading)
            stale = _stale(there, names)
            for some in range(0, len(stale), _DELETED_AT_ONCE):
                lines += _section(NAT, (), stale[some : some + _DELETED_AT_ONCE])
        return "\n".join((*lines, *_section(MANGLE, fixed[MANGLE]), ""))

    def _batches(self) -> Iterator[list[Chain]]:
        """The chains of some Service ports at a time."""
        ports = iter(self.half.ports.values())
        while some := list(islice(ports, self.features.ports_per_section or None)):
            has_comments = self._has_comments
            yield [chain for port in some for chain in service_chains(port, self.half, has_comments=has_comments)]

    def _shared(self) -> dict[tuple[str, str], list[Rule]]:
        """The rules of the chains that Services share, by table and chain.

        iptables-nft finds the place of a target in a list of them by walking it, so the last name comes first.
        """
        rules: dict[tuple[str, str], list[Rule]] = {}
        for port in self.half.ports.values():
            for placed in port_rules(port, self.half):
                rules.setdefault((placed.table, placed.chain), []).append(placed.rule)
        for front in self.half.fronts.values():
            for placed in front_rules(front, self.half, self.features):
                rules.setdefault((placed.table, placed.chain), []).append(placed.rule)
        for chain in _LEADING:
            rules.get(chain, []).sort(key=_target, reverse=True)
        return rules

    def follow(self, half: FamilyPlan, difference: Difference) -> str:
        """The partial restore that leads to this plan: chains and rules that differ; "" where none does."""
        before, had_comments, self.half = self.half, self._has_comments, half
        ports: dict[PortName, None] = dict.fromkeys(difference.ports)
        ports |= {front.port.name: None for pair in difference.fronts.values() for front in pair if front}
        self._endpoints += sum(
            (_endpoints(new) if new else 0) - (_endpoints(old) if old else 0) for old, new in difference.ports.values()
        )
        written: list[Chain] = []
        stale: list[str] = []
        removed: list[Placed] = []
        added: list[Placed] = []
        for name in ports:
            old, new = before.ports.get(name), half.ports.get(name)
            _compare(port_rules(old, before) if old else (), port_rules(new, half) if new else (), removed, added)
            then, now = _chains(old, before, had_comments), _chains(new, half, self._has_comments)
            written += [chain for chain in now.values() if then.get(chain.name) != chain]
            stale += [each for each in then if each not in now]
        for front_before, front in difference.fronts.values():
            _compare(
                front_rules(front_before, before, self.features) if front_before else (),
                front_rules(front, half, self.features) if front else (),
                removed,
                added,
            )
        lines: list[str] = []
        for table in _TABLES:
            chains = written if table == NAT else []
            changes = [
                *(line for chain in chains for line in _appended(chain)),
                *(f"-D {each.chain} {each.rule}" for each in removed if each.table == table),
                *(f"-I {each.chain} {each.rule}" for each in reversed(added) if each.table == table),
            ]
            deleted = stale if table == NAT else []
            if changes or chains or deleted:
                lines += restore(table, (chain.name for chain in chains), changes, deleted)
        return "\n".join((*lines, "")) if lines else ""


def is_service_chain(name: str) -> bool:
    """Whether a chain of table nat is one of a Service port, kube-proxy's or ours."""
    return name.startswith(SERVICE_PREFIXES)


def _chains(port: PortPlan | None, half: FamilyPlan, has_comments: bool) -> dict[str, Chain]:
    chains = service_chains(port, half, has_comments=has_comments) if port else ()
    return {chain.name: chain for chain in chains}


def _target(rule: Rule) -> str:
    return rule.rpartition(" ")[2]


def _stale(there: Mapping[str, Collection[str]], names: Collection[str]) -> list[str]:
    """Those that are of no use any more, each before what its rules lead to."""
    stale = [each for each in there.get(NAT, ()) if is_service_chain(each) and each not in names]
    return sorted(stale, key=lambda name: next(i for i, each in enumerate(SERVICE_PREFIXES) if name.startswith(each)))


def _section(table: str, chains: Collection[Chain], deleted: Sequence[str] = ()) -> Iterator[str]:
    """The lines of one commit that makes or refills these chains."""
    appended = (line for chain in chains for line in _appended(chain))
    return restore(table, (chain.name for chain in chains), appended, deleted)


def _appended(chain: Chain) -> Iterator[str]:
    return (f"-A {chain.name} {each}" for each in chain.rules)


def _endpoints(port: PortPlan) -> int:
    return len(port.endpoints.reachable)


def _compare(before: Iterable[Placed], after: Iterable[Placed], removed: list[Placed], added: list[Placed]) -> None:
    """Add what is to be deleted and what is to be inserted."""
    old, new = Counter(before), Counter(after)
    removed += (old - new).elements()
    added += (new - old).elements()
