"""The names that a resolver tries for a name without a dot at its end (resolv.conf(5))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kdns.cluster.observed import ObservedPod
from kdns.errors import InputError

CLUSTER_NDOTS: Final = 5
"""The kubelet's `options ndots` for policy ClusterFirst."""
NDOTS: Final = 1
"""That of a resolver without the option."""


@dataclass(frozen=True, slots=True)
class Resolver:
    """A resolv.conf: search domains, ndots, and what is remarkable about it; `is_of_cluster` if it asks the cluster."""

    searches: tuple[str, ...]
    ndots: int
    remark: str = ""
    is_of_cluster: bool = True

    def names(self, name: str) -> tuple[str, ...]:
        """The full names that are tried, in order, until one has an answer."""
        if name.endswith("."):
            return (name,)
        searched = tuple(f"{name}.{search.strip('.')}." for search in self.searches)
        own = f"{name}."
        return (own, *searched) if name.count(".") >= self.ndots else (*searched, own)


def cluster_resolver(namespace: str, domain: str) -> Resolver:
    domain = domain.strip(".")
    return Resolver((f"{namespace}.svc.{domain}", f"svc.{domain}", domain), CLUSTER_NDOTS)


def pod_resolver(pod: ObservedPod, domain: str) -> Resolver:
    """By the Pod's dnsPolicy and dnsConfig, without what it inherits from its node."""
    spec, namespace = pod.spec, pod.key[0]
    policy = spec.dns_policy
    resolver = cluster_resolver(namespace, domain)
    if policy == "ClusterFirst" and spec.host_network:
        remark = "it has hostNetwork, so ClusterFirst means Default: it asks its node's servers, not the cluster's"
        resolver = Resolver(
            (), NDOTS, f"{remark}; ClusterFirstWithHostNet would ask the cluster's", is_of_cluster=False
        )
    elif policy == "Default":
        resolver = Resolver((), NDOTS, "its dnsPolicy is Default: it asks its node's servers", is_of_cluster=False)
    elif policy == "None":
        resolver = Resolver((), NDOTS, "its dnsPolicy is None: dnsConfig alone decides")
    config = spec.dns_config
    if config is None:
        return resolver
    searches = tuple(dict.fromkeys((*resolver.searches, *(config.searches or ()))))
    ndots = next((option.value for option in config.options or () if option.name == "ndots"), None)
    if ndots is not None and not ndots.isdecimal():
        raise InputError(f"Pod {namespace}/{pod.key[1]}: spec.dnsConfig.options: ndots is {ndots!r}, expected a number")
    return Resolver(searches, resolver.ndots if ndots is None else int(ndots), resolver.remark, resolver.is_of_cluster)
