"""The restores that lead one family's tables from one plan to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from sys import maxsize
from typing import Final

from kdns.net import FAMILIES
from kdns.proxy.iptables.base_chains import FEATURES, JUMPS, Features, base_chains
from kdns.proxy.iptables.fronts import front_rules, port_rules
from kdns.proxy.iptables.service_chains import FrontAt, service_chains
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKey, Plan, PortName, PortPlan
from kdns.proxy.plan.planner import Difference
from kdns.proxy.xtables.names import (
    FILTER,
    FIREWALL,
    MANGLE,
    NAT,
    NODE_PORTS,
    SERVICES,
    is_service_chain,
    rank,
)
from kdns.proxy.xtables.rules import RESTORE, Chain, ChainRule, Rule, inserted, restore

LARGE: Final = 1000
"""With more endpoints in a family, their rules have no comments."""
_LEADING: Final = ((NAT, SERVICES), (NAT, NODE_PORTS))
"""The chains that lead to Service ports' chains."""
_DELETED_AT_ONCE: Final = 500


class Tables:
    """One family's chains, which follow the family's plan. One event loop owns it."""

    def __init__(self, family_plan: FamilyPlan, features: Features) -> None:
        self.family_plan, self.features = family_plan, features
        self._endpoints = sum(_endpoints(port) for port in family_plan.ports.values())

    @property
    def _has_comments(self) -> bool:
        return self._endpoints <= LARGE

    def whole(self, existing: Mapping[str, Collection[str]]) -> str:
        """Everything as input of iptables-restore --noflush; `existing` has the kernel's chains by table.

        Chains of Service ports that are of no use any more are deleted. KUBE-FIREWALL, which the kubelet uses too, is
        not emptied where nothing is to be in it.

        Where it takes several commits, each Service port's chains are of one, and those that lead to Service ports'
        chains are of a later one, so packets see the old way or the new one. What is to be refused is so before it
        leads nowhere, and what was refused leads to endpoints before it is not, where such chains are there already.
        """
        shared = self._shared()
        fixed: dict[str, list[Chain]] = {FILTER: [], NAT: [], MANGLE: []}
        for base in base_chains(self.family_plan, self.features):
            if base.rules or base.name != FIREWALL or base.name not in existing.get(base.table, ()):
                rules = shared.get((base.table, base.name), ())
                fixed[base.table].append(base._replace(rules=(*rules, *base.rules)))
        leading = [base for base in fixed[NAT] if (NAT, base.name) in _LEADING]
        others = [base for base in fixed[NAT] if (NAT, base.name) not in _LEADING]
        own = (
            list(_chains(port, self.family_plan, self.family_plan.fronts.get, self._has_comments).values())
            for port in self.family_plan.ports.values()
        )
        stale = [name for name in existing.get(NAT, ()) if is_service_chain(name)]
        early = [
            f"-I {name} {rule}"
            for (table, name), rules in shared.items()
            if table == FILTER and name in existing.get(table, ())
            for rule in rules
        ]
        lines = (
            *_section(FILTER, (), early),
            *self._nat(chain([others], own), leading, (), stale, _section(FILTER, fixed[FILTER])),
            *_section(MANGLE, fixed[MANGLE]),
        )
        return "\n".join((*lines, ""))

    def _nat(
        self,
        ports: Iterable[Sequence[Chain]],
        leading: Sequence[Chain],
        changes: Sequence[str],
        stale: Iterable[str],
        refusals: Iterable[str],
    ) -> Iterator[str]:
        """The commits of table nat, and those of table filter that must follow at once.

        First the chains of Service ports, then the chains that lead to them or changes of these, then the deletion of
        stale chains that are not among the former.
        """
        limit = self.features.chains_per_section or maxsize
        left = dict.fromkeys(stale)
        some: list[Chain] = []
        is_whole = True
        for chains in ports:
            if some and len(some) + len(chains) > limit:
                yield from _section(NAT, some)
                some, is_whole = [], False
            some += chains
            for written in chains:
                left.pop(written.name, None)
        deleted = sorted(left, key=rank)
        if is_whole and len(some) + len(deleted) <= limit:
            yield from _section(NAT, (*some, *leading), changes, deleted)
            yield from refusals
            return
        yield from _section(NAT, some)
        yield from _section(NAT, leading, changes)
        yield from refusals
        for start in range(0, len(deleted), _DELETED_AT_ONCE):
            yield from _section(NAT, (), (), deleted[start : start + _DELETED_AT_ONCE])

    def _shared(self) -> dict[tuple[str, str], list[Rule]]:
        """The rules of the chains that Services share, by table and chain.

        iptables-nft finds the place of a target in a list of them by walking it, so the last name comes first.
        """
        rules: dict[tuple[str, str], list[Rule]] = {}
        for port in self.family_plan.ports.values():
            for chain_rule in port_rules(port, self.family_plan):
                rules.setdefault((chain_rule.table, chain_rule.chain), []).append(chain_rule.rule)
        for front in self.family_plan.fronts.values():
            for chain_rule in front_rules(front, self.family_plan, self.features):
                rules.setdefault((chain_rule.table, chain_rule.chain), []).append(chain_rule.rule)
        for at in _LEADING:
            rules.get(at, []).sort(key=_target, reverse=True)
        return rules

    def follow(self, family_plan: FamilyPlan, difference: Difference) -> str:
        """The partial restore that leads to this plan: chains and rules that differ; "" if none does.

        A front that gets endpoints or loses the last one is refused until it leads to them, or before it does not.

        Differs: kube-proxy writes the chains that Services share as a whole, and every chain of a changed Service. With
        10,000 Services that takes a second. It writes table filter first, whatever the change.
        """
        had_comments, self.family_plan = self._has_comments, family_plan

        def front_before(key: FrontKey) -> Front | None:
            return difference.fronts[key][0] if key in difference.fronts else family_plan.fronts.get(key)

        ports: dict[PortName, None] = dict.fromkeys(difference.ports)
        ports |= {front.port.name: None for pair in difference.fronts.values() for front in pair if front}
        self._endpoints += sum(
            (_endpoints(new) if new else 0) - (_endpoints(old) if old else 0) for old, new in difference.ports.values()
        )
        written: list[list[Chain]] = []
        stale: list[str] = []
        removed: list[ChainRule] = []
        added: list[ChainRule] = []
        for name in ports:
            kept = family_plan.ports.get(name)
            old, new = difference.ports.get(name, (kept, kept))
            _compare(
                port_rules(old, family_plan) if old else (), port_rules(new, family_plan) if new else (), removed, added
            )
            then = _chains(old, family_plan, front_before, had_comments)
            now = _chains(new, family_plan, family_plan.fronts.get, self._has_comments)
            written.append([new_chain for name, new_chain in now.items() if then.get(name) != new_chain])
            stale += [name for name in then if name not in now]
        for pair in difference.fronts.values():
            old_rules, new_rules = (front_rules(front, family_plan, self.features) if front else () for front in pair)
            _compare(old_rules, new_rules, removed, added)
        added.reverse()  # each is inserted before those that were inserted before it
        added.sort(key=lambda chain_rule: _target(chain_rule.rule), reverse=True)
        changes = (*_lines("-D", NAT, removed), *_lines("-I", NAT, added))
        lines = (
            *_section(FILTER, (), _lines("-I", FILTER, added)),
            *self._nat(written, (), changes, stale, _section(FILTER, (), _lines("-D", FILTER, removed))),
        )
        return "\n".join((*lines, "")) if lines else ""


def _lines(command: str, table: str, chain_rules: Iterable[ChainRule]) -> list[str]:
    return [f"{command} {row.chain} {row.rule}" for row in chain_rules if row.table == table]


def _chains(port: PortPlan | None, family_plan: FamilyPlan, front_at: FrontAt, has_comments: bool) -> dict[str, Chain]:
    chains = service_chains(port, family_plan, front_at, has_comments=has_comments) if port else ()
    return {chain.name: chain for chain in chains}


def _target(rule: Rule) -> str:
    return rule.rpartition(" ")[2]


def _section(
    table: str, chains: Collection[Chain], changes: Sequence[str] = (), deleted: Sequence[str] = ()
) -> Iterator[str]:
    """The lines of one commit; none for nothing."""
    if chains or changes or deleted:
        appended = (f"-A {declared.name} {rule}" for declared in chains for rule in declared.rules)
        yield from restore(table, (declared.name for declared in chains), chain(appended, changes), deleted)


def _endpoints(port: PortPlan) -> int:
    return len({*port.endpoints.cluster, *port.endpoints.local})


def _compare(
    before: Iterable[ChainRule], after: Iterable[ChainRule], removed: list[ChainRule], added: list[ChainRule]
) -> None:
    old, new = Counter(before), Counter(after)
    removed += (old - new).elements()
    added += (new - old).elements()


def iptables_text(plan: Plan, features: Features = FEATURES) -> str:
    """Both families' restores, each for the program that it names."""
    return "\n".join(family_text(plan.of(family), features) for family in FAMILIES)


def family_text(family_plan: FamilyPlan, features: Features = FEATURES) -> str:
    rules = Tables(family_plan, features).whole({})
    lines = [f"# {family_plan.family}: {RESTORE[family_plan.family]} --noflush", rules.rstrip("\n")]
    lines.append("# jumps from the built-in chains, where they are not there yet")
    return "\n".join((*lines, inserted(JUMPS)))
