"""Pods' resolvers: who does not ask the cluster's DNS, and whose search lists multiply lookups. One problem each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kdns.cluster.observed import ObservedPod
from kdns.cluster.readiness import and_
from kdns.diagnosis.problem import NOTE, WARNING, Problem, pods_text
from kdns.diagnosis.view import ClusterView
from kdns.errors import InputError
from kdns.explain.search import pod_resolver
from kdns.net import parse_address

_OUTSIDE: Final = "www.example.com"
_OF_EVERY_POD: Final = 4
"""Names that are tried for a name such as www.example.com with the cluster's own search list and ndots."""
_OF_NODES: Final = "kube-system"
"""The namespace whose Pods have their nodes' resolvers on purpose."""


def resolvers(view: ClusterView) -> Iterator[Problem]:
    multiplied: dict[int, list[str]] = {}
    outside: dict[str, list[str]] = {}
    known: dict[tuple[object, ...], int] = {}
    for (namespace, name), pod in view.state.pods.items():
        if not isinstance(pod, ObservedPod) or not pod.addresses:
            continue
        spec = pod.spec
        same = namespace, spec.dns_policy, spec.dns_config, spec.host_network
        try:
            tried = known[same] if same in known else known.setdefault(same, _tried(pod, view.domain))
        except InputError as error:
            text = str(error).partition(": ")[2]
            yield Problem("pod-resolver", WARNING, "Pod", (namespace, name), "spec.dnsConfig", text)
            continue
        if foreign := _foreign_servers(pod, view):
            outside.setdefault(f"dnsPolicy None and the servers {and_(foreign)}", []).append(f"{namespace}/{name}")
        elif not tried and namespace != _OF_NODES:
            why = "hostNetwork and dnsPolicy ClusterFirst" if spec.host_network else "dnsPolicy Default"
            outside.setdefault(why, []).append(f"{namespace}/{name}")
        elif tried > _OF_EVERY_POD:
            multiplied.setdefault(tried, []).append(f"{namespace}/{name}")
    for why, pods in outside.items():
        text = f"{pods_text(pods)} with {why}: they do not ask the cluster's DNS, so they know no name of the cluster"
        remedy = "dnsPolicy: ClusterFirst, or ClusterFirstWithHostNet with hostNetwork"
        yield _of_pods("pod-node-dns", pods, "spec.dnsPolicy", text, remedy)
    for tried, pods in multiplied.items():
        how = f"each lookup of a name such as {_OUTSIDE} asks for {tried} names, for A and AAAA each"
        text = f"{pods_text(pods)}: {how}"
        remedy = "take names out of dnsConfig.searches, set ndots, or end such names with a dot"
        yield _of_pods("pod-ndots", pods, "spec.dnsConfig.options", text, remedy)


def _tried(pod: ObservedPod, domain: str) -> int:
    """Returns how many names a lookup of one outside takes; 0 if the cluster's DNS is not asked. Raises InputError."""
    resolver = pod_resolver(pod, domain)
    names = resolver.names(_OUTSIDE) if resolver.is_of_cluster else ()
    return len(names) if names[:1] != (f"{_OUTSIDE}.",) else 1


def _foreign_servers(pod: ObservedPod, view: ClusterView) -> Sequence[str]:
    """Returns the name servers of dnsPolicy None if none is in the cluster: its DNS, a Pod or a node-local cache."""
    config = pod.spec.dns_config
    servers = config.nameservers or () if config and pod.spec.dns_policy == "None" else ()
    addresses = [address for address in map(parse_address, servers) if address]
    is_near = any(
        address.is_link_local
        or address.is_loopback
        or view.services_at(str(address))
        or str(address) in view.pod_addresses
        for address in addresses
    )
    return () if is_near else servers


def _of_pods(cause: str, pods: list[str], field: str, text: str, remedy: str) -> Problem:
    namespace, _, name = pods[0].partition("/")
    return Problem(cause, NOTE, "Pod", (namespace, name), field, text, remedy)
