"""Look-ups in a zone: (name, type) → RRsets, or the reason for an empty answer.

A name without the type is NODATA, and so is an empty non-terminal (RFC 8020, RFC 4592 §2.2.2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from kdns.answers.chain import MAX_CNAMES
from kdns.answers.response import Subject
from kdns.cluster.objects import EndpointSlice, Key, Namespace, Object, Pod, Service, ServiceImport
from kdns.cluster.state import State
from kdns.corefile.address import is_reverse
from kdns.dns.names import Labels, labels_of, lowered, reverse_range, reversed_address, text_of
from kdns.dns.query import MAX_MESSAGE_BYTES
from kdns.dns.rdata import text_rdata
from kdns.dns.rrset import RRset, Soa
from kdns.dns.types import AAAA, ANY, CNAME, NS, PTR, SOA, SRV, TXT, A, address_type
from kdns.plugins.sources.kubernetes import subjects
from kdns.plugins.sources.kubernetes.dashed import undashed
from kdns.plugins.sources.kubernetes.options import Options, PodMode
from kdns.plugins.sources.kubernetes.reverse import is_above_an_address, is_shown, ptr_targets
from kdns.plugins.sources.kubernetes.service import (
    ADDRESSES,
    Node,
    ServiceNames,
    SliceNames,
    Target,
    address_node,
    addresses_of,
    host_name,
    own_addresses,
    own_node,
    with_srv,
)
from kdns.values import Value

SCHEMA_VERSION: Final = text_rdata(b"1.1.0")
SCHEMA_TTL_S: Final = 28800
DNS_PORT: Final = 53
MAX_CACHED: Final = 256
MAX_READ_SLICES: Final = 3
"""Up to this many EndpointSlices, a query for a Service's addresses reads them without ServiceNames."""
MAX_READ_ENDPOINTS: Final = 64
"""The ServiceNames of a Service with more endpoints are cached."""
MIN_SRV_BYTES: Final = 2 + 10 + 6 + 1
"""The shortest SRV record: a pointer to its owner, type to length, the numbers, and the root as target."""
MAX_FIXED_LABELS: Final = 2
"""Names with more labels below the zone depend on objects of the cluster."""


class Status(Enum):
    """The kind of a result."""

    SUCCESS = "success"
    NODATA = "nodata"
    NXDOMAIN = "nxdomain"
    SERVFAIL = "servfail"
    """Unknown: the cluster has not been listed in full."""


class Result(NamedTuple):
    """The result of a look-up.

    `zone` has the SOA of a negative answer. `subjects` invalidate the result. `leaves_zones`: the answer ends in a
    CNAME to a name outside of these zones.
    """

    status: Status
    zone: str
    answer: tuple[RRset, ...] = ()
    additional: tuple[RRset, ...] = ()
    subjects: tuple[Subject, ...] = ()
    leaves_zones: bool = False


class NameRecords(Value, frozen=True):
    """A name's own records; `node` is None for a missing name.

    `subjects` are those besides the namespaces. `targets` are the SRV records, below the name of the Service `key`.
    """

    node: Node | None
    subjects: tuple[Subject, ...] = ()
    targets: Sequence[Target] = ()
    key: Key = ("", "")
    ttl_s: int | None = None


class KubernetesZone(NamedTuple):
    """One zone; `depth` is the number of its labels."""

    labels: Labels
    depth: int
    name: str
    is_reverse: bool


NO_SUCH_NAME: Final = NameRecords(None)


class Zones:
    """The zones of one `kubernetes` directive over one cluster state.

    ServiceNames of up to MAX_CACHED Services with many endpoints are cached until `forget`; then as many old ones, for
    their unchanged slices.
    """

    def __init__(self, state: State, options: Options) -> None:
        self.state = state
        self.options = options
        self.serial = 0
        zones = ((labels_of(zone), zone) for zone in options.zones)
        self._zones = sorted(
            (KubernetesZone(labels, len(labels), zone, is_reverse(zone)) for labels, zone in zones),
            key=lambda zone: -zone.depth,
        )
        self._names: dict[tuple[Subject, str], ServiceNames] = {}
        self._old_names: dict[tuple[Subject, str], ServiceNames] = {}
        self._above: dict[tuple[bytes, bytes], bool] = {}
        self._needs: set[type[Object]] = {Service, Namespace}
        if options.endpoints:
            self._needs.add(EndpointSlice)
        if options.pods is PodMode.VERIFIED:
            self._needs.add(Pod)
        if options.multicluster:
            self._needs.add(ServiceImport)

    @property
    def is_synced(self) -> bool:
        """Whether all kinds of objects for these zones were listed once."""
        return self._needs <= self.state.synced

    def zone_of(self, labels: Labels) -> KubernetesZone | None:
        """The closest enclosing zone; `labels` are folded."""
        for zone in self._zones:
            if not zone.depth or labels[-zone.depth :] == zone.labels:
                return zone
        return None

    def soa(self, zone: str) -> RRset:
        """The TTL is at most 300, the negative TTL is the directive's (RFC 2308 §4)."""
        soa = Soa(
            _below("ns.dns", zone), _below("hostmaster", zone), self.serial, 7200, 1800, 86400, self.options.ttl_s
        )
        return RRset(zone, SOA, min(self.options.ttl_s, 300), (soa,))

    def forget(self, touched: Collection[Subject]) -> None:
        """Called with every change."""
        if subjects.NAMESPACES in touched or subjects.REVERSE in touched:
            self._above.clear()
        if len(self._old_names) >= MAX_CACHED:
            self._old_names.clear()
        for zone in self._zones:
            for subject in touched:
                key = (subject, zone.name)
                if key in self._names:
                    self._old_names[key] = self._names.pop(key)

    def lookup(self, labels: Labels, qtype: int) -> Result | None:
        """`labels` are folded. CNAMEs are followed in these zones; None for a name outside of them."""
        zone = self.zone_of(labels)
        if zone is None:
            return None
        records = self.find(labels, zone, qtype)
        if records is None:
            return Result(Status.SERVFAIL, zone.name)
        node, touched = records.node, records.subjects
        if node is None:
            return Result(Status.NXDOMAIN, zone.name, (), (), touched)
        if CNAME in node and qtype not in {CNAME, ANY}:
            return self._chased(labels, qtype, records, zone)
        rrset = self._rrset(labels, qtype, records, zone)
        if rrset is None:
            return Result(Status.NODATA, zone.name, (), (), touched)
        return Result(Status.SUCCESS, zone.name, (rrset,), self._additional(rrset, records, zone), touched)

    def _chased(self, labels: Labels, qtype: int, records: NameRecords, zone: KubernetesZone) -> Result:
        """Follows at most MAX_CNAMES.

        Differs: beyond that the CNAMEs are the answer, and a resolver may continue from the last one. CoreDNS answers
        NODATA, which denies a name that exists.
        """
        answer: list[RRset] = []
        touched: list[Subject] = []
        seen = {labels}
        owner = text_of(labels)
        while True:
            touched += records.subjects
            node = records.node or {}
            if CNAME not in node:
                status = Status.NODATA if records.node is not None else Status.NXDOMAIN
                rrset = self._rrset(labels, qtype, records, zone, owner)
                if rrset is None:
                    return Result(status, zone.name, tuple(answer), (), tuple(touched))
                additional = self._additional(rrset, records, zone)
                return Result(Status.SUCCESS, zone.name, (*answer, rrset), additional, tuple(touched))
            if len(answer) == MAX_CNAMES:
                return Result(Status.SUCCESS, zone.name, tuple(answer), (), tuple(touched))
            target = str(node[CNAME][0])
            answer.append(RRset(owner, CNAME, self.options.ttl_s, (target,)))
            owner = target
            labels = lowered(labels_of(target))
            if labels in seen:
                return Result(Status.SUCCESS, zone.name, tuple(answer), (), tuple(touched))
            seen.add(labels)
            inside = self.zone_of(labels)
            if inside is None:
                return Result(Status.SUCCESS, zone.name, tuple(answer), (), tuple(touched), leaves_zones=True)
            zone = inside
            following = self.find(labels, zone, qtype)
            if following is None:
                return Result(Status.SERVFAIL, zone.name)
            records = following

    def _rrset(
        self, labels: Labels, qtype: int, records: NameRecords, zone: KubernetesZone, owner: str = ""
    ) -> RRset | None:
        """For ANY the records of one arbitrary type (RFC 8482 §4.1)."""
        node = records.node or {}
        if records.targets:
            node = with_srv(node, records.targets, self._base(records.key, zone.name))
        rtype = next((rtype for rtype, rdata in node.items() if rdata), qtype) if qtype == ANY else qtype
        rdata = node.get(rtype)
        if not rdata:
            return None
        ttl_s = self.options.ttl_s if records.ttl_s is None else records.ttl_s
        return RRset(owner or text_of(labels), rtype, ttl_s, rdata)

    def find(self, labels: Labels, zone: KubernetesZone, qtype: int) -> NameRecords | None:
        """The records of one name in its zone, None while they are unknown; for A and AAAA perhaps addresses only."""
        count = len(labels) - zone.depth
        if count <= MAX_FIXED_LABELS and (fixed := self._fixed(labels[:count][::-1], zone)):
            return fixed
        if not self._needs <= self.state.synced:
            return None
        return self._reverse(labels) if zone.is_reverse else self._of_cluster(labels[:count][::-1], zone, qtype)

    def _fixed(self, relative: Labels, zone: KubernetesZone) -> NameRecords | None:
        """Names that do not depend on objects of the cluster."""
        node: Node | None = None
        ttl_s = None
        match relative:
            case ():
                node = {SOA: self.soa(zone.name).rdata, NS: tuple(self.name_servers(zone.name))}
            case (b"dns",):
                node = {}
            case (b"dns", b"ns"):
                node = self._name_server_node(zone.name)
            case (b"dns-version",) if not zone.is_reverse:
                node, ttl_s = {TXT: (SCHEMA_VERSION,)}, SCHEMA_TTL_S
            case (b"svc" | b"pod",) if not zone.is_reverse:
                node = {}
        return NameRecords(node, (subjects.APEX,), ttl_s=ttl_s) if node is not None else None

    def _of_cluster(self, relative: Labels, zone: KubernetesZone, qtype: int) -> NameRecords:
        """Names of the cluster's objects, in a forward zone."""
        if len(relative) > MAX_FIXED_LABELS:
            branch, namespace, name = relative[:3]
            if branch == b"svc":
                return self._service(
                    namespace.decode("latin-1"), name.decode("latin-1"), relative[3:], zone.name, qtype
                )
            if branch == b"pod" and len(relative) == MAX_FIXED_LABELS + 1:
                return self.pod(namespace.decode("latin-1"), name.decode("latin-1"))
        elif len(relative) == MAX_FIXED_LABELS:
            has_namespaces = relative[0] == b"svc" or (
                relative[0] == b"pod" and self.options.pods is not PodMode.DISABLED
            )
            if has_namespaces:
                return NameRecords(self._namespace(relative[1].decode("latin-1")))
        return NO_SUCH_NAME

    def _namespace(self, namespace: str) -> Node | None:
        return {} if is_shown(namespace, self.state, self.options) else None

    def _service(self, namespace: str, name: str, below: Labels, zone: str, qtype: int) -> NameRecords:
        key = namespace, name
        depends_on = (subjects.of_service(key),)
        service, of_service = self._service_of(key, zone)
        if service is None or not is_shown(namespace, self.state, self.options):
            return NameRecords(None, depends_on)
        slices = of_service.get(key, {}).values() if self.options.endpoints else ()
        cache_key = depends_on[0], zone
        names = self._names.get(cache_key)
        if names is None:
            if not below and qtype in ADDRESSES and len(slices) <= MAX_READ_SLICES:
                return NameRecords(own_node(service, slices, self.options), depends_on)
            names = ServiceNames(service, slices, self.options, self._old_names.pop(cache_key, None))
            if sum([len(endpoint_slice.endpoints or ()) for endpoint_slice in slices]) > MAX_READ_ENDPOINTS:
                self._cache(cache_key, names)
        records = names.get(tuple([label.decode("latin-1") for label in below[::-1]]), qtype)
        if records is None:
            return NameRecords(None, depends_on)
        node, targets = records
        return NameRecords(node, depends_on, targets, key)

    def _cache(self, key: tuple[Subject, str], names: ServiceNames) -> None:
        if len(self._names) >= MAX_CACHED:
            self._names.clear()
            self._old_names.clear()
        self._names[key] = names
        names.is_cached = True

    def _base(self, key: Key, zone: str) -> str:
        namespace, name = key
        return _below(f"{name}.{namespace}.svc", zone)

    def _service_of(self, key: Key, zone: str) -> tuple[Service | None, dict[Key, dict[Key, EndpointSlice]]]:
        """The Service or ServiceImport with this name in a zone, and the index with its slices."""
        if zone in self.options.multicluster:
            imported = self.state.service_imports.get(key)
            return imported.as_service if imported else None, self.state.slices_by_import
        return self.state.services.get(key), self.state.slices_by_service

    def pod(self, namespace: str, label: str) -> NameRecords:
        address = undashed(label)
        exists = address and is_shown(namespace, self.state, self.options)
        if self.options.pods is PodMode.DISABLED:
            exists = False
        elif self.options.pods is PodMode.VERIFIED:
            exists = exists and any(key[0] == namespace for key in self.state.pods_by_ip[address])
        return NameRecords({address_type(address): (address,)} if exists else None, (subjects.of_pod(address),))

    def _reverse(self, labels: Labels) -> NameRecords:
        address = reversed_address(labels)
        if address is not None:
            names = self._names_of(address)
            return NameRecords({PTR: names} if names else None, (subjects.of_address(address),))
        bounds = reverse_range(labels)
        return NameRecords({} if bounds and self._is_above(bounds) else None, (subjects.REVERSE,))

    def _names_of(self, address: bytes) -> tuple[str, ...]:
        return ptr_targets(address, self.state, self.options)

    def _has_names_between(self, first: bytes, last: bytes) -> bool:
        return is_above_an_address(first, last, self.state, self.options)

    def _is_above(self, bounds: tuple[bytes, bytes]) -> bool:
        """Cached: each hidden address in the bounds has to be checked."""
        if bounds not in self._above:
            if len(self._above) >= MAX_CACHED:
                self._above.clear()
            self._above[bounds] = self._has_names_between(*bounds)
        return self._above[bounds]

    def own_services(self) -> Iterator[tuple[Service, EndpointSlice, bytes]]:
        """Services that select this server, with the slice and the address of its endpoint."""
        for address in self.options.own_addresses if self.options.endpoints else ():
            for key in self.state.slices_by_ip[address]:
                endpoint_slice = self.state.slices[key]
                service = self.state.services.get(endpoint_slice.service_key or ("", ""))
                if service is not None and not service.is_external_name and may_serve_dns(service):
                    yield service, endpoint_slice, address

    def name_servers(self, zone: str) -> dict[str, Node]:
        """Names and addresses of the Services that select this server, or else `ns.dns` of the zone.

        Services that `namespaces` hides are included, as in CoreDNS, because there is glue.
        Differs: Services without port 53 are left out; CoreDNS takes the API's for a name server if they share an
        address.
        """
        servers: dict[str, Node] = {}
        for service, endpoint_slice, address in self.own_services():
            base = self._base(service.key, self.options.primary_zone)
            if own_node(service, (endpoint_slice,), self.options) is None:
                continue
            if service.is_headless:
                by_host = SliceNames(endpoint_slice, self.options).by_host
                servers |= {
                    host_name(host, base): address_node(address for _, address in hosts)
                    for host, hosts in by_host.items()
                    if (host, address) in hosts
                }
            else:
                servers[base] = address_node(own_addresses(service))
        return servers or {_below("ns.dns", zone): self._own_node()}

    def _name_server_node(self, zone: str) -> Node:
        """The addresses of `ns.dns`: those of the Services that select this server, because other Pods reach them."""
        nodes = self.name_servers(zone).values()
        return {rtype: tuple(dict.fromkeys(a for node in nodes for a in node.get(rtype, ()))) for rtype in (A, AAAA)}

    def _own_node(self) -> Node:
        own = self.options.own_addresses
        return {rtype: tuple(a for a in own if address_type(a) == rtype) for rtype in (A, AAAA)}

    def _additional(self, rrset: RRset, records: NameRecords, zone: KubernetesZone) -> tuple[RRset, ...]:
        """Addresses of targets of SRV (RFC 2782) and NS records within the zone."""
        if rrset.rtype not in {SRV, NS}:
            return ()
        if len(rrset.rdata) > MAX_MESSAGE_BYTES // MIN_SRV_BYTES:
            return ()  # the answer will be truncated, and has no additional records
        nodes: dict[str, Node] = {}
        if rrset.rtype == NS:
            nodes = self.name_servers(zone.name)
        elif records.targets:
            base = self._base(records.key, zone.name)
            nodes = {host_name(host, base): node for host, node in addresses_of(records.targets).items()}
        ttl_s = self.options.ttl_s
        return tuple(
            RRset(host, rtype, ttl_s, node[rtype])
            for host, node in nodes.items()
            for rtype in (A, AAAA)
            if node.get(rtype)
        )


def may_serve_dns(service: Service) -> bool:
    """With port 53, or without ports."""
    return not service.ports or any(port.port == DNS_PORT for port in service.ports)


def _below(labels: str, zone: str) -> str:
    return f"{labels}.{zone.lstrip('.')}"
