"""The plan of every virtual IP on this node, which trace, relays and renderers interpret.

A plan has one part per IP family, which maps fronts, that is addresses (or the node, for node ports) with protocol and
port, to the Service port behind them. Service ports hold the decisions, as branches and sets of endpoints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, assert_never

from msgspec import Struct

from kdns.cluster.objects import Key
from kdns.net import Address, Family, Network, join_host_port
from kdns.proxy.plan.branches import Branch, Branches, Client, Verdict
from kdns.proxy.plan.config import LocalPods, NodeView
from kdns.proxy.plan.endpoints import EndpointLists, ServiceEndpoint
from kdns.proxy.plan.node_ports import NodePortAddresses
from kdns.proxy.plan.semantics import Semantics

_UNPRINTABLE: Final = re.compile(r"[^ !#-~]")


NOT_SUPPORTED: Final = "NotSupportedByMode"
SPECIAL_ENDPOINT: Final = "SpecialEndpoint"
SHADOWS: Final = "AddressShadows"
"""Reasons of Events about a Service."""


def printable(text: str) -> str:
    """Returns the text with a "?" for every quotation mark and for everything that is not printable ASCII.

    An API that does not validate may let any text in as a name. None of it may end a string, a comment or a line.
    """
    return _UNPRINTABLE.sub("?", text)


class PortName(NamedTuple):
    """One port of one Service; `port` is its name, "" for the only one."""

    namespace: str
    service: str
    port: str
    protocol: str

    def __str__(self) -> str:
        """As kube-proxy writes it in logs and comments: namespace/service:port."""
        return f"{self.namespace}/{self.service}" + (f":{self.port}" if self.port else "")


class FrontKind(Enum):
    """The role of a front for its Service."""

    CLUSTER_IP = "cluster IP"
    EXTERNAL_IP = "external IP"
    LOAD_BALANCER_IP = "load balancer IP"
    NODE_PORT = "node port"

    __hash__ = object.__hash__  # that of Enum is a function in Python, and a start looks up 100,000


class FrontKey(NamedTuple):
    """Destination of a packet; `address` is "" for node ports."""

    address: str
    protocol: str
    port: int

    def __str__(self) -> str:
        return f"{join_host_port(self.address or '*', self.port)}/{self.protocol}"


class Limit(NamedTuple):
    """What the mode does not do for a Service port, or an author of it should know, in words.

    `kind` is the kind of its fronts, None for all. `event` is the reason of an Event about it.
    """

    text: str
    kind: FrontKind | None = None
    event: str = NOT_SUPPORTED


class PortPlan(Struct, frozen=True):
    """All decisions for one Service port in one family.

    `cluster_ip`, `external` and `load_balancer` are the branches of fronts by kind; external IPs and node ports share
    theirs. `source_ranges` are the networks that the branches for clients outside of them mean;
    they do not overlap.
    `hairpins` are the addresses of endpoints that are masqueraded when they are their own client.
    `affinity_s` is 0 for none. `health_check_port` is where load balancers ask for local endpoints, 0 for nowhere.
    `created` is the Service's creationTimestamp: older claims to a front come first.
    `serving` are a UDP port's endpoints on any node that still answer, in use or not.
    `limits` say what its Service requests and the mode does not do.
    """

    name: PortName
    cluster_ip: Branches
    external: Branches
    load_balancer: Branches
    endpoints: EndpointLists
    fronts: tuple[tuple[FrontKey, FrontKind], ...]
    source_ranges: tuple[Network, ...] = ()
    hairpins: tuple[str, ...] = ()
    affinity_s: int = 0
    health_check_port: int = 0
    serving: tuple[ServiceEndpoint, ...] = ()
    created: str = ""
    limits: tuple[Limit, ...] = ()

    def branches(self, kind: FrontKind) -> Branches:
        if kind is FrontKind.CLUSTER_IP:
            return self.cluster_ip
        return self.load_balancer if kind is FrontKind.LOAD_BALANCER_IP else self.external

    def endpoints_of(self, verdict: Verdict) -> tuple[ServiceEndpoint, ...]:
        if verdict is Verdict.CLUSTER:
            return self.endpoints.cluster
        return self.endpoints.local if verdict is Verdict.LOCAL else ()


class Front(Struct, frozen=True):
    """One destination and the Service port that has it."""

    key: FrontKey
    kind: FrontKind
    port: PortPlan

    @property
    def branches(self) -> Branches:
        return self.port.branches(self.kind)

    @property
    def lists(self) -> tuple[Verdict, ...]:
        return self.branches.lists

    @property
    def refusal(self) -> Verdict | None:
        return self.branches.refusal

    @property
    def is_guarded(self) -> bool:
        return self.branches.is_guarded

    @property
    def source_ranges(self) -> tuple[Network, ...]:
        """The networks that clients have to be in, which do not overlap; none: clients may be anywhere."""
        return self.port.source_ranges if self.is_guarded else ()


class Refusal(NamedTuple):
    """A Service port that does not get a front which it names, as what it names it, and why."""

    name: PortName
    kind: FrontKind
    reason: str


@dataclass(frozen=True, slots=True)
class FamilyPlan:
    """One family's part of a plan, whose maps only their owner changes.

    `refused` are the Service ports that do not get a front, by that front. `limited` are the Service ports with limits.
    `shadows` says what else is at the address of a front.
    `cluster_ip` are the branches of cluster IPs with policy Cluster that have endpoints, and `external_local` those of
    externalTrafficPolicy Local where this node has endpoints, whatever the Service.
    `virtual_ips` are addresses that belong to Services only, with their number of fronts: cluster IPs; in a mode that
    makes Services' addresses the node's own, also those that were not the node's before.
    `unallocated` are the service ranges except loopback ones, which do not overlap: packets to unused cluster IPs in
    them are dropped. It is empty if the mode does not drop them. `chosen_by` says how one of several endpoints is
    chosen, "" by chance.
    """

    family: Family
    mode: Semantics
    node: NodeView
    node_ports: NodePortAddresses
    ports: dict[PortName, PortPlan] = field(default_factory=dict)
    fronts: dict[FrontKey, Front] = field(default_factory=dict)
    refused: dict[FrontKey, tuple[Refusal, ...]] = field(default_factory=dict)
    limited: dict[PortName, PortPlan] = field(default_factory=dict)
    shadows: dict[FrontKey, str] = field(default_factory=dict)
    virtual_ips: dict[str, int] = field(default_factory=dict)
    local_pods: LocalPods | None = None
    cluster_ip: Branches = field(default_factory=Branches)
    external_local: Branches = field(default_factory=Branches)
    unallocated: tuple[Network, ...] = ()
    chosen_by: str = ""

    def front_of(self, destination: Address, protocol: str, port: int) -> Front | None:
        """Returns the front that a packet goes to; an address of a Service comes before a node port."""
        front = self.fronts.get(FrontKey(str(destination), protocol, port))
        if front is None and destination in self.node_ports:
            front = self.fronts.get(FrontKey("", protocol, port))
        return front

    def refusals(self, destination: Address, protocol: str, port: int) -> tuple[Refusal, ...]:
        refusals = self.refused.get(FrontKey(str(destination), protocol, port), ())
        if destination in self.node_ports:
            refusals += self.refused.get(FrontKey("", protocol, port), ())
        return refusals

    def branch(self, front: Front, source: Address, interface: str = "") -> Branch:
        """Returns the branch that a client takes; `interface` is where its packets arrive, "" if that is not known."""
        *branches, last = front.branches
        return next((branch for branch in branches if self._matches(branch.client, front, source, interface)), last)

    def _matches(self, client: Client, front: Front, source: Address, interface: str) -> bool:
        match client:
            case Client.OUTSIDE_SOURCE_RANGES:
                return not any(source in network for network in front.source_ranges)
            case Client.LOCAL_POD:
                return self.local_pods is not None and self.local_pods.matches(source, interface)
            case Client.NODE:
                return self.node.has(source)
            case Client.ANY:
                return True
            case _:
                assert_never(client)

    @property
    def accepted_health_check_ports(self) -> frozenset[int]:
        if not self.mode.accepts_health_checks:
            return frozenset()
        return frozenset(port.health_check_port for port in self.ports.values()) - {0}


@dataclass(frozen=True, slots=True)
class Plan:
    """Both families."""

    ipv4: FamilyPlan
    ipv6: FamilyPlan

    def of(self, family: Family) -> FamilyPlan:
        return self.ipv4 if family == "IPv4" else self.ipv6

    @property
    def refusals(self) -> dict[tuple[Key, str], str]:
        """The reason why a Service does not get a front that it names, by both: "external IP 192.0.2.1:22/TCP"."""
        return {
            (refusal.name[:2], f"{refusal.kind.value} {key}"): refusal.reason
            for family_plan in (self.ipv4, self.ipv6)
            for key, refusals in family_plan.refused.items()
            for refusal in refusals
        }

    @property
    def limits(self) -> dict[tuple[Key, str], str]:
        """What is worth a warning about a Service, in words, by both; the values are the reasons of Events."""
        limits = {
            (name[:2], limit.text): limit.event
            for family_plan in (self.ipv4, self.ipv6)
            for name, port in family_plan.limited.items()
            for limit in port.limits
        }
        return limits | {
            (front.port.name[:2], f"{front.kind.value} {key} shadows {what}"): SHADOWS
            for family_plan in (self.ipv4, self.ipv6)
            for key, what in family_plan.shadows.items()
            if (front := family_plan.fronts.get(key))
        }
