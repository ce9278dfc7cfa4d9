"""Which Pods may ask which at a port, by NetworkPolicies (KEP-2091 is not read)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kdns.cluster.objects import Pod
from kdns.cluster.observed import (
    IPBlock,
    LabelSelector,
    NetworkPolicy,
    ObservedNamespace,
    PolicyPeer,
    PolicyPort,
)
from kdns.cluster.selectors import Labels, Requirement, Selector, from_labels
from kdns.cluster.state import State
from kdns.net import parse_address, parse_network

_OPERATORS: Final = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
Direction = Literal["Ingress", "Egress"]


@dataclass(frozen=True, slots=True)
class Destination:
    """A port of Pods: its number and its name, "" for none."""

    pods: Sequence[Pod]
    port: int
    name: str
    protocol: str


def governing(policies: Iterable[NetworkPolicy], labels: Labels, direction: Direction) -> list[NetworkPolicy]:
    """Returns the policies of a namespace that select Pods with these labels and restrict the direction."""
    return [
        policy for policy in policies if _restricts(policy, direction) and _selects(policy.spec.pod_selector, labels)
    ]


def _restricts(policy: NetworkPolicy, direction: Direction) -> bool:
    types = policy.spec.policy_types or ("Ingress", *(("Egress",) if policy.spec.egress else ()))
    return direction in types


class Traffic:
    """Decides whether Pods may send to a destination."""

    def __init__(self, state: State) -> None:
        self._state = state

    def may_send(self, policies: Sequence[NetworkPolicy], to: Destination) -> bool:
        """Whether policies that govern the sender let it send to one of the Pods at least."""
        return not policies or any(
            self._allows_port(rule.ports, to) and self._is_of(rule.to, policy, pod)
            for policy in policies
            for rule in policy.spec.egress or ()
            for pod in to.pods
        )

    def may_receive(self, policies: Sequence[NetworkPolicy], sender: Pod, at: Destination) -> bool:
        """Whether policies that govern the destination's Pods let them receive from a sender."""
        return not policies or any(
            self._allows_port(rule.ports, at) and self._is_of(rule.from_, policy, sender)
            for policy in policies
            for rule in policy.spec.ingress or ()
        )

    def _allows_port(self, ports: Sequence[PolicyPort] | None, to: Destination) -> bool:
        return not ports or any(
            (port.protocol or "TCP") == to.protocol
            and (port.port is None or port.port in {to.port, to.name or to.port} or _is_in_range(port, to.port))
            for port in ports
        )

    def _is_of(self, peers: Sequence[PolicyPeer] | None, policy: NetworkPolicy, pod: Pod) -> bool:
        return not peers or any(self._is_peer(peer, policy, pod) for peer in peers)

    def _is_peer(self, peer: PolicyPeer, policy: NetworkPolicy, pod: Pod) -> bool:
        if peer.ip_block:
            return any(_has(peer.ip_block, address) for address in pod.addresses)
        namespace = pod.metadata.namespace
        if peer.namespace_selector is None:
            is_of_namespace = namespace == policy.metadata.namespace
        else:
            is_of_namespace = _selects(peer.namespace_selector, self._namespace_labels(namespace))
        return is_of_namespace and _selects(peer.pod_selector, pod.metadata.labels or {})

    def _namespace_labels(self, name: str) -> Labels:
        namespace = self._state.namespaces.get(("", name))
        labels = namespace.metadata.labels if isinstance(namespace, ObservedNamespace) else None
        return {_NAME_LABEL: name, **(labels or {})}


def _is_in_range(port: PolicyPort, number: int) -> bool:
    return isinstance(port.port, int) and port.end_port is not None and port.port <= number <= port.end_port


def _has(block: IPBlock, text: str) -> bool:
    address, network = parse_address(text), parse_network(block.cidr)
    if address is None or network is None or address.version != network.version or address not in network:
        return False
    excepted = (parse_network(cidr) for cidr in block.except_ or ())
    return not any(inner and inner.version == address.version and address in inner for inner in excepted)


def _selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    return selector is None or Selector(tuple(_requirements(selector))).matches(labels)


def _requirements(selector: LabelSelector) -> Iterator[Requirement]:
    yield from from_labels(selector.match_labels or {}).requirements
    for expression in selector.match_expressions or ():
        yield Requirement(expression.key, _OPERATORS.get(expression.operator, "exists"), expression.values or ())
