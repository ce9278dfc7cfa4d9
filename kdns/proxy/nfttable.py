"""kdns's table in the kernel as it should be: followed difference by difference, and written as nft text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kdns.proxy.config import Family
from kdns.proxy.nftables import (
    MISSING,
    NFT_FAMILY,
    PROTOCOLS,
    RELAYED,
    SHARED,
    SIDES,
    TABLE,
    Content,
    Data,
    ElementKey,
    collapsed,
    content,
)
from kdns.proxy.plan import FamilyPlan, Front, FrontKey, Masquerade
from kdns.proxy.planner import Difference

_ELEMENTS_A_LINE: Final = 1000


@dataclass(slots=True)
class Transaction:
    """What changes in the table, in this order.

    Affinity sets made (with seconds), chains made or refilled, elements deleted, elements added, and chains and sets
    removed.
    """

    family: Family
    sets: dict[str, int] = field(default_factory=dict)
    chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    delete: dict[str, list[ElementKey]] = field(default_factory=dict)
    add: dict[str, dict[ElementKey, Data]] = field(default_factory=dict)
    remove_chains: tuple[str, ...] = ()
    remove_sets: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.sets or self.chains or self.delete or self.add or self.remove_chains or self.remove_sets)


class Table:
    """One family's table, kept up with its half of the plan. One event loop owns it.

    `contents` says what fronts put into it in the table's mode.
    """

    def __init__(self, half: FamilyPlan, contents: Callable[[Iterable[Front], Family], Content] = content) -> None:
        self.half, self._contents = half, contents
        self._chains: dict[str, tuple[str, ...]] = {}
        self._sets: dict[str, int] = {}
        self._uses: Counter[tuple[str, ElementKey | str]] = Counter()
        self._start = self._followed({key: (None, front) for key, front in half.fronts.items()})

    def whole(self, *, mark: int = 0x4000) -> str:
        """The table as it was at the start, in place of whatever was there before, as one nft transaction."""
        where = f"{NFT_FAMILY[self.half.family]} {TABLE}"
        fresh = (f"add table {where}", f"delete table {where}")
        return "\n".join((*fresh, frame(self.half, mark), *lines(self._start), ""))

    def takeover(self, there: Mapping[str, Iterable[str]], *, mark: int = 0x4000) -> str:
        """As `whole`, in place of these chains, maps and sets; affinity sets that are wanted keep their clients."""
        where = f"{NFT_FAMILY[self.half.family]} {TABLE}"
        emptied = [f"add table {where}", f"flush table {where}"]
        for sort, names in sorted(there.items(), reverse=True):  # what leads to chains goes first
            emptied += (f"delete {sort} {where} {name}" for name in names if name not in self._sets)
        return "\n".join((*emptied, frame(self.half, mark), *lines(self._start), ""))

    def started(self) -> None:
        """Forget what `whole` is made of: it is in the kernel, and is most of what this holds."""
        self._start = Transaction(self.half.family)

    def follow(self, half: FamilyPlan, difference: Difference) -> Transaction:
        """What to do after the half became this one."""
        self.half = half
        return self._followed(difference.fronts)

    def sweep(self) -> Transaction:
        """Removes chains and affinity sets that nothing leads to any more; `swept` says that it is done.

        Kernels before 6.2 keep references of deleted elements for a moment: leave a second between the two.
        """
        chains = tuple(name for name in self._chains if not self._uses["chain", name])
        sets = tuple(name for name in self._sets if not self._uses["set", name])
        return Transaction(self.half.family, remove_chains=chains, remove_sets=sets)

    def swept(self, done: Transaction) -> None:
        """Forget what a sweep has removed."""
        for name in done.remove_chains:
            del self._chains[name]
        for name in done.remove_sets:
            del self._sets[name]

    def _followed(self, fronts: Mapping[FrontKey, tuple[Front | None, Front | None]]) -> Transaction:
        change = Transaction(self.half.family)
        for old, new in fronts.values():
            before = self._contents((old,) if old else (), self.half.family)
            after = self._contents((new,) if new else (), self.half.family)
            self._elements(change, before, after)
            self._count(before, -1)
            self._count(after, 1)
            for name, timeout_s in after.affinity_sets.items():
                if name not in self._sets:
                    change.sets[name] = self._sets[name] = timeout_s
            for name, rules in after.chains.items():
                if self._chains.get(name) != rules:
                    change.chains[name] = self._chains[name] = rules
        return change

    def _count(self, part: Content, step: int) -> None:
        for name in part.chains:
            self._uses["chain", name] += step
        for name in part.affinity_sets:
            self._uses["set", name] += step

    def _elements(self, change: Transaction, before: Content, after: Content) -> None:
        for name in dict.fromkeys((*before.elements, *after.elements)):
            old, new = before.elements.get(name, {}), after.elements.get(name, {})
            for key, data in old.items():
                if new.get(key, MISSING) != data and self._is_gone(name, key):
                    _forget(change, name, key)
            for key, data in new.items():
                if old.get(key, MISSING) != data and self._is_first(name, key):
                    change.add.setdefault(name, {})[key] = data

    def _is_gone(self, name: str, key: ElementKey) -> bool:
        if name in SHARED:
            self._uses[name, key] -= 1
        return name not in SHARED or not self._uses[name, key]

    def _is_first(self, name: str, key: ElementKey) -> bool:
        if name in SHARED:
            self._uses[name, key] += 1
        return name not in SHARED or self._uses[name, key] == 1


def _forget(change: Transaction, name: str, key: ElementKey) -> None:
    """Delete an element, unless this same transaction was only going to add it."""
    added = change.add.get(name, {})
    if key in added and name in SHARED:
        del added[key]
    else:
        change.delete.setdefault(name, []).append(key)


def lines(change: Transaction) -> Iterator[str]:
    """The transaction as nft commands. Chains are made before they are filled, since they lead to each other."""
    where = f"{NFT_FAMILY[change.family]} {TABLE}"
    address = "ipv4_addr" if change.family == "IPv4" else "ipv6_addr"
    for name, timeout_s in change.sets.items():
        yield f"add set {where} {name} {{ type {address}; flags dynamic,timeout; timeout {timeout_s}s; }}"
    for name in change.chains:
        yield f"add chain {where} {name}"
    for name, rules in change.chains.items():
        yield f"flush chain {where} {name}"
        for rule in rules:
            yield f"add rule {where} {name} {rule}"
    for name, keys in change.delete.items():
        for some in _some(keys):
            yield f"delete element {where} {name} {{ {', '.join(map(_key, some))} }}"
    for name, elements in change.add.items():
        for some in _some(list(elements)):
            yield f"add element {where} {name} {{ {', '.join(_element(key, elements[key]) for key in some)} }}"
    for name in change.remove_chains:
        yield f"flush chain {where} {name}"
    for name in change.remove_chains:
        yield f"delete chain {where} {name}"
    for name in change.remove_sets:
        yield f"delete set {where} {name}"


def _some(keys: list[ElementKey]) -> Iterator[list[ElementKey]]:
    return (keys[start : start + _ELEMENTS_A_LINE] for start in range(0, len(keys), _ELEMENTS_A_LINE))


def _key(key: ElementKey) -> str:
    return " . ".join(map(str, key))


def _element(key: ElementKey, data: Data) -> str:
    if data is None:
        return _key(key)
    return f"{_key(key)} : {data}" if isinstance(data, str) else f"{_key(key)} : {data[0]} . {data[1]}"


def frame(half: FamilyPlan, mark: int) -> str:
    """Everything that does not depend on any Service: the sets and maps, the hooks, and the way through them.

    Differs: kube-proxy refuses TCP with an ICMP message too. One that a Pod of this node gets while it still is in
    connect() is lost, and it waits a second for the next; and the kernel sends few such messages at a time.
    """
    ip = NFT_FAMILY[half.family]
    body = "\n".join((*_maps(half, ip), *_chains(half, ip, mark)))
    return f"table {ip} {TABLE} {{\n{body}\n}}"


def _maps(half: FamilyPlan, ip: str) -> Iterator[str]:
    for side in SIDES:
        key = side.key.format(ip=ip)
        yield _set("map", side.services, f"{key} : verdict", "counter")
        yield _set("map", side.refused, f"{key} : verdict", "counter")
        yield _set("map", f"any-endpoint{side.suffix}", f"{key} : verdict")
        yield _set("map", f"local-endpoint{side.suffix}", f"{key} : verdict")
        for protocol in RELAYED if half.mode.relays else PROTOCOLS:
            place = side.place.format(ip=ip, protocol=protocol)
            if half.mode.relays:
                yield _set("map", f"relays{side.suffix}-{protocol}", f"{place} : {protocol} dport")
                continue
            numbered = f"{place} . numgen random mod 65536 : {ip} daddr . {protocol} dport"
            yield _set("map", f"endpoints{side.suffix}-{protocol}", numbered)
            yield _set("map", f"endpoints-local{side.suffix}-{protocol}", numbered)
    front = SIDES[0].key.format(ip=ip)
    yield _set("set", "cluster-ips", f"{ip} daddr")
    if half.mode.relays:
        yield from (_set("set", f"relay-ports-{protocol}", f"{protocol} dport") for protocol in RELAYED)
    else:
        yield _set("set", "hairpin-connections", f"{ip} saddr . {ip} daddr")
    yield _set("set", "firewalled", front)
    yield _set("set", "firewall-ranges", f"{front} . {ip} saddr", "flags interval")


def _set(what: str, name: str, of: str, *options: str) -> str:
    return "\n".join((f"\t{what} {name} {{", *(f"\t\t{line}" for line in (f"typeof {of}", *options)), "\t}"))


def _chains(half: FamilyPlan, ip: str, mark: int) -> Iterator[str]:
    front, port = (side.key.format(ip=ip) for side in SIDES)
    local_pods = _local_pods(half, ip)
    node_port = _node_port_destination(half, ip)
    chains: Mapping[str, Iterable[str]] = {
        "mark-for-masquerade": (f"meta mark set meta mark or {mark:#x}",),
        "reject-chain": ("meta l4proto tcp reject with tcp reset", "reject"),
        "firewall-check": (f"{front} @firewalled {front} . {ip} saddr != @firewall-ranges drop",),
        "nodeport-endpoints-check": (f"{node_port} {port} vmap @no-endpoint-nodeports",) if node_port else (),
        "service-endpoints-check": (f"{front} vmap @no-endpoint-services",),
        "cluster-ips-check": (f"{ip} daddr @cluster-ips goto reject-chain", *_unallocated(half, ip)),
        **{
            f"external-local{side.suffix}": _external_local(half, side.key.format(ip=ip), side.suffix, local_pods)
            for side in SIDES
        },
        "services": (
            *_cluster_ip_masquerade(half, ip, local_pods),
            f"{front} vmap @service-ips",
            *((f"{node_port} {port} vmap @service-nodeports",) if node_port else ()),
        ),
        "masquerading": ()
        if half.mode.relays
        else (
            f"meta mark and {mark:#x} != 0 meta mark set meta mark xor {mark:#x} masquerade fully-random",
            f"ct status dnat {ip} saddr . {ip} daddr @hairpin-connections masquerade fully-random",
        ),
        "filter-prerouting-pre-dnat": _hook("filter", "prerouting", -110, "ct state new jump firewall-check"),
        "filter-output-pre-dnat": _hook("filter", "output", -110, "ct state new jump firewall-check"),
        "filter-input": _hook(
            "filter",
            "input",
            0,
            *(_UNCAPTURED if half.mode.relays else ()),
            "ct state new jump nodeport-endpoints-check",
            "ct state new jump service-endpoints-check",
        ),
        "filter-forward": _hook("filter", "forward", 0, *_FORWARDED),
        "filter-output": _hook("filter", "output", 0, *_FORWARDED),
        "nat-prerouting": _hook("nat", "prerouting", -100, "jump services"),
        "nat-output": _hook("nat", "output", -100, "jump services"),
        "nat-postrouting": _hook("nat", "postrouting", 100, "jump masquerading"),
    }
    for name, rules in chains.items():
        yield "\n".join((f"\tchain {name} {{", *(f"\t\t{rule}" for rule in rules), "\t}"))


_UNCAPTURED: Final = tuple(
    f"ct state new ct status and dnat == 0 {protocol} dport @relay-ports-{protocol} goto reject-chain"
    for protocol in RELAYED
)
"""Relays are for what comes to virtual IPs, not for whoever finds their ports."""
_FORWARDED: Final = ("ct state new jump service-endpoints-check", "ct state new jump cluster-ips-check")


def _hook(kind: str, hook: str, priority: int, *rules: str) -> tuple[str, ...]:
    return f"type {kind} hook {hook} priority {priority}; policy accept;", *rules


def _external_local(half: FamilyPlan, key: str, suffix: str, local_pods: str) -> Iterator[str]:
    """External policy Local: this node's Pods and the node itself may go anywhere, all others stay here."""
    if local_pods:
        yield f"{local_pods} {key} vmap @any-endpoint{suffix}"
    if not half.mode.relays:
        yield "fib saddr type local jump mark-for-masquerade"
    yield f"fib saddr type local {key} vmap @any-endpoint{suffix}"
    yield f"{key} vmap @local-endpoint{suffix}"


def _cluster_ip_masquerade(half: FamilyPlan, ip: str, local_pods: str) -> Iterator[str]:
    if half.cluster_ip_masquerade is Masquerade.ALL:
        yield f"{ip} daddr @cluster-ips jump mark-for-masquerade"
    elif half.cluster_ip_masquerade is Masquerade.NOT_LOCAL_PODS:
        matched, _, value = local_pods.rpartition(" ")
        yield f"{ip} daddr @cluster-ips {matched} != {value} jump mark-for-masquerade"


def _local_pods(half: FamilyPlan, ip: str) -> str:
    """What matches packets of this node's Pods; "" when nothing does."""
    pods = half.local_pods
    if pods is None:
        return ""
    if pods.bridge:
        return f'iifname "{pods.bridge}"'
    return f'iifname "{pods.interface_prefix}*"' if pods.interface_prefix else f"{ip} saddr {pods.networks[0]}"


def _node_port_destination(half: FamilyPlan, ip: str) -> str:
    """What matches destinations that have node ports; "" when none has."""
    if not half.node_port_networks:
        return ""
    local = "fib daddr type local"
    if not half.localhost_node_ports:
        local += f" {ip} daddr != {'127.0.0.0/8' if ip == 'ip' else '::1'}"
    if any(network.prefixlen == 0 for network in half.node_port_networks):
        return local
    return f"{local} {ip} daddr {{ {', '.join(map(str, collapsed(half.node_port_networks)))} }}"


def _unallocated(half: FamilyPlan, ip: str) -> Iterator[str]:
    if half.service_cidrs:
        yield f"{ip} daddr {{ {', '.join(map(str, collapsed(half.service_cidrs)))} }} drop"
