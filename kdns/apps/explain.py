"""`kdns explain`: the server of a Corefile over the objects of a cluster, without listeners, for a few questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kdns.apps.sources.snapshot import objects_from_manifests, objects_from_server
from kdns.cluster.objects import EndpointSlice, Namespace, Object, Pod, Service
from kdns.cluster.observed import ObservedPod, SelectingService
from kdns.cluster.source import Source
from kdns.cluster.state import State
from kdns.controlplane.meta.cluster_config import ClusterConfig
from kdns.dns.types import type_number
from kdns.dnsserver.blocks import Server
from kdns.dnsserver.config import ServerConfig, label_of
from kdns.dnsserver.io.corefile import corefile_of, read_corefile
from kdns.dnsserver.io.server import DnsServer
from kdns.errors import InputError
from kdns.explain.explain import Explanation, explained
from kdns.explain.search import Resolver, cluster_resolver, pod_resolver
from kdns.net import parse_address
from kdns.plugins.directives import BY_NAME
from kdns.plugins.kubernetes.plugin import Kubernetes

COREFILE: Final = """\
. {{
    kubernetes {domain} in-addr.arpa ip6.arpa {{
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }}
    {forward}
}}
"""
"""kubeadm's, as far as it decides an answer."""
RESOLV_CONF: Final = Path("/etc/resolv.conf")
DNS_PORT: Final = 53
NOWHERE: Final = Source(endpoint="http://127.0.0.1")
"""A source that is not followed: the objects are there before."""
PREPARED_S: Final = 5.0
"""The longest that directives may take to read their files."""
TYPES: Final[dict[type[Object], type[Object]]] = {
    Namespace: Namespace,
    Service: SelectingService,
    EndpointSlice: EndpointSlice,
    Pod: ObservedPod,
}
"""The kinds that are read, and with which fields."""


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """The options of `kdns explain`; `pod` is NAMESPACE/NAME or "", `qtype` a mnemonic."""

    name: str
    qtype: str
    namespace: str
    pod: str
    corefile: str
    domain: str
    manifests: tuple[Path, ...]
    server: str
    kubeconfig: str
    cluster: ClusterConfig


@dataclass(frozen=True, slots=True)
class Findings:
    """The explanations of the names that are tried, the one that says most, and what is remarkable about the client."""

    tried: tuple[Explanation, ...]
    chosen: Explanation
    remark: str = ""


async def explain(options: ExplainOptions, warn: Callable[[str], None]) -> Findings:
    """Returns the explanations of one name. Raises InputError, KubeconfigError and ApiServerError."""
    address = parse_address(options.name)
    if address is not None:
        options = replace(options, name=f"{address.reverse_pointer}.", qtype="PTR")
    try:
        qtype = type_number(options.qtype.upper())
    except KeyError as error:
        raise InputError(f"expected a type such as A, AAAA, SRV or TYPE65, got {options.qtype!r}") from error
    objects = await _objects(options, warn)
    dns = DnsServer((), dns_port=DNS_PORT, default_source=NOWHERE)
    setups, places = await dns.build(_configs(options))
    try:
        for cluster in dns.clusters:
            for obj in objects:
                cluster.state.upsert(obj)
            cluster.state.synced.update(cluster.kinds)
        try:
            async with asyncio.timeout(PREPARED_S):
                await asyncio.gather(*(setup.prepare_all() for setup in setups))
        except TimeoutError as error:
            raise InputError(f"{options.corefile}: the directives are not ready after {PREPARED_S:g} s") from error
        place = next((place for place in places if place.scheme == "dns"), next(iter(places)))
        server = Server(label_of(place), [setup.block(zone) for setup, zone in places[place]])
        server.exact = ()  # the chain's own response says which directive answered
        for setup, _ in places[place]:
            setup.servers.append(server)
        return _findings(options, server, qtype)
    finally:
        for setup in setups:
            setup.abandon()
            await setup.stop()


def _findings(options: ExplainOptions, server: Server, qtype: int) -> Findings:
    plugins = [plugin for block in server.blocks for plugin in block.chain.plugins if isinstance(plugin, Kubernetes)]
    if not plugins:
        raise InputError(f"{options.corefile}: no `kubernetes`: there is nothing of the cluster to explain")
    zones = plugins[0].zones
    domain = zones.options.primary_zone
    resolver = _resolver(options, zones.state, domain)
    names = resolver.names(options.name)
    if len(names) > 1 and zones.zone_of(tuple(options.name.lower().encode("latin-1", "replace").split(b"."))):
        names = (f"{options.name}.",)  # it is written out; nobody asks why its search list fails
    tried = []
    for name in names:
        tried.append(explained(server, name, qtype))
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


def _resolver(options: ExplainOptions, state: State, domain: str) -> Resolver:
    if not options.pod:
        return cluster_resolver(options.namespace, domain)
    namespace, _, name = options.pod.rpartition("/")
    pod = state.pods.get((namespace or options.namespace, name))
    if not isinstance(pod, ObservedPod):
        raise InputError(f"--pod {options.pod}: no such Pod; expected NAMESPACE/NAME")
    return pod_resolver(pod, domain)


def _configs(options: ExplainOptions) -> tuple[ServerConfig, ...]:
    if options.corefile:
        return read_corefile(options.corefile, BY_NAME, dns_port=DNS_PORT).checked()
    forward = f"forward . {RESOLV_CONF}" if RESOLV_CONF.is_file() else ""
    text = COREFILE.format(domain=options.domain, forward=forward)
    return corefile_of(text, "Corefile", BY_NAME, dns_port=DNS_PORT).checked()


async def _objects(options: ExplainOptions, warn: Callable[[str], None]) -> list[Object]:
    """Returns the Namespaces, Services, EndpointSlices and Pods of the source, with the fields of TYPES."""
    if options.manifests:
        return await objects_from_manifests(options.manifests, options.cluster, TYPES, warn)
    return await objects_from_server(options.server, options.kubeconfig, TYPES, warn)
