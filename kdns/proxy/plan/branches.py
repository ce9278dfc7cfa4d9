"""Ordered branches of a front: the first branch that matches the client decides about a packet.

Only this module makes branches. Trace, relays and renderers interpret them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from typing import Final, NamedTuple


class Client(Enum):
    """Whose packets a branch matches."""

    OUTSIDE_SOURCE_RANGES = "outside of loadBalancerSourceRanges"
    LOCAL_POD = "a Pod of this node"
    NODE = "the node itself"
    ANY = "anybody"


class Verdict(Enum):
    """The set of endpoints that get the packet, or why no endpoint gets it.

    CLUSTER is the set for traffic policy Cluster, LOCAL the one for Local. REJECT informs the client, DROP does not.
    """

    CLUSTER = "cluster"
    LOCAL = "local"
    REJECT = "reject"
    DROP = "drop"

    __hash__ = object.__hash__  # that of Enum is a function in Python, and a start looks up 100,000


ENDPOINT_SETS: Final = (Verdict.CLUSTER, Verdict.LOCAL)
"""The verdicts that lead to endpoints."""


@dataclass(frozen=True, slots=True)
class Branch:
    """The verdict for some clients. `masquerade`: the endpoint sees the node's address as the packet's source."""

    client: Client
    verdict: Verdict
    masquerade: bool = False


class Branches(tuple[Branch, ...]):  # noqa: SLOT001 - its __dict__ keeps what was found
    """Branches in order; the last one is for anybody.

    Fronts with the same branches have the same value, so that what follows from them is found once.
    """

    @cached_property
    def lists(self) -> tuple[Verdict, ...]:
        """The sets of endpoints that some client gets one of, in the order of ENDPOINT_SETS."""
        verdicts = {branch.verdict for branch in self}
        return tuple(endpoint_set for endpoint_set in ENDPOINT_SETS if endpoint_set in verdicts)

    @cached_property
    def refusal(self) -> Verdict | None:
        """REJECT or DROP for clients that no other branch matches; None if they get an endpoint."""
        verdict = self[-1].verdict
        return None if verdict in ENDPOINT_SETS else verdict

    @cached_property
    def is_guarded(self) -> bool:
        return self[0].client is Client.OUTSIDE_SOURCE_RANGES

    @cached_property
    def unguarded(self) -> Branches:
        """The branches of clients within the source ranges."""
        return Branches(self[1:]) if self.is_guarded else self


class SourceNat(NamedTuple):
    """The inputs that decide about masquerading in one family of one node.

    `detects_pods`: packets of local Pods are recognizable. `relays`: every connection to an endpoint is the
    node's own. `has_one_list`: a front has one list of endpoints for all clients. `treats_clients_alike`: it also
    masquerades all of them or none.
    """

    detects_pods: bool
    masquerade_all: bool = False
    relays: bool = False
    has_one_list: bool = False
    treats_clients_alike: bool = False


@cache
def cluster_ip_branches(verdict: Verdict, nat: SourceNat) -> Branches:
    """Returns the branches of a cluster IP.

    A packet that is not of a local Pod may have come from outside of the cluster, and the answer has to return by this
    node.
    """
    if verdict not in ENDPOINT_SETS:
        return Branches((Branch(Client.ANY, verdict),))
    if nat.detects_pods and not nat.masquerade_all and not nat.relays:
        return Branches((Branch(Client.LOCAL_POD, verdict), Branch(Client.ANY, verdict, masquerade=True)))
    return Branches((Branch(Client.ANY, verdict, masquerade=nat.masquerade_all or nat.relays),))


@cache
def external_branches(verdict: Verdict, nat: SourceNat, *, is_local: bool, is_guarded: bool = False) -> Branches:
    """Returns the branches of external IPs, load balancer IPs and node ports.

    `is_local` (externalTrafficPolicy Local): clients keep their address, and packets of local Pods and of the node
    itself go to any endpoint (short circuit), whatever the verdict for others; where a front has one list, to the list
    that the others get, or to any endpoint where they get none. Where clients are treated alike, there is no short
    circuit. `is_guarded`: source ranges apply.
    """
    guard = (Branch(Client.OUTSIDE_SOURCE_RANGES, Verdict.DROP),) if is_guarded else ()
    if not is_local or verdict is Verdict.REJECT or nat.treats_clients_alike:
        masquerade = verdict in ENDPOINT_SETS and not is_local
        return Branches((*guard, Branch(Client.ANY, verdict, masquerade=masquerade)))
    own = verdict if nat.has_one_list and verdict in ENDPOINT_SETS else Verdict.CLUSTER
    pods = (Branch(Client.LOCAL_POD, own, masquerade=nat.relays),) if nat.detects_pods else ()
    node = Branch(Client.NODE, own, masquerade=True)
    anybody = Branch(Client.ANY, verdict, masquerade=nat.relays and verdict in ENDPOINT_SETS)
    return Branches((*guard, *pods, node, anybody))
