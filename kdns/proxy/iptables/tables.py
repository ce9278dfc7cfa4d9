"""The restores that lead one family's tables from one plan to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from kdns.proxy.iptables.frame import JUMPS, Features, frame
from kdns.proxy.iptables.fronts import front_rules, port_rules
from kdns.proxy.iptables.names import FILTER, FIREWALL, MANGLE, NAT, SERVICE_PREFIXES
from kdns.proxy.iptables.rules import Chain, Jump, Placed, restore
from kdns.proxy.iptables.service_chains import service_chains
from kdns.proxy.plan.plan import FamilyPlan, PortName, PortPlan
from kdns.proxy.plan.planner import Difference

LARGE: Final = 1000
"""With more endpoints in a family, their rules have no comments."""
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
        """
        half, has_comments = self.half, self._has_comments
        fixed = [
            chain
            for chain in frame(half, self.features)
            if chain.rules or chain.name != FIREWALL or chain.name not in there.get(chain.table, ())
        ]
        shared: dict[tuple[str, str], list[str]] = {}
        for placed in self._placed():
            shared.setdefault(placed[:2], []).append(placed.rule)
        own = [chain for port in half.ports.values() for chain in service_chains(port, half, has_comments=has_comments)]
        lines: list[str] = []
        for table in _TABLES:
            chains = [
                *(
                    Chain(*chain[:2], (*shared.get(chain[:2], ()), *chain.rules))
                    for chain in fixed
                    if chain.table == table
                ),
                *(own if table == NAT else ()),
            ]
            names = dict.fromkeys(chain.name for chain in chains)
            stale = [
                each for each in there.get(table, ()) if table == NAT and is_service_chain(each) and each not in names
            ]
            lines += restore(table, names, (line for chain in chains for line in _appended(chain)), stale)
        return "\n".join((*lines, ""))

    def _placed(self) -> Iterator[Placed]:
        for port in self.half.ports.values():
            yield from port_rules(port, self.half)
        for front in self.half.fronts.values():
            yield from front_rules(front, self.half, self.features)

    def follow(self, half: FamilyPlan, difference: Difference) -> str:
        """The partial restore that leads to this plan: chains and rules that differ; "" where none does."""
        before, self.half = self.half, half
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
            then, now = self._chains(old, before), self._chains(new, half)
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

    def _chains(self, port: PortPlan | None, half: FamilyPlan) -> dict[str, Chain]:
        chains = service_chains(port, half, has_comments=self._has_comments) if port else ()
        return {chain.name: chain for chain in chains}


def is_service_chain(name: str) -> bool:
    """Whether a chain of table nat is one of a Service port, kube-proxy's or ours."""
    return name.startswith(SERVICE_PREFIXES)


def _appended(chain: Chain) -> Iterator[str]:
    return (f"-A {chain.name} {each}" for each in chain.rules)


def _endpoints(port: PortPlan) -> int:
    return len(port.endpoints.reachable)


def _compare(before: Iterable[Placed], after: Iterable[Placed], removed: list[Placed], added: list[Placed]) -> None:
    """Add what is to be deleted and what is to be inserted."""
    old, new = Counter(before), Counter(after)
    removed += (old - new).elements()
    added += (new - old).elements()
