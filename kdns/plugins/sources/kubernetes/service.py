"""The names of one Service, and their records.

Kubernetes DNS specification 1.1.0 §2.3 (cluster IP), §2.4 (headless) and §2.5 (ExternalName). A name is its labels
below the Service's: () for the Service itself, ("_http", "_tcp"), ("web-0",), and ("_tcp",) for an empty non-terminal.
EndpointSlices are read lazily, and after a change only the changed one is read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from kdns.cluster.endpoints import EndpointAddress, PackedEndpoints
from kdns.cluster.objects import EndpointPort, EndpointSlice, Service, ServicePort
from kdns.cluster.packed import bare_addresses, ready_addresses
from kdns.dns.names import encode_name, labels_of
from kdns.dns.rrset import Rdata, Srv
from kdns.dns.types import AAAA, ANY, CNAME, SRV, A, address_type
from kdns.net import IPV4_BYTES, packed
from kdns.plugins.sources.kubernetes.dashed import dashed, dashed_ipv4
from kdns.plugins.sources.kubernetes.options import Options

Node: TypeAlias = dict[int, tuple[Rdata, ...]]
Host: TypeAlias = tuple[str, bytes]
"""The name of an endpoint below the Service, "" for the Service itself, and one of its addresses."""
Port: TypeAlias = ServicePort | EndpointPort
Group: TypeAlias = tuple[Sequence[Host], Sequence[Port]]
Target: TypeAlias = tuple[Sequence[Host], Sequence[int]]
"""Hosts, and the ports of their SRV records; without ports, the hosts only add addresses to those of other groups."""
Records: TypeAlias = tuple[Node, Sequence[Target]]
Names: TypeAlias = tuple[str, ...]

UNNAMED: Final = "_"
"""The label of an unnamed port, as in CoreDNS."""
ZONAL: Final = "_zone"
"""The label above names by topology zone."""
PORT_LABELS: Final = 2
ADDRESSES: Final = frozenset((A, AAAA))


def endpoint_label(endpoint: EndpointAddress, options: Options) -> str:
    """The hostname, else the Pod's name if enabled, else the address with dashes."""
    address, hostname, pod, _ = endpoint
    if hostname:
        return hostname.lower()
    if options.endpoint_pod_names and pod and len(pod) < 64 and "." not in pod:
        return pod.lower()
    return dashed(address)


def hosts_of(endpoint_slice: EndpointSlice, options: Options) -> list[Host]:
    """All addresses of ready endpoints; an endpoint of another cluster is below the cluster's label (KEP-1645)."""
    cluster = endpoint_slice.source_cluster.lower() if endpoint_slice.import_key else ""
    endpoints = endpoint_slice.endpoints
    if (
        isinstance(endpoints, PackedEndpoints)
        and endpoints.width == IPV4_BYTES
        and not (endpoints.hostnames or options.endpoint_pod_names or cluster)
    ):
        addresses = bare_addresses(endpoint_slice)
        return [*zip(dashed_ipv4(addresses), addresses, strict=True)]
    below = f".{cluster}" if cluster else ""
    ready = ready_addresses(endpoint_slice)
    return [(endpoint_label(endpoint, options) + below, endpoint.address) for endpoint in ready]


class SliceNames:
    """The ready endpoints of one EndpointSlice, as names below the Service."""

    _hosts: list[Host] | None = None
    _by_host: dict[str, list[Host]] | None = None
    _by_zone: dict[str, list[Host]] | None = None

    def __init__(self, endpoint_slice: EndpointSlice, options: Options) -> None:
        self.endpoint_slice = endpoint_slice
        self._options = options

    @property
    def ports(self) -> Sequence[EndpointPort]:
        return self.endpoint_slice.ports or ()

    @property
    def hosts(self) -> list[Host]:
        if self._hosts is None:
            self._hosts = hosts_of(self.endpoint_slice, self._options)
        return self._hosts

    @property
    def by_host(self) -> dict[str, list[Host]]:
        """Hosts by name; [] for an empty non-terminal, the label of a cluster."""
        if self._by_host is None:
            by_host: dict[str, list[Host]] = {}
            for host in self.hosts:
                by_host.setdefault(host[0], []).append(host)
            for above in [name.partition(".")[2] for name in by_host if "." in name]:
                by_host.setdefault(above, [])
            self._by_host = by_host
        return self._by_host

    @property
    def by_zone(self) -> dict[str, list[Host]]:
        """Hosts by the topology zone of their endpoints, if known."""
        if self._by_zone is None:
            by_zone: dict[str, list[Host]] = {}
            for endpoint, host in zip(ready_addresses(self.endpoint_slice), self.hosts, strict=True):
                if endpoint.zone:
                    by_zone.setdefault(endpoint.zone.lower(), []).append(host)
            self._by_zone = by_zone
        return self._by_zone


class ServiceNames:
    """All names at and below one Service, from its EndpointSlices.

    `old` are its names before a change: unchanged slices that it has read are reused.
    """

    is_cached: bool = False
    _parts: list[SliceNames] | None = None

    def __init__(
        self, service: Service, slices: Collection[EndpointSlice], options: Options, old: ServiceNames | None = None
    ) -> None:
        self.service = service
        self._slices = () if service.is_external_name else slices
        self._options = options
        self._known: dict[tuple[Names, bool], Records] = {}
        if old:
            read = {id(part.endpoint_slice): part for part in old.parts}
            self._parts = [read.get(id(part)) or SliceNames(part, options) for part in self._slices]

    @property
    def parts(self) -> list[SliceNames]:
        if self._parts is None:
            self._parts = [SliceNames(part, self._options) for part in self._slices]
        return self._parts

    def get(self, labels: Names, qtype: int) -> Records | None:
        """The records of a name, empty for an empty non-terminal; None for a missing name.

        SRV records are targets, which may be missing if `qtype` is A or AAAA.
        """
        if labels[-1:] == (ZONAL,) and self._is_zonal:
            return self._in_zone(labels)  # not cached: clients invent zones
        has_targets = qtype not in ADDRESSES
        if not self.is_cached:
            return self._records(labels, has_targets=has_targets)
        key = labels, has_targets
        records = self._known.get(key)
        if records is None:
            records = self._records(labels, has_targets=has_targets)
            if records is not None:
                self._known[key] = records
        return records

    def all_records(self) -> Iterator[tuple[Names, Node, Sequence[Target]]]:
        """All names with records, also those of topology zones."""
        names: dict[Names, None] = {(): None}
        for part in self.parts:
            names |= dict.fromkeys(tuple(host.split(".")) for host in part.by_host)
            if self._is_zonal:
                names |= dict.fromkeys((zone, policy, ZONAL) for zone in part.by_zone for policy in ("pin", "prefer"))
        names |= dict.fromkeys((label,) for label, _ in fqdn_aliases(self._slices))
        names |= dict.fromkeys(self._port_names())
        for labels in names:
            is_in_zone = self._is_zonal and labels[-1:] == (ZONAL,)
            records = self._in_zone(labels) if is_in_zone else self._records(labels, has_targets=True)
            if records and any(records):
                yield labels, *records

    @property
    def _is_zonal(self) -> bool:
        return self._options.zonal and self.service.is_headless

    def _records(self, labels: Names, *, has_targets: bool) -> Records | None:
        if not labels or self._options.ignore_empty_service:
            own = own_node(self.service, self._slices, self._options)
            if own is None:
                return None
            if not labels:
                return own, targets_of(self._groups()) if has_targets else []
        if len(labels) == PORT_LABELS and (targets := targets_of(self._groups(), labels)):
            return {}, targets
        host = ".".join(labels)
        parts = self.parts if host.count(".") == len(labels) - 1 else ()
        if groups := [(hosts, part.ports) for part in parts if (hosts := part.by_host.get(host))]:
            return _records_of(groups)
        if aliases := [alias for label, alias in fqdn_aliases(self._slices) if (label,) == labels]:
            return {CNAME: (aliases[-1],)}, []
        is_above = labels in [name[1:] for name in self._port_names()] or any(host in part.by_host for part in parts)
        return ({}, []) if is_above else None

    def _groups(self) -> list[Group]:
        """The hosts behind the Service's own ports."""
        if self.service.is_headless:
            return [(part.hosts, part.ports) for part in self.parts]
        return [([("", address) for address in own_addresses(self.service)], self.service.ports)]

    def _port_names(self) -> list[Names]:
        return [port_labels(port) for hosts, ports in self._groups() for port in ports if port.port and hosts]

    def _in_zone(self, labels: Names) -> Records | None:
        """Records of `zone.pin._zone`; `zone.prefer._zone` has all endpoints if the zone has none."""
        if own_node(self.service, self._slices, self._options) is None:
            return None
        match labels:
            case (_,) | (("pin" | "prefer"), _):
                return {}, []
            case (zone, ("pin" | "prefer") as policy, _):
                groups = [(hosts, part.ports) for part in self.parts if (hosts := part.by_zone.get(zone))]
                return self.get((), ANY) if policy == "prefer" and not groups else _records_of(groups)
        return None


def own_node(service: Service, slices: Iterable[EndpointSlice], options: Options) -> Node | None:
    """The records of the Service's own name except SRV; None if the name does not exist.

    The name of a headless Service without a ready endpoint does not exist (§2.4.1), and neither does that of an empty
    Service with `ignore empty_service`.
    """
    if service.is_external_name:
        return external_node(service.spec.external_name)
    if service.is_headless or options.ignore_empty_service:
        addresses = [address for endpoint_slice in slices for address in bare_addresses(endpoint_slice)]
        aliases = () if addresses else tuple(fqdn_aliases(slices))
        if not (addresses or aliases):
            return None
        if service.is_headless:
            return address_node(addresses) if addresses else alias_node(aliases)
    return address_node(own_addresses(service))


def own_addresses(service: Service) -> list[bytes]:
    return [address for address in map(packed, service.virtual_ips) if address]


def external_node(external_name: str) -> Node:
    """The CNAME of an ExternalName Service (§2.5), its spelling unchanged; {} for an invalid name.

    Differs: CoreDNS answers NXDOMAIN if the name looks like an IP address. But the Service exists, and Kubernetes
    documents that such a text is a name made of digits.
    """
    name = f"{external_name.rstrip('.')}."
    return {CNAME: (name,)} if is_name(name) else {}


def is_name(text: str) -> bool:
    """Whether a name with a trailing dot is valid, and not the root."""
    try:
        return len(encode_name(labels_of(text))) > 1
    except ValueError:
        return False


def fqdn_aliases(slices: Iterable[EndpointSlice]) -> Iterator[tuple[str, str]]:
    """Label and target of each ready endpoint in slices of addressType FQDN."""
    for endpoint_slice in slices:
        if endpoint_slice.address_type == "FQDN":
            for endpoint in endpoint_slice.endpoints or ():
                if endpoint.is_ready:
                    for name in endpoint.addresses:
                        target = f"{name.rstrip('.')}."
                        if is_name(target):
                            yield (endpoint.hostname or name.replace(".", "-")).lower(), target


def alias_node(aliases: Iterable[tuple[str, str]]) -> Node:
    """The Service's own CNAME, if its endpoints are one name.

    Differs: with several names CoreDNS sends several CNAMEs, against RFC 2181 §10.1; here only the endpoints' own
    names are CNAMEs.
    """
    targets = {target for _, target in aliases}
    return {CNAME: (targets.pop(),)} if len(targets) == 1 else {}


def address_node(addresses: Iterable[bytes]) -> Node:
    """A and AAAA records of packed addresses, without duplicates, in order."""
    node: dict[int, dict[Rdata, None]] = {}
    for address in addresses:
        node.setdefault(address_type(address), {})[address] = None
    return {rtype: tuple(rdata) for rtype, rdata in node.items()}


def _records_of(groups: Sequence[Group]) -> Records:
    return address_node(address for hosts, _ in groups for _, address in hosts), targets_of(groups)


def targets_of(groups: Iterable[Group], labels: Names = ()) -> list[Target]:
    """Hosts with their ports, all or those at `_port._proto` (§2.3.2, §2.4.2); [] if no host has a port."""
    targets: list[Target] = [
        (hosts, [port.port for port in ports if port.port and (not labels or port_labels(port) == labels)])
        for hosts, ports in groups
        if hosts
    ]
    return targets if any(numbers for _, numbers in targets) else []


def port_labels(port: Port) -> tuple[str, str]:
    return f"_{port.name.lower()}" if port.name else UNNAMED, f"_{(port.protocol or 'TCP').lower()}"


def with_srv(node: Node, targets: Sequence[Target], base: str) -> Node:
    """Adds the SRV records of these targets, below the Service's own name `base`."""
    ports = [(host_name(host, base), number) for hosts, numbers in targets for host, _ in hosts for number in numbers]
    return {**node, SRV: weighted(ports)} if ports else node


def addresses_of(targets: Sequence[Target]) -> dict[str, Node]:
    """A and AAAA records of each host with a port."""
    by_host: dict[str, list[bytes]] = {host: [] for hosts, numbers in targets if numbers for host, _ in hosts}
    for hosts, _ in targets:
        for host, address in hosts:
            if host in by_host:
                by_host[host].append(address)
    return {host: address_node(addresses) for host, addresses in by_host.items()}


def host_name(host: str, base: str) -> str:
    return f"{host}.{base}" if host else base


def weighted(ports: Collection[tuple[str, int]]) -> tuple[Srv, ...]:
    """SRV records with equal weights that add up to 100, without duplicates.

    Weights count duplicates too, so those of dual-stack targets are half as large, as in CoreDNS.
    """
    weight = weight_of(ports)
    return tuple(Srv(0, weight, port, target) for target, port in dict.fromkeys(ports))


def weight_of(ports: Collection[object]) -> int:
    """The weight of each SRV record, never 0."""
    return max(1, 100 // len(ports))
