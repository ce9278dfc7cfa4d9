"""`kdns explain`: the server of a Corefile over the objects of a cluster, without listeners, for a few questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kdns.apps.resolvers import machine_resolv_conf
from kdns.apps.sources.snapshot import objects_of
from kdns.apps.sources.source import ObjectSource
from kdns.cluster.objects import EndpointSlice, Namespace, Object, Pod, Service
from kdns.cluster.observed import ObservedPod, SelectingService
from kdns.cluster.source import Source
from kdns.dnsserver.blocks import Server
from kdns.dnsserver.io.corefile import corefile_of, read_corefile
from kdns.dnsserver.io.server import DnsServer
from kdns.errors import InputError
from kdns.explain.findings import Findings, Inquiry, findings
from kdns.plugins.directives import BY_NAME
from kdns.serverblocks.config import ServerConfig, label_of

COREFILE: Final = """\
. {{
    kubernetes {domain} in-addr.arpa ip6.arpa {{
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }}
    forward . {upstreams}
}}
"""
"""kubeadm's, as far as it affects answers."""
OF_A_NODE: Final = "resolvers-of-the-node.invalid {\n        resolver 192.0.2.1\n    }"
"""Stands for upstreams on a machine without resolvers, so names outside of the cluster are forwarded there too."""
DNS_PORT: Final = 53
NOWHERE: Final = Source(endpoint="http://127.0.0.1")
"""A source that is not followed, since the objects are already there."""
PREPARED_S: Final = 5.0
TYPES: Final[dict[type[Object], type[Object]]] = {
    Namespace: Namespace,
    Service: SelectingService,
    EndpointSlice: EndpointSlice,
    Pod: ObservedPod,
}


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """`corefile` is a file, "" for kubeadm's with `domain`."""

    inquiry: Inquiry
    corefile: str
    domain: str
    source: ObjectSource


async def explain(options: ExplainOptions, warn: Callable[[str], None]) -> Findings:
    """Raises InputError, KubeconfigError and ApiServerError."""
    objects = await objects_of(options.source, TYPES, warn)
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
        for setup, _ in places[place]:
            setup.servers.append(server)
        return await findings(server, options.inquiry)
    finally:
        for setup in setups:
            setup.abandon()
            await setup.stop()


def _configs(options: ExplainOptions) -> tuple[ServerConfig, ...]:
    if options.corefile:
        return read_corefile(options.corefile, BY_NAME, dns_port=DNS_PORT).checked()
    text = COREFILE.format(domain=options.domain, upstreams=machine_resolv_conf() or OF_A_NODE)
    return corefile_of(text, "Corefile", BY_NAME, dns_port=DNS_PORT).checked()
