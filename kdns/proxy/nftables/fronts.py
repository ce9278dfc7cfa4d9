"""The content of one front in the table: elements of maps, and chains that any number of fronts share.

A front is an element of a map. Its number leads to a chain for *so many endpoints*, whose one rule draws a number and
looks up the endpoint in another map. Services differ in elements only, and a change adds and deletes elements. With
session affinity the chain is for so many endpoints and one timeout, and has seven rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from kdns.net import Family
from kdns.proxy.nftables import sets
from kdns.proxy.nftables.numbers import TableNumbers
from kdns.proxy.nftables.objects import (
    NFT_FAMILY,
    AddressPort,
    Chain,
    Data,
    ElementKey,
    Goto,
    Number,
    Set,
    expression,
    quoted,
)
from kdns.proxy.nftables.sets import EndpointMaps, Side, side_of
from kdns.proxy.plan.branches import ENDPOINT_SETS, Branches, Client, Verdict
from kdns.proxy.plan.config import LocalPods
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKind, PortName

REJECT_CHAIN: Final = "reject-chain"
NO_ENDPOINTS_NUMBERS: Final = {Verdict.REJECT: 1, Verdict.DROP: 2}
MARK: Final = "jump mark-for-masquerade"


@dataclass(slots=True)
class Content:
    """The content of fronts in the table: elements by the set's name, chains by name, and maps of their numbers."""

    numbers: TableNumbers
    elements: dict[str, dict[ElementKey, Data]] = field(default_factory=dict)
    chains: dict[str, Chain] = field(default_factory=dict)
    chain_numbers: dict[str, dict[ElementKey, Data]] = field(default_factory=dict)

    def put(self, into: Set, key: ElementKey, data: Data = None) -> None:
        self.elements.setdefault(into.name, {})[key] = data

    def put_chain(self, into: Set, key: ElementKey, name: str, port: PortName, chains: Set) -> None:
        """Adds one element with the number of the chain, and the number to the map of chains."""
        number = self.numbers.chains.of(name)
        self.chain_numbers.setdefault(chains.name, {})[number,] = Goto(name)
        self.put(into, key, Number(number, str(port)))


def content_of(fronts: Iterable[Front], family_plan: FamilyPlan, numbers: TableNumbers) -> Content:
    content = Content(numbers)
    for front in fronts:
        _add_front(content, front, family_plan)
        for address in front.port.hairpins:
            content.put(sets.HAIRPINS, (address, address))
        for relay in front.port.endpoints.reachable if family_plan.mode.relays else ():
            content.put(sets.RELAYS, (relay.address, front.key.protocol.lower(), relay.port))
    return content


def _add_front(content: Content, front: Front, family_plan: FamilyPlan) -> None:
    """Puts in the front's branches: source ranges, verdicts, and the way to each list of endpoints."""
    key, side, branches = front.key, side_of(front.kind), front.branches.unguarded
    at: ElementKey = (key.protocol.lower(), key.port)
    if side is sets.ADDRESSES:
        at = (key.address, *at)
    if front.kind is FrontKind.CLUSTER_IP:
        content.put(sets.CLUSTER_IPS, (key.address,))
    if front.is_guarded:
        content.put(sets.FIREWALLED, at)
        for network in front.source_ranges:
            content.put(sets.FIREWALL_RANGES, (*at, str(network)))
    name = front.port.name
    if front.refusal:
        content.put(side.no_endpoints, at, Number(NO_ENDPOINTS_NUMBERS[front.refusal], str(name)))
    lists = front.lists
    if len(lists) > 1 or (lists and front.refusal):
        content.put_chain(side.services, at, external_local_chain(side), name, sets.CHAINS)
        for verdict in lists:
            chain = _endpoint_chain(content, front, at, verdict, family_plan.family)
            content.put_chain(side.lists[verdict], at, chain, name, sets.LOCAL_CHAINS)
    elif lists:
        chain = _endpoint_chain(content, front, at, lists[0], family_plan.family)
        if any(branch.masquerade for branch in branches):
            masqueraded = _masquerade_chain(chain, branches, family_plan.local_pods, family_plan.family)
            content.chains[masqueraded.name] = masqueraded
            chain = masqueraded.name
        content.put_chain(side.services, at, chain, name, sets.CHAINS)


def external_local_chain(side: Side) -> str:
    """For fronts whose branches lead to different lists: all of them have externalTrafficPolicy Local."""
    return f"external-local{side.suffix}"


@lru_cache(maxsize=4096)
def _masquerade_chain(chain: str, branches: Branches, local_pods: LocalPods | None, family: Family) -> Chain:
    """Marks the packets to masquerade and continues in the list's chain."""
    prefix = "masquerade" if len(branches) == 1 else "masquerade-nonlocal"
    rules = branch_rules(branches, dict.fromkeys(ENDPOINT_SETS, f"goto {chain}"), local_pods, family)
    return Chain(f"{prefix}-{chain}", tuple(rules))


def branch_rules(
    branches: Branches, ways: Mapping[Verdict, str], local_pods: LocalPods | None, family: Family
) -> Iterator[str]:
    """`ways` are the statements that lead to lists."""
    for branch in branches:
        match = _client_match(branch.client, local_pods, family)
        if branch.masquerade:
            yield f"{match}{MARK}"
        if branch.verdict in ways:
            yield f"{match}{ways[branch.verdict]}"


def _client_match(client: Client, local_pods: LocalPods | None, family: Family) -> str:
    if client is Client.NODE:
        return "fib saddr type local "
    if client is not Client.LOCAL_POD or local_pods is None:
        return ""
    if local_pods.bridge:
        return f"iifname {quoted(local_pods.bridge)} "
    if local_pods.interface_prefix:
        return f"iifname {quoted(f'{local_pods.interface_prefix}*')} "
    return f"{NFT_FAMILY[family]} saddr {local_pods.networks[0]} "


def _endpoint_chain(content: Content, front: Front, key: ElementKey, verdict: Verdict, family: Family) -> str:
    side, endpoints, protocol = side_of(front.kind), front.port.endpoints_of(verdict), str(key[-2])
    maps, place = side.endpoint_maps[verdict, protocol], (*key[:-2], key[-1])
    affinity_s = front.port.affinity_s
    for draw, endpoint in enumerate(endpoints):
        target = AddressPort(endpoint.address, endpoint.port)
        if affinity_s:
            number = content.numbers.endpoints.of(front.port.name, endpoint)
            content.put(maps.ids, (*place, draw), number)
            content.put(maps.by_id, (*place, number), target)
        else:
            content.put(maps.endpoints, (*place, draw), target)
    count = len(endpoints)
    chain = affinity_chain(maps, count, affinity_s, family) if affinity_s else _draw_chain(maps, count, family)
    content.chains[chain.name] = chain
    return chain.name


@lru_cache(maxsize=4096)
def _draw_chain(maps: EndpointMaps, count: int, family: Family) -> Chain:
    name = maps.endpoints.name
    draw = f"{expression(maps.key, family)} . numgen random mod {count}"
    rule = f"meta priority set 0 dnat {NFT_FAMILY[family]} addr . port to {draw} map @{name}"
    return Chain(f"{name}-{count}", (rule,))


@lru_cache(maxsize=4096)
def affinity_chain(maps: EndpointMaps, count: int, affinity_s: int, family: Family) -> Chain:
    """A client goes to its last endpoint; a new one, or one whose endpoint is gone, to any.

    The key of the one map of clients is a client with the number of a Service port, its data an endpoint ID. A rule can
    hand on one field of the packet, so an ID has the Service port's number in its upper 16 bits; the first rule takes
    it from the first endpoint. A client whose endpoint is gone has to be deleted before it gets another, since an
    update does not overwrite. An endpoint may go between draw and look-up: then the list's first is taken. Where the
    map is full, the update ends its rule, and the next one sends the client to what was drawn.
    """
    key, client, ip = expression(maps.key, family), expression(sets.CLIENT_OF_PORT, family), NFT_FAMILY[family]
    remember = f"update @{sets.CLIENTS.name} {{ {client} timeout {affinity_s}s : meta priority }}"
    send = f"dnat {ip} addr . port to {key} . meta priority map @{maps.by_id.name}"
    draw_any, draw_first = (
        f"meta priority set {key} . numgen random mod {number} map @{maps.ids.name}" for number in (count, 1)
    )
    rules = (
        draw_first,
        f"meta priority set {client} map @{sets.CLIENTS.name} {remember} {send}",
        f"delete @{sets.CLIENTS.name} {{ {client} : meta priority }}",
        f"{draw_any} {remember}",
        send,
        draw_first,
        send,
    )
    return Chain(f"{maps.ids.name}-{count}-{affinity_s}s", rules)
