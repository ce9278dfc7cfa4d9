"""The names that a client tries for a name, each with its explanation, and the explanation that says most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from kdns.cluster.observed import ObservedPod
from kdns.cluster.readiness import Cause
from kdns.cluster.state import State
from kdns.dns.types import type_number
from kdns.dnsserver.blocks import Server
from kdns.errors import InputError
from kdns.explain.explain import LOOPBACK, START, Explanation, Now, cluster_plugins, explained
from kdns.explain.search import cluster_resolver, pod_resolver
from kdns.net import parse_address
from kdns.plugins.sources.kubernetes.plugin import NAME as KUBERNETES
from kdns.spelling import closest


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A name as the client writes it, or an address; the client is the Pod NAMESPACE/NAME, "" for any one."""

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


async def findings(server: Server, inquiry: Inquiry, now: Now = START, *, is_brief: bool = False) -> Findings:
    """By a server that may be at work. Raises InputError, also for a server without `kubernetes`."""
    address = parse_address(inquiry.name.rstrip("."))
    if address is not None:
        inquiry = replace(inquiry, name=f"{address.reverse_pointer}.", qtype="PTR")
    try:
        qtype = type_number(inquiry.qtype.upper())
    except KeyError as error:
        raise InputError(f"expected a type such as A, AAAA, SRV or TYPE65, got {inquiry.qtype!r}") from error
    plugins = cluster_plugins(server)
    if not plugins:
        raise InputError("no `kubernetes` in the Corefile: there is nothing of the cluster to explain")
    zones = plugins[0].zones
    domain = zones.options.primary_zone
    pod = _pod(inquiry, zones.state)
    resolver = pod_resolver(pod, domain) if pod else cluster_resolver(inquiry.namespace, domain)
    client = pod.addresses[0] if pod and pod.addresses else LOOPBACK
    name = inquiry.name.lower()
    labels = tuple(name.encode("latin-1", "replace").split(b"."))
    is_full = any(plugin.zones.zone_of(labels) for plugin in plugins)  # nobody asks why its search list fails
    tried = []
    for candidate in (f"{name}.",) if is_full else resolver.names(name):
        tried.append(await explained(server, candidate, qtype, client, now, is_brief=is_brief))
        if tried[-1].verdict == "NOERROR" or tried[-1].asked:  # a CNAME is an answer, whatever upstreams know
            break
    ranking = Ranking(zones.state, domain, name)
    chosen = ranking.chosen(tried)
    if name.endswith(".") and not is_full and chosen.is_forwarded:
        short = [
            await explained(server, candidate, qtype, client, now, is_brief=is_brief)
            for candidate in resolver.names(name[:-1])
        ]
        best = ranking.chosen(short)
        if best.meant and not chosen.meant:
            cause = Cause(f"with a dot at its end, a name has no search list; {name[:-1]} means {best.meant[:-1]}")
            chosen = replace(chosen, causes=(*chosen.causes, cause))
    return Findings(tuple(tried), chosen, resolver.remark)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Which of the names that a resolver tries for `typed` was meant; the causes of each say what it comes near to."""

    state: State
    domain: str
    typed: str

    def chosen(self, tried: Sequence[Explanation]) -> Explanation:
        """The answer, or the name that was meant; one that upstreams know may have been meant for a Service."""
        if tried[-1].verdict == "NOERROR":
            return tried[-1]
        best = min(tried, key=self._rank)
        others = [explanation for explanation in tried if explanation.meant and not explanation.is_forwarded]
        if best.is_forwarded and others:
            return replace(best, causes=(*best.causes, min(others, key=self._rank).causes[-1]))
        return best

    def _rank(self, explanation: Explanation) -> tuple[int, float]:
        """How far a name is from what exists, the nearest first; of two mistakes the smaller one."""
        if explanation.meant == explanation.name or (
            explanation.verdict == "NODATA" and explanation.directive != KUBERNETES
        ):
            return 0, 0.0
        if explanation.meant and _is_like(explanation.name, explanation.meant):
            return 1, -SequenceMatcher(a=explanation.meant, b=explanation.name).ratio()
        *front, namespace = explanation.name.removesuffix(f".svc.{self.domain}").split(".")
        is_below = explanation.name.endswith(f".svc.{self.domain}") and bool(front)
        is_service = is_below and (len(front) == 1 or (len(front) == 3 and front[0][:1] == front[1][:1] == "_"))
        is_near = is_service or (is_below and (namespace, front[-1]) in self.state.services)
        if is_near and ("", namespace) in self.state.namespaces:
            return 2, 0.0
        if self.typed.endswith((".svc", ".pod")) and explanation.name == f"{self.typed}.{self.domain}":
            return 3, 0.0
        if explanation.is_forwarded:
            return 4, 0.0
        return (5 if explanation.meant else 6 if is_service else 7), 0.0


def _is_like(name: str, meant: str) -> bool:
    """Whether labels of a name are missing or misspelt, and no others are in their places."""
    labels, others = name.split("."), meant.split(".")
    changes = SequenceMatcher(a=labels, b=others, autojunk=False).get_opcodes()
    return all(
        how in {"equal", "insert"}
        or (
            end - start == other_end - at
            and all(map(closest, labels[start:end], ([other] for other in others[at:other_end])))
        )
        for how, start, end, at, other_end in changes
    )


def _pod(inquiry: Inquiry, state: State) -> ObservedPod | None:
    if not inquiry.pod:
        return None
    namespace, _, name = inquiry.pod.rpartition("/")
    pod = state.pods.get((namespace or inquiry.namespace, name))
    if not isinstance(pod, ObservedPod):
        raise InputError(f"--pod {inquiry.pod}: no such Pod; expected NAMESPACE/NAME")
    return pod
