"""Zone transfers: the same records that queries get.

Records are made while they are sent, from the objects at the start. A transfer lacks names that clients can invent:
pods by address (`pods insecure`), and `prefer` with topology zones without endpoints. It also lacks SRV records at
`_._tcp` of unnamed ports: they are not in the specification (§2.3.2), and CoreDNS does not transfer them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from kdns.cluster.objects import EndpointSlice, Pod, Service
from kdns.cluster.packed import ready_addresses
from kdns.dns.names import Labels, is_below, labels_of, reverse_range
from kdns.dns.rrset import RRset
from kdns.dns.types import NS, PTR, TXT, address_type
from kdns.net import packed
from kdns.plugins.sources.kubernetes.dashed import dashed
from kdns.plugins.sources.kubernetes.options import Options, PodMode
from kdns.plugins.sources.kubernetes.reverse import is_shown
from kdns.plugins.sources.kubernetes.service import UNNAMED, ServiceNames, endpoint_label, with_srv
from kdns.plugins.sources.kubernetes.zone import SCHEMA_TTL_S, SCHEMA_VERSION, KubernetesZone, Zones
from kdns.plugins.sources.transfer import Transfer


class Snapshot(NamedTuple):
    """The objects at the start of a transfer: visible Services with their slices, and pods with names."""

    services: list[tuple[Service, tuple[EndpointSlice, ...]]]
    pods: list[Pod]


def zone_transfer(zones: Zones, name: str) -> Transfer | None:
    """None if there is no zone of this name, or the cluster is not listed in full yet."""
    zone = zones.zone_of(labels_of(name))
    if zone is None or zone.name != name or not zones.is_synced:
        return None
    apex = tuple(_apex(zones, zone))
    snapshot = _snapshot(zones, zone)
    below = _reverse(zones, zone, snapshot) if zone.is_reverse else _forward(zones, zone, snapshot)
    return Transfer(zones.soa(name), _chained(apex, below))


def _chained(apex: Iterable[RRset], below: Iterable[RRset]) -> Iterator[RRset]:
    yield from apex
    yield from below


def _snapshot(zones: Zones, zone: KubernetesZone) -> Snapshot:
    state, options = zones.state, zones.options
    shown = {name for _, name in state.namespaces if is_shown(name, state, options)}
    if zone.name in options.multicluster:
        services = [imported.as_service for imported in state.service_imports.values()]
        of_service = state.slices_by_import
    else:
        services, of_service = list(state.services.values()), state.slices_by_service
    rows = [
        (service, tuple(of_service.get(service.key, {}).values()) if options.endpoints else ())
        for service in services
        if service.key[0] in shown
    ]
    is_verified = options.pods is PodMode.VERIFIED and not zone.is_reverse
    pods = [pod for key, pod in state.pods.items() if key[0] in shown] if is_verified else []
    return Snapshot(rows, pods)


def _apex(zones: Zones, zone: KubernetesZone) -> Iterator[RRset]:
    """Name servers, with addresses that are not records of a Service, and the schema version."""
    ttl_s = zones.options.ttl_s
    servers = zones.name_servers(zone.name)
    yield RRset(zone.name, NS, ttl_s, tuple(servers))
    for host, node in servers.items():
        labels = labels_of(host)
        of_service = labels[-len(zone.labels) - 1 : len(labels) - len(zone.labels)] == (b"svc",)
        has_records = of_service and is_shown(_namespace(labels, zone), zones.state, zones.options)
        if is_below(labels, zone.labels) and not has_records:
            yield from (RRset(host, rtype, ttl_s, rdata) for rtype, rdata in node.items() if rdata)
    if not zone.is_reverse:
        yield RRset(_below("dns-version", zone.name), TXT, SCHEMA_TTL_S, (SCHEMA_VERSION,))


def _namespace(labels: Labels, zone: KubernetesZone) -> str:
    """The namespace of a Service's name, or of one below it."""
    return labels[-len(zone.labels) - 2].decode("latin-1")


def _forward(zones: Zones, zone: KubernetesZone, snapshot: Snapshot) -> Iterator[RRset]:
    """Names of Services and their endpoints, and of verified pods."""
    ttl_s = zones.options.ttl_s
    for service, slices in snapshot.services:
        yield from service_records(service, slices, zone.name, zones.options)
    for pod in snapshot.pods:
        for address in filter(None, map(packed, pod.addresses)):
            owner = _below(f"{dashed(address)}.{pod.key[0]}.pod", zone.name)
            yield RRset(owner, address_type(address), ttl_s, (address,))


def service_records(
    service: Service, slices: Collection[EndpointSlice], zone: str, options: Options
) -> Iterator[RRset]:
    """Records of a Service and its endpoints; `zone` has a trailing dot."""
    base = _below(f"{service.key[1]}.{service.key[0]}.svc", zone)
    for labels, node, targets in ServiceNames(service, slices, options).all_records():
        if labels and labels[0] == UNNAMED:
            continue
        owner = ".".join((*labels, base))
        rdata_by_type = with_srv(node, targets, base)
        yield from (RRset(owner, rtype, options.ttl_s, rdata) for rtype, rdata in rdata_by_type.items() if rdata)


def _reverse(zones: Zones, zone: KubernetesZone, snapshot: Snapshot) -> Iterator[RRset]:
    """PTR records of addresses in the zone: those of Services, or else of ready endpoints."""
    bounds = reverse_range(zone.labels)
    if bounds is None:
        return
    primary, ttl_s = zones.options.primary_zone, zones.options.ttl_s
    of_services: set[bytes] = set()
    for service, _ in snapshot.services:
        for address in filter(None, map(packed, service.virtual_ips)):
            of_services.add(address)
            if _is_within(address, bounds):
                target = _below(f"{service.key[1]}.{service.key[0]}.svc", primary)
                yield RRset(_reverse_name(address), PTR, ttl_s, (target,))
    yielded: set[tuple[bytes, str]] = set()
    for service, slices in snapshot.services:
        if service.is_external_name:
            continue
        base = _below(f"{service.key[1]}.{service.key[0]}.svc", primary)
        for endpoint_slice in slices:
            for endpoint in ready_addresses(endpoint_slice):
                address = endpoint.address
                pair = address, f"{endpoint_label(endpoint, zones.options)}.{base}"
                if address not in of_services and _is_within(address, bounds) and pair not in yielded:
                    yielded.add(pair)
                    yield RRset(_reverse_name(address), PTR, ttl_s, (pair[1],))


def _is_within(address: bytes, bounds: tuple[bytes, bytes]) -> bool:
    return len(address) == len(bounds[0]) and bounds[0] <= address <= bounds[1]


def _reverse_name(address: bytes) -> str:
    """In in-addr.arpa or ip6.arpa."""
    if len(address) == 4:
        return ".".join(str(octet) for octet in reversed(address)) + ".in-addr.arpa."
    return ".".join(reversed(address.hex())) + ".ip6.arpa."


def _below(labels: str, zone: str) -> str:
    return f"{labels}.{zone.lstrip('.')}"
