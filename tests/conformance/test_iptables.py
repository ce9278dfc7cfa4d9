"""Recorded facts about kube-proxy's mode iptables: its chains in each configuration and after each of many changes.

Objects go through the plan to the texts of restores, these through the model of iptables in ipt_walk, and its chains
are compared as iptables-save prints them. What differs on purpose is a row of DEVIATIONS: what becomes of the record.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from ipaddress import ip_address
from typing import NamedTuple, TypeAlias

import ipt_walk
import msgspec
from recorded_cases import Json, recorded

from kdns.cluster.objects import EndpointSlice, Node, Object, Service
from kdns.cluster.source import NodeScope
from kdns.cluster.state import Change, State
from kdns.net import FAMILIES, Family
from kdns.proxy.iptables.base_chains import JUMPS, Features
from kdns.proxy.iptables.tables import LARGE, Tables
from kdns.proxy.plan.planner import Planner
from kdns.proxy.settings.flags import flag_values, settings_from_flags
from kdns.proxy.settings.plan_config import node_view, proxy_config
from kdns.proxy.xtables.names import is_service_chain
from kdns.proxy.xtables.settings import IptablesSettings

Rule: TypeAlias = tuple[str, ...]
Rules: TypeAlias = tuple[Rule, ...]
"""Rules as iptables-save prints them, in the order of the record."""

KINDS: Mapping[str, type[Object]] = {"Service": Service, "EndpointSlice": EndpointSlice, "Node": Node}
NAMES: Mapping[Family, str] = {"IPv4": "ipv4", "IPv6": "ipv6"}
UNORDERED = {
    ("nat", "KUBE-SERVICES"),
    ("nat", "KUBE-NODEPORTS"),
    ("filter", "KUBE-NODEPORTS"),
    ("filter", "KUBE-SERVICES"),
    ("filter", "KUBE-EXTERNAL-SERVICES"),
    ("filter", "KUBE-PROXY-FIREWALL"),
}
"""Chains in which the order of Services does not matter."""


def facts() -> Json:
    return recorded("iptables/iptables-cases.json")


class Where(NamedTuple):
    """A chain of a record."""

    case: str
    family: Family
    table: str
    chain: str


Chains: TypeAlias = dict[tuple[str, str], Rules]
"""The rules of chains by table and name."""


# How iptables-save prints rules.

ORDER = ("-s", "-d", "-i", "-o", "-p")


@cache
def printed(rule: str, family: Family) -> Rule:
    """The rule's arguments as iptables-save prints them, in the order of the record."""
    words = ipt_walk.split(rule)
    groups: list[list[str]] = []
    end = words.index("-j") if "-j" in words else len(words)
    is_not = False
    for word in words[:end]:
        if word == "!":
            is_not = True
        elif word == "-m" or (word in ORDER and not (groups and groups[-1][-1] == "--comment")):
            groups.append([*(("!",) if is_not else ()), word])
            is_not = False
        else:
            groups[-1] += [*(("!",) if is_not else ()), word]
            is_not = False
    head = sorted((group for group in groups if "-m" not in group[:1]), key=_place)
    matches = sorted(_match(group, family) for group in groups if group[0] == "-m")
    return tuple(word for group in (*head, *matches, words[end:]) for word in group)


def _place(group: list[str]) -> int:
    return next(ORDER.index(word) for word in group if word in ORDER)


def _match(group: list[str], family: Family) -> list[str]:
    if group[1] == "recent":
        group.insert(group.index("--rsource"), "--mask")
        group.insert(group.index("--rsource"), "255.255.255.255" if family == "IPv4" else ":".join(("ffff",) * 8))
    if group[1] == "statistic":
        group[-1] = f"{round(float(group[-1]) * 2**31) / 2**31:.11f}"
    return group


def ordered(table: str, chain: str, rules: Iterable[Rule]) -> Rules:
    """The rules in the order of a record, which is sorted where the order of Services does not matter."""
    made = tuple(rules)
    if (table, chain) not in UNORDERED:
        return made
    jumps = tuple(rule for rule in made if rule[-1] == "KUBE-NODEPORTS")
    assert made[len(made) - len(jumps) :] == jumps, "the jumps to KUBE-NODEPORTS stand last"
    return *sorted(made[: len(made) - len(jumps)]), *jumps


def chains_of(state: Json, family: Family) -> Chains:
    return {
        (table, chain): tuple(map(tuple, facts()["rules"][value[-1]]))
        for table, chains in state.get(NAMES[family], {}).items()
        for chain, value in chains.items()
        if value
    }


def saved(kernel: ipt_walk.Kernel, family: Family) -> Chains:
    return {
        (table, chain): ordered(table, chain, (printed(rule, family) for rule in rules))
        for table, chains in kernel.tables.items()
        for chain, rules in chains.items()
    }


# The program, without its shell.


@dataclass
class Proxy:
    """kdns with kube-proxy's flags on one node, and what its restores make of each family's chains."""

    config: Json
    objects: list[Json]
    kernels: dict[Family, ipt_walk.Kernel] = field(default_factory=dict)
    families: tuple[Family, ...] = FAMILIES

    def __post_init__(self) -> None:
        self.state = State()
        self.nodes: dict[str, Node] = {}
        for obj in self.objects:
            self.change(obj)
        self.kernels = self.kernels or {family: ipt_walk.Kernel() for family in self.families}
        is_legacy = self.config["backend"] == "legacy"
        self.features = Features(
            nfacct=True,
            tcp_be_liberal="--conntrack-tcp-be-liberal" in self.config["flags"],
            chains_per_section=0 if is_legacy else 60,
        )
        self.start()

    def change(self, each: Json) -> Change | None:
        """Apply an object as it is now; one that the selectors of list and watch leave out is not there."""
        kind, labels = KINDS.get(each["kind"]), each["metadata"].get("labels", {})
        if kind is None:
            return None
        if NodeScope(node="").selector(kind).removeprefix("!") in labels:
            return self.state.delete(kind, (each["metadata"]["namespace"], each["metadata"]["name"]))
        made = msgspec.convert(each, kind)
        if isinstance(made, Node):
            self.nodes[made.metadata.name] = made
        return self.state.upsert(made)

    def start(self) -> None:
        given = (flag.removeprefix("--").partition("=") for flag in self.config["flags"])
        settings = settings_from_flags(
            flag_values({name: value or "true" for name, _, value in given} | {"proxy-mode": "iptables"})
        )
        own = self.nodes[self.config["node"]]
        local = [
            text.split("/")[0] for node_address in facts()["meta"]["node_addresses"].values() for text in node_address
        ]
        view = node_view(
            own, self.config["node"], bind_address=settings.bind_address, addresses=[*map(ip_address, local)]
        )
        self.planner = Planner(self.state, view, proxy_config(settings, own))
        features = replace(self.features, masquerade_mark=settings.section(IptablesSettings).mark)
        self.tables = {family: Tables(self.planner.plan.of(family), features) for family in self.families}
        self.write_all()

    def write_all(self, families: tuple[Family, ...] = FAMILIES) -> None:
        for family in self.families:
            if family in families:
                tables, kernel = self.tables[family], self.kernels[family]
                kernel.restore(tables.whole(kernel.names))
                for jump in JUMPS:
                    rules = kernel.tables[jump.table][jump.chain]
                    if printed(str(jump), family) not in [printed(rule, family) for rule in rules]:
                        rules.insert(0, str(jump))

    def step(self, ops: list[Json], *, fails: bool = False) -> None:
        """Take changes and write what differs; everything where the node's zone is another, or a restore `fails`."""
        zone = self.planner.node.zone
        changes = []
        for each in ops:
            if each["op"] == "apply":
                changes.append(self.change(each["object"]))
            else:
                changes.append(self.state.delete(KINDS[each["kind"]], (each["namespace"], each["name"])))
        if self.nodes[self.config["node"]].zone != zone:
            self.start()
            return
        differences = self.planner.changed([change for change in changes if change])
        for family in self.families:
            text = self.tables[family].follow(self.planner.plan.of(family), differences[family])
            if fails and text:
                self.write_all((family,))
            else:
                self.kernels[family].restore(text)


# What differs on purpose in chains.


@dataclass(frozen=True)
class Deviation:
    """A difference from the record, and why. `becomes`: the recorded rules as kdns has them; None: no such chain."""

    reason: str
    becomes: Callable[[Where, Rules | None, Chains], Rules | None]


def _canary(where: Where, rules: Rules | None, _: Chains) -> Rules | None:
    return (("-m", "comment", "--comment", "kdns"),) if where[2:] == ("mangle", "KUBE-PROXY-CANARY") else rules


def _mark(where: Where, rules: Rules | None, _: Chains) -> Rules | None:
    return (("-m", "comment", "--comment", "kdns"), *rules) if where.chain == "KUBE-MARK-MASQ" and rules else rules


def _canaries(where: Where, rules: Rules | None, _: Chains) -> Rules | None:
    return () if where.chain == "KUBE-PROXY-CANARY" and rules is None else rules


def _unreferenced(where: Where, rules: Rules | None, record: Chains) -> Rules | None:
    if where.table != "nat" or not is_service_chain(where.chain):
        return rules
    is_used = any(rule[-1] == where.chain for (table, _), some in record.items() if table == "nat" for rule in some)
    return rules if is_used else None


def _loopback(where: Where, rules: Rules | None, _: Chains) -> Rules | None:
    if where[2:] != ("nat", "KUBE-SERVICES") or rules is None:
        return rules
    one, all_of_it = ("-d", "127.0.0.1/32"), ("-d", "127.0.0.0/8")
    made = [(*all_of_it, *rule[2:]) if rule[:2] == one and rule[-1] == "KUBE-NODEPORTS" else rule for rule in rules]
    return ordered("nat", "KUBE-SERVICES", made)


def _node_ports(where: Where, rules: Rules | None, record: Chains) -> Rules | None:
    if where[2:] != ("filter", "KUBE-EXTERNAL-SERVICES") or rules is None:
        return rules
    services = ("nat", "KUBE-SERVICES")
    jumps = [
        rule
        for rule in _loopback(Where("", where.family, *services), record[services], record) or ()
        if rule[-1] == "KUBE-NODEPORTS"
    ]
    local = ("-m", "addrtype", "--dst-type", "LOCAL")
    made: list[Rule] = []
    for rule in rules:
        if local[1] not in rule:
            made.append(rule)
        for jump in jumps if local[1] in rule else ():
            protocol, rest = rule[:2], rule[6:]
            made.append((*jump[: jump.index("-m")], *protocol, *(local if local[1] in jump else ()), *rest))
    return tuple(sorted(made))


def _own_packets(where: Where, rules: Rules | None, record: Chains) -> Rules | None:
    if where[2:] != ("filter", "KUBE-SERVICES") or rules is None:
        return rules
    external = record["filter", "KUBE-EXTERNAL-SERVICES"]
    return tuple(sorted((*rules, *(rule for rule in external if rule[0] == "-d" and "REJECT" in rule))))


DEVIATIONS = (
    Deviation("the canary chain of table mangle says whose the rules are", _canary),
    Deviation("a chain that every sync of kube-proxy writes anew says who wrote table nat last", _mark),
    Deviation("canary chains come back with everything else; kube-proxy makes them at its start only", _canaries),
    Deviation("there is no chain that nothing leads to", _unreferenced),
    Deviation(
        "an external address without endpoints refuses the node itself too; its packets would leave", _own_packets
    ),
    Deviation("node ports of a loopback network are at all of its addresses, not at 127.0.0.1 only", _loopback),
    Deviation(
        "node ports without endpoints are refused at the addresses of node ports, not at all local ones", _node_ports
    ),
)


def has_many(chains: Chains) -> bool:
    return sum(chain.startswith("KUBE-SEP-") for _, chain in chains) > LARGE


class Report:
    """Comparisons, counted."""

    def __init__(self) -> None:
        self.passed = 0
        self.deviations: Counter[str] = Counter()
        self.failed: list[str] = []

    def compare(self, case: str, family: Family, record: Chains, ours: Chains) -> None:
        for table, chain in dict.fromkeys((*record, *ours)):
            theirs, own = record.get((table, chain)), ours.get((table, chain))
            if theirs == own:
                self.passed += 1
                continue
            where = Where(case, family, table, chain)
            reasons = []
            for deviation in DEVIATIONS:
                before, theirs = theirs, deviation.becomes(where, theirs, record)
                reasons += [deviation.reason] if before != theirs else []
            if theirs != own and has_many(record) and _loose(theirs) == _loose(own):
                theirs, reasons = own, [*reasons, COMMENTS]
            if theirs == own:
                self.deviations.update(reasons)
            else:
                self.failed.append(f"{where}:\n{_difference(theirs, own)}")

    def show(self, name: str) -> None:
        counts = f"{self.passed} passed, {self.deviations.total()} known deviations, {len(self.failed)} failed"
        reasons = "".join(f"\n    {count}: {reason}" for reason, count in self.deviations.most_common())
        print(f"{name}: {counts}{reasons}")
        assert not self.failed, "\n".join(self.failed[:20])


def _loose(rules: Rules | None) -> Rules | None:
    if rules is None:
        return None
    places = ((rule, rule.index("--comment") if "--comment" in rule else len(rule) + 2) for rule in rules)
    return tuple((*rule[: at - 2], *rule[at + 2 :]) for rule, at in places)


def _difference(theirs: Rules | None, own: Rules | None) -> str:
    if theirs is None or own is None:
        return f"    recorded {theirs}\n    made {own}"
    lines = [f"    - {' '.join(their)}" for their in theirs if their not in own]
    lines += [f"    + {' '.join(each)}" for each in own if each not in theirs]
    return "\n".join(lines[:8] or ["    another order"])


def test_the_chains_of_each_configuration() -> None:
    report = Report()
    for name, config in facts()["configs"].items():
        proxy = Proxy(config, facts()["objects"], families=families_of(facts()["states"][name]))
        for family in proxy.families:
            record = chains_of(facts()["states"][name], family)
            report.compare(name, family, record, saved(proxy.kernels[family], family))
    report.show("iptables-cases.json, configurations")


def families_of(state: Json) -> tuple[Family, ...]:
    """The families of a node; it has no rules of one that its kernel does not have."""
    return tuple(family for family in FAMILIES if state[NAMES[family]])


# The changes, in order.

FAILS_ONCE = "iptables-restore exits 1 once on the next change"
RESTART = "restart with stale and foreign chains"
FLUSH = "iptables -t nat -F and -X by another program, 75 s"
UNNOTICED = (FLUSH, "an endpoint change while nat is still empty")
"""Steps in which kube-proxy's table nat is empty."""

HEALED = "a table that another program flushed is written again; kube-proxy did not notice for 75 s"
COMMENTS = "with more than 1000 endpoints, a chain loses its comments when its rules change, not with its Service"


def test_the_chains_after_each_change() -> None:
    report = Report()
    proxy = Proxy(facts()["configs"]["defaults"], facts()["objects"])
    record: dict[Family, Chains] = {family: {} for family in FAMILIES}
    for number, change in enumerate(facts()["changes"]):
        if number:
            carry_out(proxy, change)
        for family in FAMILIES:
            note_change(record[family], change, family)
            ours = saved(proxy.kernels[family], family)
            if family == "IPv4" and change["change"] in UNNOTICED:
                assert ours == rewritten(proxy, family)
                report.deviations[HEALED] += 1
                continue
            report.compare(f"{number} {change['change']}", family, record[family], ours)
    report.show("iptables-cases.json, chains after changes")


def note_change(record: Chains, change: Json, family: Family) -> None:
    state = change.get("state") or change["state_diff"]
    record |= chains_of(state, family)
    for table, chains in state.get(NAMES[family], {}).items():
        for chain in [chain for chain, value in chains.items() if value is None]:
            del record[table, chain]


def carry_out(proxy: Proxy, change: Json) -> None:
    """Do what the change is, with what the shell does after it."""
    if change["change"] == FLUSH:
        proxy.kernels["IPv4"].flush("nat")
        proxy.write_all(("IPv4",))
    elif change["change"] == RESTART:
        for family in FAMILIES:
            chains = proxy.kernels[family].tables
            for (table, chain), rules in chains_of(change["before"], family).items():
                if chain not in chains[table] or chain in ipt_walk.BUILT_IN[table]:
                    chains[table][chain] = [shlex.join(rule) for rule in rules]
        proxy.start()
    else:
        proxy.step(change["ops"], fails=change["change"] == FAILS_ONCE)


def rewritten(proxy: Proxy, family: Family) -> Chains:
    """The chains of a kernel that had none, but for others' in the other tables."""
    kernel = ipt_walk.Kernel()
    kernel.tables |= {table: dict(chains) for table, chains in proxy.kernels[family].tables.items() if table != "nat"}
    kernel.restore(proxy.tables[family].whole({}))
    for jump in JUMPS:
        if jump.table == "nat":
            kernel.tables["nat"][jump.chain].insert(0, str(jump))
    return saved(kernel, family)


# Single observations.


def test_a_start_with_other_flags_leaves_the_rule_against_loopback_destinations() -> None:
    told = facts()["other"]["restarted with --iptables-localhost-nodeports=false --masquerade-all"]
    proxy = Proxy(facts()["configs"]["defaults"], facts()["objects"])
    more = ["--iptables-localhost-nodeports=false", "--masquerade-all"]
    proxy.config = proxy.config | {"flags": [*proxy.config["flags"], *more]}
    proxy.start()
    chains = {family: saved(proxy.kernels[family], family) for family in FAMILIES}
    for chain in ("KUBE-FIREWALL", "INPUT"):
        assert chains["IPv4"]["filter", chain] == tuple(map(tuple, told[chain]["rules"]))
    assert sum(len(each["nat", "KUBE-NODEPORTS"]) for each in chains.values()) == told["KUBE-NODEPORTS rules"]


def test_a_start_beside_rules_of_others_stands_before_them() -> None:
    told = facts()["other"]["start beside rules of others"]
    kernel = ipt_walk.Kernel()
    for command in told["before"]:
        table, rule = ("nat", command[7:]) if command.startswith("-t nat ") else ("filter", command)
        if rule.startswith("-A "):
            kernel.restore(f"*{table}\n{rule}\nCOMMIT\n")
    proxy = Proxy(facts()["configs"]["defaults"], facts()["objects"], kernels={"IPv4": kernel}, families=("IPv4",))
    chains = saved(proxy.kernels["IPv4"], "IPv4")
    after = {(table, chain): each["rules"] for table, some in told["after"].items() for chain, each in some.items()}
    assert {place: chains[place] for place in after} == {
        place: tuple(map(tuple, rules)) for place, rules in after.items()
    }
