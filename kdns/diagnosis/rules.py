"""The table of rules, and the problems that they find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kdns.cluster.objects import EndpointSlice, Node, Pod, Service
from kdns.cluster.observed import NetworkPolicy, Workload
from kdns.diagnosis import addresses, dns, endpoints, names, policies, resolvers
from kdns.diagnosis.problem import Problem
from kdns.diagnosis.view import ClusterView


class Rule(NamedTuple):
    """What looks at a view, and the kinds without which it would be wrong."""

    find: Callable[[ClusterView], Iterator[Problem]]
    needs: frozenset[type]
    is_of_manifests: bool = True


def _rule(find: Callable[[ClusterView], Iterator[Problem]], *needs: type, is_of_manifests: bool = True) -> Rule:
    return Rule(find, frozenset(needs), is_of_manifests)


RULES: Final = (
    _rule(endpoints.without_endpoints, Service, EndpointSlice),
    _rule(endpoints.ports, Service, EndpointSlice, Pod),
    _rule(endpoints.slices, Service, EndpointSlice, is_of_manifests=False),
    _rule(endpoints.gone, Service, EndpointSlice, Pod, is_of_manifests=False),
    _rule(names.aliases, Service),
    _rule(names.stateful_sets, Service, Workload, is_of_manifests=False),
    _rule(names.hostnames, Service, EndpointSlice),
    _rule(names.variables, Service),
    _rule(addresses.planned, Service, EndpointSlice),
    _rule(addresses.cluster_ips, Service, is_of_manifests=False),
    _rule(addresses.of_services, Service, EndpointSlice, is_of_manifests=False),
    _rule(addresses.families, Service, EndpointSlice, is_of_manifests=False),
    _rule(policies.local, Service, EndpointSlice, Node, is_of_manifests=False),
    _rule(policies.without_effect, Service),
    _rule(policies.hints, Service, EndpointSlice, Node, is_of_manifests=False),
    _rule(resolvers.resolvers, Pod, is_of_manifests=False),
    _rule(dns.service, Service, EndpointSlice, is_of_manifests=False),
    _rule(dns.shut, Service, Pod, NetworkPolicy, is_of_manifests=False),
)


def problems(view: ClusterView) -> list[Problem]:
    """Returns what all rules find, worst first."""
    found = [
        problem
        for rule in RULES
        if rule.needs <= view.known and (view.is_running or rule.is_of_manifests)
        for problem in rule.find(view)
    ]
    return sorted(dict.fromkeys(found), key=lambda problem: problem.rank)
