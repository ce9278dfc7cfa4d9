"""Capturing for relays by iptables: the chains of kube-proxy's mode userspace, with the branches of the plan.

A front has rules of its own, and no rule of another front depends on where they stand: a change deletes and inserts the
rules of the fronts that changed. Table mangle drops what comes from outside of source ranges, before it is captured.
Table filter has the verdicts for what is not captured, and keeps clients away from the relays' own ports.

Differs: kube-proxy's chains had no verdicts, and KUBE-PORTALS-HOST and KUBE-NODEPORT-HOST had rules for each front. A
relay has one address for all clients, so here they lead to the rules for packets from elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from kdns.net import VERSION, Address
from kdns.proxy.iptables.base_chains import LOCAL_SOURCE, OWNER, local_pods, node_port_destinations
from kdns.proxy.iptables.names import CANARY, FILTER, MANGLE, NAT
from kdns.proxy.iptables.rules import (
    Chain,
    ChainRule,
    Jump,
    Rule,
    comment,
    destination,
    jump,
    port,
    reject,
    restore,
    rule,
    source,
)
from kdns.proxy.plan.branches import ENDPOINT_SETS, Branch, Branches, Client, Verdict
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKey, FrontKind
from kdns.proxy.plan.planner import Difference
from kdns.proxy.userspace.relays import Capture, RelayKey, captured

PORTALS: Final = "KUBE-PORTALS-CONTAINER"
PORTALS_HOST: Final = "KUBE-PORTALS-HOST"
NODE_PORTS: Final = "KUBE-NODEPORT-CONTAINER"
NODE_PORTS_HOST: Final = "KUBE-NODEPORT-HOST"
NODE_PORT_RELAYS: Final = "KUBE-NODEPORT-RELAYS"
RELAY_PORTS: Final = "KUBE-NODEPORT-NON-LOCAL"
SOURCE_RANGES: Final = "KUBE-PORTALS-FIREWALL"
VERDICTS: Final = "KUBE-PORTALS-VERDICTS"
UNDEFINED_PORTS: Final = "KUBE-PORTALS-UNDEFINED"
NODE_PORT_CHECK: Final = "KUBE-NODEPORT-CHECK"
NODE_PORT_VERDICTS: Final = "KUBE-NODEPORT-VERDICTS"
REJECT: Final = "KUBE-PORTALS-REJECT"
"""kube-proxy had the first four and KUBE-NODEPORT-NON-LOCAL; the others are kdns's own."""

CHAINS: Final[Mapping[str, tuple[str, ...]]] = {
    MANGLE: (SOURCE_RANGES,),
    FILTER: (RELAY_PORTS, VERDICTS, NODE_PORT_CHECK, NODE_PORT_VERDICTS, UNDEFINED_PORTS, REJECT),
    NAT: (PORTALS, PORTALS_HOST, NODE_PORTS, NODE_PORTS_HOST, NODE_PORT_RELAYS),
}
"""The chains that are there whatever the Services, by table, beside KUBE-PROXY-CANARY."""
TABLES: Final = (MANGLE, FILTER, NAT)
"""In the order of a restore: packets are led to new relays last."""
_NEW: Final = ("-m", "conntrack", "--ctstate", "NEW")
_NOT_TRANSLATED: Final = (*_NEW, "-m", "conntrack", "!", "--ctstate", "DNAT")


JUMPS: Final = (
    *(
        jump(MANGLE, chain, SOURCE_RANGES, *_NEW, text="source ranges of service portals")
        for chain in ("PREROUTING", "OUTPUT")
    ),
    jump(FILTER, "INPUT", RELAY_PORTS, *_NEW, text="ports of relays"),
    jump(FILTER, "INPUT", NODE_PORT_CHECK, *_NOT_TRANSLATED, text="service NodePorts without a relay"),
    *(
        jump(FILTER, chain, UNDEFINED_PORTS, *_NOT_TRANSLATED, text="ClusterIPs without a relay")
        for chain in ("FORWARD", "OUTPUT")
    ),
    *(
        jump(FILTER, chain, VERDICTS, *_NOT_TRANSLATED, text="service portals without a relay")
        for chain in ("INPUT", "FORWARD", "OUTPUT")
    ),
    *(
        jump(NAT, chain, target, "-m", "addrtype", "--dst-type", "LOCAL", text="handle service NodePorts")
        for chain, target in (("PREROUTING", NODE_PORTS), ("OUTPUT", NODE_PORTS_HOST))
    ),
    *(
        jump(NAT, chain, target, text="handle ClusterIPs; NOTE: this must be before the NodePort rules")
        for chain, target in (("PREROUTING", PORTALS), ("OUTPUT", PORTALS_HOST))
    ),
)
"""The jumps in the order in which each is inserted at the top of its chain."""


class CaptureTables:
    """One family's chains, which follow the family's plan. One event loop owns them.

    They lead packets to the relays' `ports` at the node's address `to`; without one, to the address of the interface of
    arrival. `ports` may change from one plan to the next.
    """

    def __init__(self, family_plan: FamilyPlan, ports: Mapping[RelayKey, int], to: Address | None) -> None:
        self.family_plan, self._ports, self._to = family_plan, ports, to
        self._rules: dict[FrontKey, tuple[ChainRule, ...]] = {}

    @property
    def jumps(self) -> tuple[Jump, ...]:
        """The jumps from built-in chains, in the order in which they are to be inserted at the top."""
        return JUMPS

    def whole(self, existing: Mapping[str, Collection[str]]) -> str:
        """Returns everything, as input of iptables-restore --noflush.

        No chain of `existing` can be stale. To be taken once.
        """
        del existing
        _, added = self._changes((key, front) for key, front in self.family_plan.fronts.items())
        shared: dict[tuple[str, str], list[Rule]] = {}
        for each in added:
            shared.setdefault(each[:2], []).append(each.rule)
        chains = list(_base_chains(self.family_plan))
        lines: list[str] = []
        for table in TABLES:
            own = [chain for chain in chains if chain.table == table]
            rules = (f"-A {chain.name} {each}" for chain in own for each in (*shared.get(chain[:2], ()), *chain.rules))
            lines += restore(table, (chain.name for chain in own), rules)
        return "\n".join((*lines, ""))

    def follow(self, family_plan: FamilyPlan, difference: Difference) -> str:
        """Returns the partial restore that leads to this plan: the rules of fronts that differ; "" if none does."""
        self.family_plan = family_plan
        removed, added = self._changes((key, new) for key, (_, new) in difference.fronts.items())
        lines: list[str] = []
        for table in TABLES:
            changes = [
                *(f"-D {each.chain} {each.rule}" for each in removed if each.table == table),
                *(f"-I {each.chain} {each.rule}" for each in reversed(added) if each.table == table),
            ]
            lines += restore(table, (), changes) if changes else ()
        return "\n".join((*lines, "")) if lines else ""

    def _changes(self, fronts: Iterable[tuple[FrontKey, Front | None]]) -> tuple[list[ChainRule], list[ChainRule]]:
        """Returns the rules to remove and to add for fronts to be as they are now; None: absent."""
        now = dict(fronts)
        captures = captured(self.family_plan.family, (front for front in now.values() if front), self._ports)
        new = {capture.front.key: tuple(front_rules(capture, self.family_plan, self._to)) for capture in captures}
        removed, added = list[ChainRule](), list[ChainRule]()
        for key in now:
            old = self._rules.pop(key, ())
            if rules := new.get(key):
                self._rules[key] = rules
            if rules != old:
                removed += old
                added += rules or ()
        return removed, added


def front_rules(capture: Capture, family_plan: FamilyPlan, to: Address | None) -> Iterator[ChainRule]:
    """A front's rules, in the order in which they are to stand. Each has the Service port's name in a comment."""
    front, ports = capture
    key, branches, protocol = front.key, front.branches.unguarded, front.key.protocol.lower()
    is_node_port = front.kind is FrontKind.NODE_PORT
    text = comment(f"{front.port.name} {front.kind.value}")
    at = rule(destination(key.address) if key.address else "", port(protocol, key.port), text)
    if front.is_guarded:
        for network in front.source_ranges:
            yield ChainRule(MANGLE, SOURCE_RANGES, rule(source(network), at, "-j RETURN"))
        yield ChainRule(MANGLE, SOURCE_RANGES, rule(at, "-j DROP"))
    for number in ports.values():
        of_relay = rule(port(protocol, number), text)
        yield ChainRule(FILTER, RELAY_PORTS, rule(of_relay, "-m conntrack ! --ctstate DNAT", f"-j {REJECT}"))
        if is_node_port:
            yield ChainRule(FILTER, RELAY_PORTS, rule(of_relay, "-j ACCEPT"))
    if front.refusal:
        target = REJECT if front.refusal is Verdict.REJECT else "DROP"
        yield ChainRule(FILTER, NODE_PORT_VERDICTS if is_node_port else VERDICTS, rule(at, f"-j {target}"))
    if front.kind is FrontKind.CLUSTER_IP and family_plan.undefined_ports is Verdict.REJECT:
        yield ChainRule(FILTER, UNDEFINED_PORTS, rule(destination(key.address), text, f"-j {REJECT}"))
    for branch in _deciding(branches):
        if branch.verdict in ENDPOINT_SETS:
            client = _client_match(branch.client, family_plan)
            relay = _relay(ports[branch.verdict], to)
            yield ChainRule(NAT, NODE_PORT_RELAYS if is_node_port else PORTALS, rule(client, at, relay))


def _deciding(branches: Branches) -> tuple[Branch, ...]:
    """Returns the branches that matter where nothing is masqueraded: the last one, where all have its verdict."""
    return branches if len({branch.verdict for branch in branches}) > 1 else branches[-1:]


def _client_match(client: Client, family_plan: FamilyPlan) -> str:
    """Returns the arguments that match packets of a client."""
    if client is Client.NODE:
        return LOCAL_SOURCE
    return local_pods(family_plan) if client is Client.LOCAL_POD else ""


def _relay(number: int, to: Address | None) -> str:
    """Returns the target that leads to a relay's port."""
    if to is None:
        return f"-j REDIRECT --to-ports {number}"
    return f"-j DNAT --to-destination {to if to.version == VERSION['IPv4'] else f'[{to}]'}:{number}"


def _base_chains(family_plan: FamilyPlan) -> Iterator[Chain]:
    """Yields every chain, with its rules that do not depend on Services; rules of fronts stand before these."""
    at_node = node_port_destinations(family_plan)
    yield Chain(MANGLE, CANARY, (comment(OWNER),))
    yield Chain(MANGLE, SOURCE_RANGES)
    yield Chain(FILTER, CANARY)
    yield Chain(FILTER, RELAY_PORTS)
    yield Chain(FILTER, VERDICTS)
    yield Chain(FILTER, NODE_PORT_VERDICTS)
    yield Chain(FILTER, NODE_PORT_CHECK, tuple(rule(each, f"-j {NODE_PORT_VERDICTS}") for each in at_node))
    cidrs = family_plan.unallocated
    text = comment("no ClusterIP")
    yield Chain(FILTER, UNDEFINED_PORTS, tuple(rule(f"-d {each}", text, "-j DROP") for each in cidrs))
    yield Chain(FILTER, REJECT, ("-p tcp -j REJECT --reject-with tcp-reset", reject(family_plan.family)))
    yield Chain(NAT, CANARY)
    yield Chain(NAT, PORTALS)
    yield Chain(NAT, PORTALS_HOST, (f"-j {PORTALS}",))
    yield Chain(NAT, NODE_PORT_RELAYS)
    yield Chain(NAT, NODE_PORTS, tuple(rule(each, f"-j {NODE_PORT_RELAYS}") for each in at_node))
    yield Chain(NAT, NODE_PORTS_HOST, (f"-j {NODE_PORTS}",))
