"""k8s_external [ZONES…] { apex; ttl; headless; fallthrough }: external addresses of Services.

`svc.namespace.ZONE` has the addresses of the Service's load balancer and its externalIPs. The cluster is that of
`kubernetes` in the same server block, with its `namespaces` and `noendpoints`.
Differs: empty non-terminals such as `_tcp.svc.namespace.ZONE` exist (RFC 8020); CoreDNS answers NXDOMAIN.
Differs: of several host names of a load balancer the first is the CNAME; CoreDNS returns all, against RFC 2181 §10.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from kdns.answers.chain import Plugin, Request, Sees, Serve, ServeResult
from kdns.cluster.objects import EndpointSlice, Key, Service, ServiceMeta, ServiceSpec
from kdns.cluster.packed import ready_addresses
from kdns.cluster.state import State
from kdns.corefile.lexer import Token
from kdns.dns.names import MAX_LABEL_BYTES, Labels
from kdns.dns.rrset import RRset, Soa
from kdns.dns.types import CNAME, NS, SOA, SRV, address_type
from kdns.net import packed
from kdns.plugins.sources.kubernetes.answers import ZoneAnswers
from kdns.plugins.sources.kubernetes.options import Options, PodMode
from kdns.plugins.sources.kubernetes.plugin import Kubernetes
from kdns.plugins.sources.kubernetes.reverse import is_shown
from kdns.plugins.sources.kubernetes.service import Node, endpoint_label, external_node, weighted
from kdns.plugins.sources.kubernetes.subjects import APEX, of_service
from kdns.plugins.sources.kubernetes.zone import NO_SUCH_NAME, KubernetesZone, NameRecords, Zones
from kdns.serverblocks.directive import Directive, World
from kdns.serverblocks.stanza import FALLTHROUGH, Option, flag, integer, sets

NAME: Final = "k8s_external"
MAX_TTL_S: Final = 3600
NAME_SERVER: Final = b"ns1"


@dataclass(frozen=True, slots=True)
class ExternalConfig:
    """`apex` is the label of the zone's own names; `headless` also shows headless Services."""

    zones: tuple[str, ...]
    apex: str = "dns"
    ttl_s: int = 5
    headless: bool = False
    fallthrough: tuple[str, ...] = ()


def _apex(token: Token) -> str:
    text = token.text
    if not text.isascii() or "." in text or not 0 < len(text) <= MAX_LABEL_BYTES:
        raise token.expected(f"one label of at most {MAX_LABEL_BYTES} bytes, such as dns")
    return text.lower()


OPTIONS: Final = {
    "apex": Option("apex APEX", sets("apex", _apex)),
    "ttl": Option("ttl SECONDS", sets("ttl_s", integer, 0, MAX_TTL_S)),
    "headless": Option("headless", flag("headless")),
    "fallthrough": FALLTHROUGH,
}


class ExternalZones(Zones):
    """The zones of one stanza, over the state and with the visibility of a `kubernetes` directive."""

    def __init__(self, state: State, cluster: Options, config: ExternalConfig) -> None:
        options = replace(
            cluster,
            zones=config.zones,
            ttl_s=config.ttl_s,
            pods=PodMode.DISABLED,
            ignore_empty_service=False,
            multicluster=frozenset(),
            zonal=False,
        )
        super().__init__(state, options)
        self._config = config
        self._apex = config.apex.encode("ascii")

    def soa(self, zone: str) -> RRset:
        below, ttl_s = self._below_apex, self.options.ttl_s
        soa = Soa(below("ns1", zone), below("hostmaster", zone), self.serial, 7200, 1800, 86400, ttl_s)
        return RRset(zone, SOA, min(ttl_s, 300), (soa,))

    def _below_apex(self, label: str, zone: str) -> str:
        return f"{label}.{self._config.apex}.{zone.lstrip('.')}"

    def _fixed(self, relative: Labels, zone: KubernetesZone) -> NameRecords | None:
        """The apex, the apex label, and the name server."""
        node: Node | None = None
        match relative:
            case ():
                node = {SOA: self.soa(zone.name).rdata, NS: tuple(self.name_servers(zone.name))}
            case (self._apex,):
                node = {}
            case (self._apex, label) if label == NAME_SERVER:
                node = self._own_node()
        return NameRecords(node, (APEX,)) if node is not None else None

    def _of_cluster(self, relative: Labels, zone: KubernetesZone, qtype: int) -> NameRecords:
        namespace = relative[0].decode("latin-1")
        if len(relative) == 1:
            return NameRecords(self._namespace(namespace))
        if relative[0] == self._apex:
            return NO_SUCH_NAME
        name, below = relative[1].decode("latin-1"), relative[2:]
        service = self.state.services.get((namespace, name))
        hostname = load_balancer_name(service) if service else ""
        if service and hostname and self._is_shown(namespace):
            return NameRecords(hostname_node(service, hostname, below, qtype), (of_service(service.key),))
        return self._service(namespace, name, below, zone.name, qtype)

    def _base(self, key: Key, zone: str) -> str:
        return f"{key[1]}.{key[0]}.{zone.lstrip('.')}"

    def _service_of(self, key: Key, zone: str) -> tuple[Service | None, dict[Key, dict[Key, EndpointSlice]]]:
        """With external addresses in place of the cluster IPs; headless Services unchanged."""
        del zone
        service = self.state.services.get(key)
        if service is None or service.is_external_name:
            return None, {}
        if service.is_headless:
            return (service if self._config.headless else None), self.state.slices_by_service
        ips = service.external_ips
        if not (ips or load_balancer_name(service)):
            return None, {}
        spec = ServiceSpec(cluster_ip=next(iter(ips), ""), cluster_ips=ips, ports=service.spec.ports)
        return Service(ServiceMeta(key[1], key[0]), spec), {}

    def _names_of(self, address: bytes) -> tuple[str, ...]:
        return tuple(sorted(set(self._reverse_names(address))))

    def _reverse_names(self, address: bytes) -> Iterator[str]:
        """Services with this external address, or ready endpoints of headless Services."""
        zone = self.options.primary_zone
        services = [key for key in self.state.services_by_external_ip[address] if self._is_shown(key[0])]
        yield from (self._base(key, zone) for key in services)
        if services or not (self._config.headless and self.options.endpoints):
            return
        for slice_key in self.state.slices_by_ip[address]:
            endpoint_slice = self.state.slices[slice_key]
            service = self.state.services.get(endpoint_slice.service_key or ("", ""))
            if service is None or not service.is_headless or not self._is_shown(service.key[0]):
                continue
            for endpoint in ready_addresses(endpoint_slice):
                if endpoint.address == address:
                    label = endpoint_label(endpoint, self.options)
                    yield f"{label}.{self._base(service.key, zone)}"

    def _is_shown(self, namespace: str) -> bool:
        return is_shown(namespace, self.state, self.options)

    def _has_names_between(self, first: bytes, last: bytes) -> bool:
        indexes = [self.state.services_by_external_ip]
        if self._config.headless and self.options.endpoints:
            indexes.append(self.state.slices_by_ip)
        return any(self._names_of(address) for index in indexes for address in index.between(first, last))

    def name_servers(self, zone: str) -> dict[str, Node]:
        return {self._below_apex("ns1", zone): self._own_node()}

    def _own_node(self) -> Node:
        """External addresses of the Services that select this server, or else its own addresses."""
        node: dict[int, dict[bytes, None]] = {}
        for service, _, _ in self.own_services():
            for address in map(packed, service.external_ips):
                if address:
                    node.setdefault(address_type(address), {})[address] = None
        return {rtype: tuple(rdata) for rtype, rdata in node.items()} or super()._own_node()


def load_balancer_name(service: Service) -> str:
    """The host name of a load balancer that has no address; "" for any other Service."""
    if service.external_ips or service.is_headless or service.is_external_name:
        return ""
    return next((entry.hostname for entry in service.ingress if entry.hostname), "")


def hostname_node(service: Service, hostname: str, below: Labels, qtype: int) -> Node | None:
    """The records of a Service whose load balancer has a host name; None for a missing name.

    `below` are the labels below the Service, from right to left. The Service's name is a CNAME, and also has SRV
    records, as in CoreDNS.
    """
    alias = external_node(hostname)
    if not alias or (not below and qtype != SRV):
        return alias if not below else None
    labels = tuple(label.decode("latin-1") for label in below)
    ports = {
        (f"_{(port.protocol or 'TCP').lower()}", f"_{(port.name or '').lower()}", port.port) for port in service.ports
    }
    pairs = [(str(alias[CNAME][0]), port) for *name, port in sorted(ports) if labels in {(), tuple(name)}]
    if pairs:
        return {SRV: weighted(pairs)}
    return {} if not labels or any(labels == (protocol,) for protocol, _, _ in ports) else None


class External(Plugin):
    """Without `kubernetes` in the block all queries are passed on."""

    sees = Sees.PACKET

    def __init__(self, config: ExternalConfig, world: World) -> None:
        self._config = config
        self._world = world
        self._answers: ZoneAnswers | None = None
        world.spawn(self.check)

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        answers = self._answers or self._attached()
        return answers.serve(request, next) if answers else next(request)

    def _attached(self) -> ZoneAnswers | None:
        cluster = next((plugin for plugin in self._world.plugins() if isinstance(plugin, Kubernetes)), None)
        if cluster is None:
            return None
        zones = ExternalZones(cluster.zones.state, cluster.zones.options, self._config)
        zones.serial = cluster.zones.serial
        self._answers = answers = ZoneAnswers(NAME, zones, self._config.fallthrough)
        cluster.attach(answers)
        return answers

    async def check(self) -> None:
        if self._answers is None and self._attached() is None:
            self._world.log("error", "directive without effect", directive=NAME, reason="no `kubernetes` in its block")


DIRECTIVE: Final = Directive("k8s_external [ZONES...]", ExternalConfig, External, OPTIONS)
