"""The rules that one front, or one Service port, adds to the chains that Services share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kdns.proxy.iptables.base_chains import LOCALHOST_PACKETS, Features, node_port_destinations, serves_loopback
from kdns.proxy.plan.branches import Verdict
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKind, PortPlan
from kdns.proxy.xtables.names import (
    EXTERNAL_SERVICES,
    FILTER,
    NAT,
    NODE_PORTS,
    PROXY_FIREWALL,
    SERVICES,
    PortChains,
    port_chains,
)
from kdns.proxy.xtables.rules import ChainRule, comment, destination, port, reject, rule

_KINDS: Final = {
    FrontKind.CLUSTER_IP: " cluster IP",
    FrontKind.EXTERNAL_IP: " external IP",
    FrontKind.LOAD_BALANCER_IP: " loadbalancer IP",
    FrontKind.NODE_PORT: "",
}
"""The text that follows the Service port's name in comments."""
_WITHOUT_ENDPOINTS: Final = {Verdict.REJECT: "has no endpoints", Verdict.DROP: "has no local endpoints"}


def front_rules(front: Front, family_plan: FamilyPlan, features: Features) -> Iterator[ChainRule]:
    """The rules in the order in which they are to stand.

    Differs: kube-proxy refuses connections to a node port without endpoints at every local address, also at those that
    have no node ports by nodePortAddresses, where something else may listen. And what the node itself sends to an
    external address without endpoints leaves the node there, and is refused here.
    """
    key, name, chains = front.key, str(front.port.name), port_chains(front.port.name)
    at = port(key.protocol.lower(), key.port)
    to = rule(destination(key.address), at) if key.address else at
    if front.lists:
        text, target = comment(f"{name}{_KINDS[front.kind]}"), f"-j {_way(front, chains)}"
        if front.kind is not FrontKind.NODE_PORT:
            yield ChainRule(NAT, SERVICES, rule(to, text, target))
        else:
            if features.nfacct and family_plan.family == "IPv4" and serves_loopback(family_plan):
                counted = f"-m nfacct --nfacct-name {LOCALHOST_PACKETS}"
                yield ChainRule(NAT, NODE_PORTS, rule("-d 127.0.0.0/8", at, text, counted, target))
            yield ChainRule(NAT, NODE_PORTS, rule(at, text, target))
    if front.is_guarded and front.lists:  # the refusal below is for clients within the source ranges too
        text = comment(f"{name} traffic not accepted by {chains.firewall}")
        yield ChainRule(FILTER, PROXY_FIREWALL, rule(to, text, "-j DROP"))
    for relay in front.port.endpoints.reachable if family_plan.mode.relays else ():
        of_relay = rule(destination(relay.address), port(key.protocol.lower(), relay.port), comment(f"{name} relay"))
        untranslated = rule(of_relay, "-m conntrack ! --ctstate DNAT", reject(family_plan.family))
        yield ChainRule(FILTER, EXTERNAL_SERVICES, untranslated)
    if front.refusal:
        text = comment(f"{name} {_WITHOUT_ENDPOINTS[front.refusal]}")
        target = reject(family_plan.family) if front.refusal is Verdict.REJECT else "-j DROP"
        destinations = (
            node_port_destinations(family_plan) if front.kind is FrontKind.NODE_PORT else (destination(key.address),)
        )
        for chain in _checks(front.kind, front.refusal):
            yield from (ChainRule(FILTER, chain, rule(match, at, text, target)) for match in destinations)


def _checks(kind: FrontKind, verdict: Verdict) -> tuple[str, ...]:
    """The chains that refuse or drop what no endpoint gets.

    One is for packets that leave the node or pass it, the other for those that pass it or come in.
    """
    if kind is FrontKind.CLUSTER_IP:
        return (SERVICES,)
    is_at_address = kind is not FrontKind.NODE_PORT and verdict is Verdict.REJECT
    return (EXTERNAL_SERVICES, SERVICES) if is_at_address else (EXTERNAL_SERVICES,)


def _way(front: Front, chains: PortChains) -> str:
    if front.kind is FrontKind.CLUSTER_IP:
        return list_chain(front.branches[-1].verdict, chains)
    return chains.firewall if front.is_guarded else chains.external


def list_chain(verdict: Verdict, chains: PortChains) -> str:
    return chains.cluster if verdict is Verdict.CLUSTER else chains.local


def port_rules(port_plan: PortPlan, family_plan: FamilyPlan) -> Iterator[ChainRule]:
    """Rules beside the fronts: load balancers probe the health check node port."""
    if family_plan.mode.accepts_health_checks and port_plan.health_check_port:
        text = comment(f"{port_plan.name} health check node port")
        yield ChainRule(FILTER, NODE_PORTS, rule(port("tcp", port_plan.health_check_port), text, "-j ACCEPT"))
