"""The iptables rules around the virtual servers: they depend on configuration and node, not on Services.

A packet of another machine or a Pod meets nat PREROUTING, filter INPUT, IPVS, filter OUTPUT with the endpoint as its
destination, and nat POSTROUTING. A packet of the node meets nat OUTPUT, IPVS, and the rest as above; where IPVS has no
virtual server for it, it returns to the node through lo, and filter INPUT decides. The addresses of Services are the
node's own, on kube-ipvs0.

Chains, comments and jumps are kube-proxy's (pkg/proxy/ipvs/proxier.go), so that runbooks, its --cleanup and its next
start find them. Differs, inside of the chains:

- Rules exist even if their sets are empty, so a change of Services only changes sets.
- Packets to cluster IPs and load balancer IPs are accepted before node ports are matched. kube-proxy accepts them
  last, and masquerades packets to a Service's port that is the number of another's node port.
- Node ports are matched at nodePortAddresses, in kube-proxy at every local address.
- With externalTrafficPolicy Local, packets of the node itself are masqueraded: their source would be the Service's
  address, to which endpoints on other nodes cannot answer.
- Fronts without endpoints refuse, and fronts with policy Local and no local endpoints drop, as the documentation says.
- TCP is refused by a reset: a program of this node ignores an ICMP error while it is still in connect(), and the kernel
  limits their rate. ICMP itself is not refused: the addresses answer ping.
- External IPs are accepted without a look at the bridge that packets come from, since they are local addresses anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kdns.net import VERSION, Family, parse_unmapped_address
from kdns.proxy.ipvs import sets
from kdns.proxy.plan.branches import Client
from kdns.proxy.plan.plan import FamilyPlan, Front
from kdns.proxy.xtables.names import (
    CANARY,
    FILTER,
    FILTER_CHAIN,
    FORWARD,
    IPVS_CHAINS,
    LOAD_BALANCER_CHAIN,
    MANGLE,
    MARK_MASQUERADE,
    NAT,
    NODE_PORT,
    OUT_FILTER,
    POSTROUTING,
    PROXY_FIREWALL,
    SERVICES,
    SOURCE_RANGES,
)
from kdns.proxy.xtables.rules import (
    LOCAL_DESTINATION,
    LOCAL_SOURCE,
    OWNER,
    Chain,
    Rule,
    comment,
    host,
    jump,
    mark_masquerade,
    not_local_pods,
    postrouting,
    reject,
    restore,
    rule,
    source,
)

_NEW: Final = "-m conntrack --ctstate NEW"
_RETURN: Final = "-j RETURN"
_MARK: Final = f"-j {MARK_MASQUERADE}"
_LOOPBACK: Final[dict[Family, str]] = {"IPv4": "127.0.0.0/8", "IPv6": "::1/128"}
_ICMP: Final[dict[Family, str]] = {"IPv4": "icmp", "IPv6": "ipv6-icmp"}
_RESET: Final = "-j REJECT --reject-with tcp-reset"


JUMPS: Final = (
    jump(NAT, "OUTPUT", SERVICES, text="kubernetes service portals"),
    jump(NAT, "PREROUTING", SERVICES, text="kubernetes service portals"),
    jump(NAT, "POSTROUTING", POSTROUTING, text="kubernetes postrouting rules"),
    jump(FILTER, "FORWARD", FORWARD, text="kubernetes forwarding rules"),
    jump(FILTER, "INPUT", NODE_PORT, text="kubernetes health check rules"),
    jump(FILTER, "INPUT", PROXY_FIREWALL, text="kube-proxy firewall rules"),
    jump(FILTER, "FORWARD", PROXY_FIREWALL, text="kube-proxy firewall rules"),
    jump(FILTER, "INPUT", FILTER_CHAIN, text="kubernetes ipvs access filter"),
    jump(FILTER, "OUTPUT", OUT_FILTER, text="kubernetes ipvs access filter"),
)
"""The jumps in the order in which each is inserted at the top of its chain, as kube-proxy inserts them."""


def base_chains(family_plan: FamilyPlan, masquerade_mark: int, out_filters: Iterable[Rule] = ()) -> str:
    """Input of iptables-restore --noflush, for which the sets have to exist.

    `out_filters` are the rules of the one chain that depends on Services.
    """
    chains = {chain[:2]: chain for chain in fixed_chains(family_plan, masquerade_mark)}
    chains[FILTER, OUT_FILTER] = Chain(FILTER, OUT_FILTER, tuple(out_filters))
    lines: list[str] = []
    for table, names in IPVS_CHAINS.items():
        rules = [f"-A {name} {line}" for name in names for line in chains[table, name].rules]
        lines += restore(table, names, rules)
    return "\n".join((*lines, ""))


def out_filter(front: Front, family_plan: FamilyPlan) -> Iterator[Rule]:
    """Keeps the node from a load balancer's address if it is outside of the source ranges.

    IPVS translates the node's packets before a filter sees them. Their source is the address on kube-ipvs0 that they go
    to, if the program has not bound its socket.
    """
    key, ranges = front.key, front.source_ranges
    if not (ranges and front.lists):
        return
    front_address = parse_unmapped_address(key.address)
    own = (*((front_address,) if front_address else ()), *family_plan.node.addresses)
    to = f"-m ipvs --vaddr {host(key.address)} --vproto {key.protocol.lower()} --vport {key.port}"
    for address in dict.fromkeys(own):
        if address.version == VERSION[family_plan.family] and not any(address in network for network in ranges):
            yield rule(source(str(address)), to, "-j DROP")


def changed_out_filter(removed: Iterable[Rule], added: Iterable[Rule]) -> str:
    """The restore that changes these rules of the chain that depends on Services; "" for none."""
    lines = [f"-D {OUT_FILTER} {line}" for line in removed] + [f"-A {OUT_FILTER} {line}" for line in added]
    return "\n".join((*restore(FILTER, (), lines), "")) if lines else ""


def fixed_chains(family_plan: FamilyPlan, masquerade_mark: int) -> Iterator[Chain]:
    mark = f"{masquerade_mark:#x}"
    matches = Matches(family_plan)
    marked = postrouting(mark)
    hairpin = rule(matches.commented(sets.LOOP_BACK, "dst,dst,src"), "-j MASQUERADE")
    yield Chain(NAT, SERVICES, tuple(_services(family_plan, matches)))
    yield marked._replace(rules=(hairpin, *marked.rules))
    yield Chain(NAT, NODE_PORT, tuple(_node_port(matches)))
    yield Chain(NAT, LOAD_BALANCER_CHAIN, (*_local(matches, sets.LOAD_BALANCER_LOCAL), _MARK))
    yield mark_masquerade(mark)
    yield Chain(FILTER, FORWARD, tuple(_forward(mark)))
    yield Chain(FILTER, NODE_PORT, (rule("-p tcp", matches.commented(sets.HEALTH_CHECKS), "-j ACCEPT"),))
    yield Chain(FILTER, PROXY_FIREWALL, (rule(matches.commented(sets.LOAD_BALANCER_FIREWALL), f"-j {SOURCE_RANGES}"),))
    yield Chain(FILTER, SOURCE_RANGES, (*_source_ranges(matches), "-j DROP"))
    yield Chain(FILTER, FILTER_CHAIN, tuple(_filter(family_plan, matches)))
    yield Chain(MANGLE, CANARY, (comment(OWNER),))


@dataclass(frozen=True, slots=True)
class Matches:
    """The matches of one family's sets."""

    family_plan: FamilyPlan

    def set(self, name: str, direction: str = "") -> str:
        direction = direction or ("dst" if sets.SETS[name][0] == sets.BITMAP_PORT else "dst,dst")
        return f"-m set --match-set {sets.set_name(name, self.family_plan.family)} {direction}"

    def commented(self, name: str, direction: str = "") -> str:
        return rule(comment(f"Kubernetes {sets.SETS[name][1]}"), self.set(name, direction))


def _services(family_plan: FamilyPlan, matches: Matches) -> Iterator[Rule]:
    yield f"-s {_LOOPBACK[family_plan.family]} {_RETURN}"
    yield rule(matches.commented(sets.LOAD_BALANCER), f"-j {LOAD_BALANCER_CHAIN}")
    yield rule(*_masqueraded(family_plan, matches), _MARK)
    yield rule(matches.commented(sets.EXTERNAL_IP), _MARK)
    yield rule(matches.commented(sets.EXTERNAL_IP), LOCAL_DESTINATION, "-j ACCEPT")
    yield rule(matches.commented(sets.EXTERNAL_IP_LOCAL), LOCAL_SOURCE, _MARK)
    yield rule(matches.commented(sets.EXTERNAL_IP_LOCAL), LOCAL_DESTINATION, "-j ACCEPT")
    yield rule(matches.set(sets.CLUSTER_IP), "-j ACCEPT")
    yield rule(matches.set(sets.LOAD_BALANCER), "-j ACCEPT")
    for network in family_plan.node_ports.networks:
        at = "" if network.prefixlen == 0 else f"-d {network}"
        yield rule(at, LOCAL_DESTINATION, f"-j {NODE_PORT}")


def _masqueraded(family_plan: FamilyPlan, matches: Matches) -> tuple[str, ...]:
    """Matches packets to cluster IPs that are masqueraded.

    Where no branch masquerades, those of the node are, as their source is the address of kube-ipvs0 that they go to.
    """
    *others, last = family_plan.cluster_ip
    if not last.masquerade:
        return (matches.commented(sets.CLUSTER_IP, "src,dst"),)
    pods = any(branch.client is Client.LOCAL_POD and not branch.masquerade for branch in others)
    return matches.commented(sets.CLUSTER_IP), not_local_pods(family_plan) if pods else ""


def _node_port(matches: Matches) -> Iterator[Rule]:
    for protocol, name in sets.NODE_PORTS.items():
        at = f"-p {protocol.lower()}"
        yield from (rule(at, local) for local in _local(matches, sets.NODE_PORTS_LOCAL[protocol]))
        yield rule(at, matches.commented(name), _MARK)


def _local(matches: Matches, name: str) -> Iterator[Rule]:
    """Packets to fronts with externalTrafficPolicy Local keep their source, unless the node sent them."""
    yield rule(matches.commented(name), LOCAL_SOURCE, _MARK)
    yield rule(matches.commented(name), _RETURN)


def _forward(mark: str) -> Iterator[Rule]:
    yield rule(comment("kubernetes forwarding rules"), f"-m mark --mark {mark}/{mark} -j ACCEPT")
    text = comment("kubernetes forwarding conntrack rule")
    yield rule(text, "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")


def _source_ranges(matches: Matches) -> Iterator[Rule]:
    yield from (rule(matches.commented(name, "dst,dst,src"), _RETURN) for name in (sets.SOURCE_CIDR, sets.SOURCE_IP))


def _filter(family_plan: FamilyPlan, matches: Matches) -> Iterator[Rule]:
    """First the fronts that refuse or drop; then ports that no Service has. Source ranges drop before fronts refuse.

    Packets of established connections are spared the sets.
    """
    yield f"-m conntrack ! --ctstate NEW {_RETURN}"
    yield f"-p {_ICMP[family_plan.family]} {_RETURN}"
    refused = rule(_NEW, matches.set(sets.NO_ENDPOINTS))
    yield rule(refused, f"-j {PROXY_FIREWALL}")
    yield rule("-p tcp", refused, _RESET)
    yield rule(refused, reject(family_plan.family))
    yield rule(_NEW, matches.set(sets.CLUSTER_IP_NO_LOCAL), "-j DROP")
    yield rule(_NEW, matches.set(sets.EXTERNAL_NO_LOCAL), not_local_pods(family_plan), "-j DROP")
    for name in (sets.LOAD_BALANCER, sets.CLUSTER_IP, sets.EXTERNAL_IP, sets.EXTERNAL_IP_LOCAL):
        yield rule(matches.set(name), _RETURN)
    yield rule("-p tcp", matches.set(sets.HEALTH_CHECKS), _RETURN)
    undefined = rule(_NEW, matches.set(sets.IPVS_IPS, "dst"))
    yield rule("-p tcp", undefined, _RESET)
    yield rule(undefined, reject(family_plan.family))
