"""The names that a client tries for a name, each with its explanation, and the explanation that says most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kdns.cluster.observed import ObservedPod
from kdns.cluster.state import State
from kdns.dns.types import type_number
from kdns.dnsserver.blocks import Server
from kdns.errors import InputError
from kdns.explain.explain import START, Explanation, Now, explained
from kdns.explain.search import Resolver, cluster_resolver, pod_resolver
from kdns.net import parse_address
from kdns.plugins.kubernetes.plugin import Kubernetes


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What a client asks: a name as it writes it, or an address, and a type's mnemonic.

    The client is the Pod `pod`, NAMESPACE/NAME, or if that is "" any one of `namespace`.
    """

    name: str
    qtype: str = "A"
    namespace: str = "default"
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """The explanations of the names that are tried, the one that says most, and what is remarkable about the client."""

    tried: tuple[Explanation, ...]
    chosen: Explanation
    remark: str = ""


def findings(server: Server, inquiry: Inquiry, now: Now = START, *, is_brief: bool = False) -> Findings:
    """Returns the explanations of one name by a server that may be at work, whose table is not used.

    `is_brief` is of ClusterCauses. Raises InputError for text that is no name, address, type or Pod, and for a server
    without `kubernetes`.
    """
    address = parse_address(inquiry.name)
    if address is not None:
        inquiry = replace(inquiry, name=f"{address.reverse_pointer}.", qtype="PTR")
    try:
        qtype = type_number(inquiry.qtype.upper())
    except KeyError as error:
        raise InputError(f"expected a type such as A, AAAA, SRV or TYPE65, got {inquiry.qtype!r}") from error
    plugins = [plugin for block in server.blocks for plugin in block.chain.plugins if isinstance(plugin, Kubernetes)]
    if not plugins:
        raise InputError("no `kubernetes` in the Corefile: there is nothing of the cluster to explain")
    apart = Server(server.label, server.blocks)
    apart.exact = ()  # the chain's own response says which directive answered
    zones = plugins[0].zones
    domain = zones.options.primary_zone
    resolver = _resolver(inquiry, zones.state, domain)
    names = resolver.names(inquiry.name)
    if len(names) > 1 and zones.zone_of(tuple(inquiry.name.lower().encode("latin-1", "replace").split(b"."))):
        names = (f"{inquiry.name}.",)  # it is written out; nobody asks why its search list fails
    tried = []
    for name in names:
        tried.append(explained(apart, name, qtype, now, is_brief=is_brief))
        if tried[-1].is_answered:
            break
    return Findings(tuple(tried), _nearest(tried, zones.state, domain), resolver.remark)


def _nearest(tried: Sequence[Explanation], state: State, domain: str) -> Explanation:
    """Returns the explanation that says most.

    It is that of the answer, or of what was meant: the first name of a Service, its port or its endpoint in a Namespace
    that exists. If there is none, it is that of a name that upstreams would be asked for.
    """
    if tried[-1].verdict == "NOERROR":
        return tried[-1]
    suffix = f".svc.{domain}"
    for one in tried:
        *front, namespace = one.name.removesuffix(suffix).split(".")
        is_service = len(front) == 1 or (len(front) == 3 and front[0].startswith("_"))
        is_service = is_service or (namespace, front[-1] if front else "") in state.services
        if one.name.endswith(suffix) and is_service and ("", namespace) in state.namespaces:
            return one
    return tried[-1] if tried[-1].upstreams else tried[0]


def _resolver(inquiry: Inquiry, state: State, domain: str) -> Resolver:
    if not inquiry.pod:
        return cluster_resolver(inquiry.namespace, domain)
    namespace, _, name = inquiry.pod.rpartition("/")
    pod = state.pods.get((namespace or inquiry.namespace, name))
    if not isinstance(pod, ObservedPod):
        raise InputError(f"--pod {inquiry.pod}: no such Pod; expected NAMESPACE/NAME")
    return pod_resolver(pod, domain)
