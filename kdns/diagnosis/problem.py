"""A problem: a cause, the object that has it, the evidence, and what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from kdns.cluster.objects import Key, Service
from kdns.cluster.readiness import SHOWN, count
from kdns.spelling import listed


class Severity(IntEnum):
    """Worst first: names or packets fail now; some do, or will; nothing fails, but it may surprise."""

    ERROR = 0
    WARNING = 1
    NOTE = 2

    def __str__(self) -> str:
        return self.name.lower()


ERROR: Final = Severity.ERROR
WARNING: Final = Severity.WARNING
NOTE: Final = Severity.NOTE

CAUSES: Final[Mapping[str, str]] = {
    "dns-missing": "The cluster has no DNS Service",
    "dns-not-ready": "The DNS Service has no ready endpoint",
    "dns-address": "Kubelets give Pods another DNS address than that of the DNS Service",
    "dns-port": "The DNS Service lacks port 53",
    "dns-shut": "NetworkPolicies shut port 53",
    "corefile": "The Corefile has mistakes",
    "proxy-config": "The KubeProxyConfiguration has mistakes",
    "running": "What a running kdns reports",
    "selector-misspelt": "Selectors that match nothing, but almost match Pods",
    "selector-elsewhere": "Selectors that match Pods of other namespaces only",
    "selector-matches-nothing": "Selectors that match no Pod",
    "pods-missing": "Workloads without a Pod behind a Service",
    "endpoints-not-ready": "Services whose endpoints are all not ready",
    "slices-outdated": "EndpointSlices that are not kept up to date",
    "target-port": "Ports whose targetPort no container has",
    "port-undeclared": "Ports whose targetPort no container declares",
    "port-without-endpoints": "Service ports that no EndpointSlice has",
    "slice-label": "EndpointSlices whose label names no Service",
    "cluster-ip-missing": "Services without a cluster IP",
    "cluster-ip-twice": "Cluster IPs that several Services have",
    "node-port-twice": "Node ports that several Services have",
    "address-refused": "Addresses that Services do not get",
    "special-endpoint": "Endpoints at addresses that no Pod has",
    "external-name-address": "ExternalNames that are addresses",
    "external-name-loop": "ExternalNames that lead in a circle",
    "external-name-missing": "ExternalNames that lead to no Service",
    "external-name-short": "ExternalNames that are no full names",
    "local-policy": "Nodes without an endpoint for traffic policy Local",
    "one-family": "Dual-stack Services whose endpoints have one family",
    "address-shadowed": "External addresses that shadow others",
    "outside-ranges": "Cluster IPs outside of the ServiceCIDRs",
    "hostname-twice": "Headless names that several endpoints have",
    "pod-names": "StatefulSets whose Pods have no names",
    "endpoint-address": "Endpoints with addresses that get no packets",
    "api-variables": "Services that take the API server's variables",
    "no-endpoints": "Services without endpoints",
    "scaled-to-zero": "Services whose workloads have no replicas",
    "load-balancer-pending": "Load balancers without an address",
    "no-effect": "Fields without effect",
    "hints-unused": "Topology hints that are ignored",
    "variables-clash": "Services whose environment variables clash",
    "variables-unusable": "Services that environment variables cannot name",
    "pod-ndots": "Pods that ask several names for one",
    "pod-node-dns": "Pods that do not ask the cluster's DNS",
    "pod-resolver": "Pods whose dnsConfig cannot be read",
}
"""The causes with the titles of their groups; of one severity, the first is worst."""
_RANKS: Final = {cause: rank for rank, cause in enumerate(CAUSES)}


@dataclass(frozen=True, slots=True)
class Problem:
    """One object's problem. `field` is a path in the object, "" for none.

    `evidence` is one line, `remedy` a command or a sentence; a command works on these objects.
    """

    cause: str
    severity: Severity
    kind: str
    key: Key
    field: str
    evidence: str
    remedy: str = ""

    @property
    def place(self) -> str:
        """NAMESPACE/NAME, or the name."""
        return "/".join(filter(None, self.key))

    @property
    def rank(self) -> tuple[Severity, int, str, Key]:
        return self.severity, _RANKS[self.cause], self.kind, self.key


def of_service(
    service: Service, cause: str, severity: Severity, field: str, evidence: str, remedy: str = ""
) -> Problem:
    return Problem(cause, severity, "Service", service.key, field, evidence, remedy)


def pods_text(names: Sequence[str]) -> str:
    return f"{count(len(names), 'Pod')} ({listed(names, SHOWN)})"


def patch_command(service: Service, patch: object) -> str:
    """Returns the command that patches a Service: by a merge, or by a list of the operations of a JSON patch."""
    how = " --type=json" if isinstance(patch, list) else ""
    text = json.dumps(patch, separators=(",", ":"))
    return f"kubectl patch service -n {service.key[0]} {service.key[1]}{how} -p '{text}'"
