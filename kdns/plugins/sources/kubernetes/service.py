"""The names of one Service: a small tree, from labels to the records they own.

Kubernetes DNS specification 1.1.0 §2.3 (cluster IP), §2.4 (headless) and §2.5 (ExternalName). Keys of a tree are the
labels left of the Service's own name: () for the Service, ("_http", "_tcp"), ("web-0",), and ("_tcp",) for the empty
non-terminal between them. A node is made at the first query for its name, from parts by EndpointSlice: after a change
only the part of that slice is made again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias

from kdns.cluster.objects import EndpointPort, EndpointSlice, Service, ServicePort
from kdns.cluster.packed import EndpointAddress, bare_addresses, ready_addresses
from kdns.dns.names import encode_name, labels_of
from kdns.dns.rrset import Rdata, Srv
from kdns.dns.types import CNAME, SRV, address_type
from kdns.net import packed
from kdns.plugins.sources.kubernetes.dashed import dashed
from kdns.plugins.sources.kubernetes.options import Options

Node: TypeAlias = dict[int, tuple[Rdata, ...]]
Pairs: TypeAlias = list[tuple[str, int]]
"""(host, port) of SRV records."""

UNNAMED: Final = "_"
"""The label that an unnamed port answers to, as in CoreDNS."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a record: a host name with one of its addresses, its open ports, its topology zone."""

    host: str
    address: bytes
    ports: tuple[EndpointPort, ...]
    zone: str = ""


def endpoint_label(endpoint: EndpointAddress, options: Options) -> str:
    """Returns the endpoint's label: its hostname, else its Pod's name if enabled, else its address with dashes."""
    address, hostname, pod, _ = endpoint
    if hostname:
        return hostname.lower()
    if options.endpoint_pod_names and pod and len(pod) < 64 and "." not in pod:
        return pod.lower()
    return dashed(address)


def ready_targets(slices: Iterable[EndpointSlice], base: str, options: Options) -> Iterator[Target]:
    """Yields every address of every ready endpoint, under the name it has below `base`.

    The label of an endpoint of another cluster is below that cluster's (KEP-1645).
    """
    for endpoint_slice in slices:
        cluster = endpoint_slice.source_cluster.lower() if endpoint_slice.import_key else ""
        below = f"{cluster}.{base}" if cluster else base
        for endpoint in ready_addresses(endpoint_slice):
            host = f"{endpoint_label(endpoint, options)}.{below}"
            yield Target(host, endpoint.address, endpoint_slice.ports or (), endpoint.zone.lower())


class SliceNames:
    """The records that the ready endpoints of one EndpointSlice add to the names below a Service."""

    __slots__ = ("addresses", "aliases", "by_labels", "by_zone", "clusters", "endpoint_slice", "named", "pairs")

    def __init__(self, endpoint_slice: EndpointSlice, base: str, options: Options) -> None:
        self.endpoint_slice = endpoint_slice
        targets = tuple(ready_targets((endpoint_slice,), base, options))
        self.aliases = tuple(fqdn_aliases((endpoint_slice,)))
        self.addresses = address_node(target.address for target in targets)
        self.pairs = pairs(targets)
        self.named = pairs_by_name(targets)
        self.by_labels: dict[tuple[str, ...], list[Target]] = {}
        self.by_zone: dict[str, list[Target]] = {}
        for target in targets:
            self.by_labels.setdefault(labels_below(target.host, base), []).append(target)
            if options.zonal and target.zone:
                self.by_zone.setdefault(target.zone, []).append(target)
        self.clusters = {labels[1:] for labels in self.by_labels if len(labels) > 1}


ZONAL = "_zone"
"""The label above names by topology zone."""


class ServiceTree:
    """All names at and below one Service."""

    def __init__(self, service: Service, parts: tuple[SliceNames, ...], base: str, *, zonal: bool = False) -> None:
        self.parts = parts
        self._base = base
        self._is_zonal = zonal and service.is_headless
        self._service = service
        self._aliases = tuple(chain.from_iterable(part.aliases for part in parts))
        self._nodes: dict[tuple[str, ...], Node] = {}
        ports = tuple(EndpointPort(port.name, port.port, port.protocol) for port in service.ports)
        self._own = [Target(base, packed(ip), ports) for ip in service.virtual_ips if packed(ip)]
        named = [part.named for part in parts] if service.is_headless else [pairs_by_name(self._own)]
        self._named = [] if service.is_external_name else named

    def get(self, labels: tuple[str, ...]) -> Node | None:
        """Returns the records of a name, empty for an empty non-terminal; None for a name that does not exist."""
        if self._is_zonal and labels[-1:] == (ZONAL,):
            return self._zonal_node(labels)  # clients choose the names of zones, so these are not kept
        node = self._nodes.get(labels)
        if node is None:
            node = self._node(labels)
            if node is not None:
                self._nodes[labels] = node
        return node

    def all_nodes(self) -> Iterator[tuple[tuple[str, ...], Node]]:
        """Yields every name with records, by its labels below the Service's, also those of topology zones."""
        names: dict[tuple[str, ...], None] = {(): None}
        for part in self.parts:
            names |= dict.fromkeys(part.by_labels)
            if self._is_zonal:
                zones = ((zone, policy, ZONAL) for zone in part.by_zone for policy in ("pin", "prefer"))
                names |= dict.fromkeys(zones)
        names |= dict.fromkeys((label,) for label, _ in self._aliases)
        for named in self._named:
            names |= dict.fromkeys(named)
        for labels in names:
            node = self._zonal_node(labels) if labels[-1:] == (ZONAL,) else self._node(labels)
            if node:
                yield labels, node

    def addresses(self, host: str) -> Node:
        """Returns the A and AAAA records of a host of the Service, or of its own name."""
        labels = labels_below(host, self._base)
        return address_node(host.address for host in self._hosts(labels)) if labels else self.get(()) or {}

    def _node(self, labels: tuple[str, ...]) -> Node | None:
        if not labels:
            return self._own_node()
        if hosts := self._hosts(labels):
            return {**address_node(host.address for host in hosts), **srv_node(pairs(hosts))}
        if aliases := [alias for label, alias in self._aliases if (label,) == labels]:
            return {CNAME: (aliases[-1],)}
        if found := list(chain.from_iterable(named.get(labels, ()) for named in self._named)):
            return srv_node(found)
        is_above = any(name[1:] == labels for named in self._named for name in named)
        return {} if is_above or any(labels in part.clusters for part in self.parts) else None

    def _zonal_node(self, labels: tuple[str, ...]) -> Node | None:
        """Returns the node of `zone.pin._zone`; that of `zone.prefer._zone` has all endpoints if the zone has none."""
        match labels:
            case (_,) | (("pin" | "prefer"), _):
                return {}
            case (zone, ("pin" | "prefer") as policy, _):
                targets = [target for part in self.parts for target in part.by_zone.get(zone, ())]
                if policy == "prefer" and not targets:
                    return self.get(())
                return {**address_node(target.address for target in targets), **srv_node(pairs(targets))}
        return None

    def _own_node(self) -> Node:
        service = self._service
        if service.is_external_name:
            return external_node(service.spec.external_name)
        if not service.is_headless:
            return {**address_node(target.address for target in self._own), **srv_node(pairs(self._own))}
        node: dict[int, dict[Rdata, None]] = {}
        for part in self.parts:
            for rtype, rdata in part.addresses.items():
                node.setdefault(rtype, {}).update(dict.fromkeys(rdata))
        if not node:
            return alias_node(self._aliases)
        found = list(chain.from_iterable(part.pairs for part in self.parts))
        return {**{rtype: tuple(rdata) for rtype, rdata in node.items()}, **srv_node(found)}

    def _hosts(self, labels: tuple[str, ...]) -> list[Target]:
        return [target for part in self.parts for target in part.by_labels.get(labels, ())]


def labels_below(host: str, base: str) -> tuple[str, ...]:
    """Returns the labels of a host before the Service's name; () for the name itself."""
    front = host.removesuffix(base)
    return tuple(front[:-1].split(".")) if front else ()


def service_tree(
    service: Service, slices: Iterable[EndpointSlice], base: str, options: Options, old: ServiceTree | None = None
) -> ServiceTree | None:
    """Returns all names at and below the Service, whose own is `base`; None where the Service has no name at all.

    A headless Service without a ready endpoint does not exist (§2.4.1), and neither does an empty
    Service under `ignore empty_service`. `old` is an earlier tree of the same names, with parts to reuse.
    """
    made = {id(part.endpoint_slice): part for part in old.parts} if old else {}
    is_empty = service.is_external_name or not options.endpoints
    parts = tuple(
        made.get(id(endpoint_slice)) or SliceNames(endpoint_slice, base, options)
        for endpoint_slice in (() if is_empty else slices)
    )
    has_names = any(part.addresses or part.aliases for part in parts)
    if not (has_names or service.is_external_name) and (service.is_headless or options.ignore_empty_service):
        return None
    return ServiceTree(service, parts, base, zonal=options.zonal)


def own_addresses(service: Service, slices: Iterable[EndpointSlice], options: Options) -> Node | None:
    """Returns the A and AAAA records of the Service's own name, without making its tree.

    None where more than addresses decides.
    """
    if service.is_external_name or options.ignore_empty_service:
        return None
    if service.is_headless:
        found = [address for one in slices for address in bare_addresses(one)] if options.endpoints else []
        return address_node(found) if found else None
    return address_node(filter(None, map(packed, service.virtual_ips)))


def external_node(external_name: str) -> Node:
    """Returns the CNAME of an ExternalName Service (§2.5), its spelling kept; nothing for text that can be no name.

    Differs: CoreDNS answers NXDOMAIN where the name looks like an IP address. The Service exists, and the
    Kubernetes documentation has such a string treated as a name made of digits.
    """
    name = f"{external_name.rstrip('.')}."
    return {CNAME: (name,)} if is_name(name) else {}


def is_name(text: str) -> bool:
    """Returns whether a name with a trailing dot can be encoded; the root cannot be a target here."""
    try:
        return len(encode_name(labels_of(text))) > 1
    except ValueError:
        return False


def fqdn_aliases(slices: Iterable[EndpointSlice]) -> Iterator[tuple[str, str]]:
    """Returns (label, target) of each ready endpoint in slices of addressType FQDN."""
    for endpoint_slice in slices:
        if endpoint_slice.address_type == "FQDN":
            for endpoint in endpoint_slice.endpoints or ():
                if endpoint.is_ready:
                    for name in endpoint.addresses:
                        target = f"{name.rstrip('.')}."
                        if is_name(target):
                            yield (endpoint.hostname or name.replace(".", "-")).lower(), target


def alias_node(aliases: tuple[tuple[str, str], ...]) -> Node:
    """Returns the Service's own CNAME, where its endpoints are one name.

    Differs: with several names CoreDNS sends several CNAMEs, which RFC 2181 §10.1 forbids; here only the
    endpoints' own names lead on.
    """
    targets = {target for _, target in aliases}
    return {CNAME: (targets.pop(),)} if len(targets) == 1 else {}


def address_node(addresses: Iterable[bytes]) -> Node:
    """Returns the A and AAAA records of packed addresses, each once, in order of arrival."""
    node: dict[int, dict[Rdata, None]] = {}
    for address in addresses:
        node.setdefault(address_type(address), {})[address] = None
    return {rtype: tuple(rdata) for rtype, rdata in node.items()}


def pairs(targets: Iterable[Target]) -> Pairs:
    """Returns (host, port) of every open port of every target."""
    return [(target.host, port.port) for target in targets for port in target.ports if port.port]


def pairs_by_name(targets: Iterable[Target]) -> dict[tuple[str, ...], Pairs]:
    """Returns the same below `_port._proto` (§2.3.2, §2.4.2); an unnamed port answers to `_`, as in CoreDNS."""
    by_name: dict[tuple[str, ...], Pairs] = {}
    for target in targets:
        for port in target.ports:
            if port.port:
                by_name.setdefault(port_labels(port), []).append((target.host, port.port))
    return by_name


def port_labels(port: ServicePort | EndpointPort) -> tuple[str, str]:
    return f"_{port.name.lower()}" if port.name else UNNAMED, f"_{(port.protocol or 'TCP').lower()}"


def srv_node(found: Pairs) -> Node:
    """Returns the SRV RRset of these (host, port) pairs, nothing for none."""
    return {SRV: weighted(found)} if found else {}


def weighted(found: Pairs) -> tuple[Srv, ...]:
    """Returns one SRV record for each different (target, port); equal weights that add up to 100 over all pairs.

    Pairs are counted before duplicates go, so a dual-stack target weighs half, as in CoreDNS.
    """
    weight = weight_of(found)
    return tuple(Srv(0, weight, port, host) for host, port in dict.fromkeys(found))


def weight_of(found: Collection[object]) -> int:
    """Returns the weight of each of these SRV records."""
    return max(1, 100 // len(found))
