"""Metadata of `kubernetes`: the parts of the question name, and the pod that sent the query."""

from __future__ import annotations

from kdns.cluster.objects import Pod
from kdns.cluster.state import State
from kdns.dns.names import Labels
from kdns.net import packed

NO_QUERY_NAME = {"kubernetes/parse-error": "invalid query name"}
KINDS = frozenset((b"svc", b"pod"))
MAX_LABELS = 5
"""The most labels of a name below its zone, without topology zones: two for a port or endpoint, and svc.ns.svc."""


def name_facts(relative: Labels, *, is_multicluster: bool) -> dict[str, str]:
    """The parts of a name, from its folded labels below the zone; "" for missing ones."""
    zone = ""
    match relative:
        case (first, b"pin" | b"prefer", b"_zone", _, _, b"svc"):
            zone, relative = first.decode("latin-1"), relative[3:]
    if (relative and relative[-1] not in KINDS) or len(relative) > MAX_LABELS:
        return dict(NO_QUERY_NAME)
    texts = [label.decode("latin-1") for label in relative[::-1]]
    kind, namespace, service, *below = (*texts, "", "", "")[: max(3, len(texts))]
    facts = {
        "kubernetes/endpoint": "",
        "kubernetes/kind": kind,
        "kubernetes/namespace": namespace,
        "kubernetes/port-name": "",
        "kubernetes/protocol": "",
        "kubernetes/service": service,
    }
    if is_multicluster:
        facts["kubernetes/cluster"] = ""
    match below:
        case [endpoint]:
            facts["kubernetes/endpoint"] = endpoint
        case [cluster, endpoint] if is_multicluster and not endpoint.startswith("_"):
            facts |= {"kubernetes/cluster": cluster, "kubernetes/endpoint": endpoint}
        case [protocol, port]:
            facts |= {"kubernetes/protocol": protocol.removeprefix("_"), "kubernetes/port-name": port.removeprefix("_")}
    return facts | ({"kubernetes/zone": zone} if zone else {})


def client_pod(host: str, state: State) -> Pod | None:
    """The running pod with this address, of several the first by name; None if pods are not watched."""
    keys = state.pods_by_ip[packed(host)]
    return state.pods[min(keys)] if keys else None


def client_facts(host: str, state: State) -> dict[str, str]:
    """Namespace, name and labels of the pod that sent the query; {} if it is unknown."""
    pod = client_pod(host, state)
    if pod is None:
        return {}
    meta = pod.metadata
    labels = {f"kubernetes/client-label/{label}": value for label, value in (meta.labels or {}).items()}
    return {"kubernetes/client-namespace": meta.namespace, "kubernetes/client-pod-name": meta.name} | labels
