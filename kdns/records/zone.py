"""What a zone answers: (name, type) to RRsets, or the reason why there are none.

Names are a closed world: a name that exists without the asked type is NODATA, also where it only stands above
others (RFC 8020, RFC 4592 §2.2.2); any other name is NXDOMAIN.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kdns.cluster.objects import EndpointSlice, Namespace, Object, Pod, Service
from kdns.cluster.state import State
from kdns.records import subjects
from kdns.records.names import is_below, labels_of, reverse_range, reversed_address, undashed
from kdns.records.options import Options, PodMode
from kdns.records.reverse import is_above_an_address, is_shown, ptr_targets
from kdns.records.rrset import AAAA, ANY, CNAME, NS, PTR, SOA, SRV, TXT, A, RRset, Soa, Srv, address_type
from kdns.records.service import Node, Tree, ready_targets, service_tree
from kdns.records.subjects import Subject

SCHEMA_VERSION: Final = b"1.1.0"
SCHEMA_TTL_S: Final = 28800
MAX_CNAMES: Final = 11
DNS_PORT: Final = 53
MAX_TREES: Final = 256


class Status(Enum):
    """How a lookup ended."""

    SUCCESS = "success"
    NODATA = "nodata"
    NXDOMAIN = "nxdomain"
    SERVFAIL = "servfail"
    """Not known yet: the cluster has not been listed in full."""


@dataclass(frozen=True, slots=True)
class Result:
    """A lookup's outcome.

    `zone` is the zone whose SOA belongs into a negative answer. `subjects` say which changes make it stale.
    `pursue` is the name at which a CNAME leaves these zones, "" if it does not.
    """

    status: Status
    zone: str
    answer: tuple[RRset, ...] = ()
    additional: tuple[RRset, ...] = ()
    subjects: tuple[Subject, ...] = ()
    pursue: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A name's own records and the tree they came from; `node` is None for a name that does not exist."""

    node: Node | None
    subject: Subject
    tree: Tree | None = None
    base: str = ""
    ttl_s: int | None = None


class Zones:
    """The zones of one `kubernetes` directive over one cluster state.

    Trees of recently asked Services are kept until they change, see `forget`; at most MAX_TREES.
    """

    def __init__(self, state: State, options: Options) -> None:
        self.state = state
        self.options = options
        self.serial = 0
        self._zones = sorted(((labels_of(zone), zone) for zone in options.zones), key=lambda z: -len(z[0]))
        self._trees: dict[tuple[str, str, str], Tree | None] = {}
        self._above: dict[tuple[bytes, bytes], bool] = {}
        self._needs: set[type[Object]] = {Service, Namespace}
        if options.endpoints:
            self._needs.add(EndpointSlice)
        if options.pods is PodMode.VERIFIED:
            self._needs.add(Pod)

    @property
    def is_synced(self) -> bool:
        """Whether everything these zones are made of has been listed once."""
        return self._needs <= self.state.synced

    def zone_of(self, labels: tuple[str, ...]) -> str | None:
        """The closest enclosing zone of a name given by its lower-case labels."""
        for suffix, zone in self._zones:
            if is_below(labels, suffix):
                return zone
        return None

    def soa(self, zone: str) -> RRset:
        """The zone's SOA; TTL min(ttl, 300), negative TTL the directive's ttl (RFC 2308 §4)."""
        soa = Soa(
            _below("ns.dns", zone), _below("hostmaster", zone), self.serial, 7200, 1800, 86400, self.options.ttl_s
        )
        return RRset(zone, SOA, min(self.options.ttl_s, 300), (soa,))

    def forget(self, touched: Collection[Subject]) -> None:
        """Drop what is remembered of these subjects; called with every change."""
        if subjects.NAMESPACES in touched:
            self._trees.clear()
        if subjects.NAMESPACES in touched or subjects.REVERSE in touched:
            self._above.clear()
        for tree in [tree for tree in self._trees if subjects.of_service(tree[:2]) in touched]:
            del self._trees[tree]

    def lookup(self, labels: tuple[str, ...], qtype: int) -> Result | None:
        """The answer for a name and type, CNAMEs followed as far as these zones reach; None outside of them.

        `labels` are lower case, without the root.
        """
        zone = self.zone_of(labels)
        if zone is None:
            return None
        answer: list[RRset] = []
        touched: list[Subject] = []
        owner = ".".join((*labels, "")) or "."
        seen = {labels}
        while True:
            found = self._find(labels, zone)
            if found is None:
                return Result(Status.SERVFAIL, zone)
            touched += [found.subject, subjects.NAMESPACES]
            status = Status.NODATA if found.node is not None else Status.NXDOMAIN
            node = found.node or {}
            target = node.get(CNAME, ("",))[0] if qtype not in {CNAME, ANY} else ""
            if not target:
                rrset = self._rrset(owner, qtype, node, found)
                additional = self._additional(rrset, found, zone)
                if rrset:
                    answer.append(rrset)
                    status = Status.SUCCESS
                return Result(status, zone, tuple(answer), additional, tuple(touched))
            answer.append(RRset(owner, CNAME, self.options.ttl_s, (target,)))
            owner = str(target)
            labels = labels_of(owner.lower())
            if labels in seen or len(answer) == MAX_CNAMES:
                return Result(Status.SUCCESS, zone, tuple(answer), (), tuple(touched))
            seen.add(labels)
            inside = self.zone_of(labels)
            if inside is None:
                return Result(Status.SUCCESS, zone, tuple(answer), (), tuple(touched), pursue=owner)
            zone = inside

    def _rrset(self, owner: str, qtype: int, node: Node, found: Found) -> RRset | None:
        """The node's records of this type; for ANY those of one type, any (RFC 8482 §4.1)."""
        ttl_s = found.ttl_s if found.ttl_s is not None else self.options.ttl_s
        rtype = next((held for held, rdata in node.items() if rdata), qtype) if qtype == ANY else qtype
        rdata = node.get(rtype)
        return RRset(owner, rtype, ttl_s, rdata) if rdata else None

    def _find(self, labels: tuple[str, ...], zone: str) -> Found | None:
        """The records of one name in its zone, None while they cannot be known yet."""
        relative = labels[: len(labels) - len(labels_of(zone))][::-1]
        if fixed := self._fixed(relative, zone):
            return fixed
        if not self.is_synced:
            return None
        return self._reverse(labels) if is_reverse(zone) else self._of_cluster(relative, zone)

    def _fixed(self, relative: tuple[str, ...], zone: str) -> Found | None:
        """The names that exist whatever the cluster holds."""
        node: Node | None = None
        ttl_s = None
        match relative:
            case ():
                node = {SOA: self.soa(zone).rdata, NS: tuple(self._name_servers(zone))}
            case ("dns",):
                node = {}
            case ("dns", "ns"):
                node = self._own_node()
            case ("dns-version",) if not is_reverse(zone):
                node, ttl_s = {TXT: (SCHEMA_VERSION,)}, SCHEMA_TTL_S
            case ("svc" | "pod",) if not is_reverse(zone):
                node = {}
        return Found(node, subjects.APEX, ttl_s=ttl_s) if node is not None else None

    def _of_cluster(self, relative: tuple[str, ...], zone: str) -> Found:
        """The names that follow the cluster, in a forward zone."""
        match relative:
            case ("svc", namespace):
                return Found(self._namespace(namespace), subjects.NAMESPACES)
            case ("svc", namespace, name, *below):
                return self._service(namespace, name, tuple(below[::-1]), zone)
            case ("pod", namespace) if self.options.pods is not PodMode.DISABLED:
                return Found(self._namespace(namespace), subjects.NAMESPACES)
            case ("pod", namespace, label):
                return self._pod(namespace, label)
        return Found(None, subjects.NAMESPACES)

    def _namespace(self, namespace: str) -> Node | None:
        return {} if is_shown(namespace, self.state, self.options) else None

    def _service(self, namespace: str, name: str, below: tuple[str, ...], zone: str) -> Found:
        subject = subjects.of_service((namespace, name))
        key = (namespace, name, zone)
        if key not in self._trees:
            if len(self._trees) >= MAX_TREES:
                self._trees.clear()
            self._trees[key] = self._tree(namespace, name, zone)
        tree = self._trees[key]
        node = tree.get(below) if tree else None
        return Found(node, subject, tree, _below(f"{name}.{namespace}.svc", zone))

    def _tree(self, namespace: str, name: str, zone: str) -> Tree | None:
        service = self.state.services.get((namespace, name))
        if service is None or not is_shown(namespace, self.state, self.options):
            return None
        return service_tree(service, self.state.slices_by_service.get(service.key, {}).values(), zone, self.options)

    def _pod(self, namespace: str, label: str) -> Found:
        address = undashed(label)
        exists = address and is_shown(namespace, self.state, self.options)
        if self.options.pods is PodMode.DISABLED:
            exists = False
        elif self.options.pods is PodMode.VERIFIED:
            exists = exists and any(key[0] == namespace for key in self.state.pods_by_ip[address])
        return Found({address_type(address): (address,)} if exists else None, subjects.of_pod(address))

    def _reverse(self, labels: tuple[str, ...]) -> Found:
        address = reversed_address(labels)
        if address is not None:
            names = ptr_targets(address, self.state, self.options)
            return Found({PTR: names} if names else None, subjects.of_address(address))
        bounds = reverse_range(labels)
        return Found({} if bounds and self._is_above(bounds) else None, subjects.REVERSE)

    def _is_above(self, bounds: tuple[bytes, bytes]) -> bool:
        """Whether some address in these bounds has a name; remembered, for hidden addresses can be many to look at."""
        if bounds not in self._above:
            if len(self._above) >= MAX_TREES:
                self._above.clear()
            self._above[bounds] = is_above_an_address(*bounds, self.state, self.options)
        return self._above[bounds]

    def _name_servers(self, zone: str) -> dict[str, Node]:
        """The Services this server stands behind, by its own addresses, with theirs; else `ns.dns` of the zone.

        They are named even where `namespaces` hides them, as in CoreDNS: the glue leads there.
        Differs: a Service whose ports are all others than 53 is left out; CoreDNS takes the API's for a name server
        where both share an address.
        """
        found: dict[str, Node] = {}
        for address in self.options.own_addresses if self.options.endpoints else ():
            for key in self.state.slices_by_ip[address]:
                endpoint_slice = self.state.slices[key]
                service = self.state.services.get(endpoint_slice.service_key or ("", ""))
                if service is None or service.is_external_name or not may_serve_dns(service):
                    continue
                base = _below(f"{service.key[1]}.{service.key[0]}.svc", self.options.primary_zone)
                tree = service_tree(service, (endpoint_slice,), self.options.primary_zone, self.options) or {}
                if service.is_headless:
                    hosts = {
                        target.host
                        for target in ready_targets((endpoint_slice,), base, self.options)
                        if target.address == address
                    }
                    found |= {host: tree[(host.split(".", 1)[0],)] for host in hosts}
                else:
                    found[base] = tree.get((), {})
        return found or {_below("ns.dns", zone): self._own_node()}

    def _own_node(self) -> Node:
        own = self.options.own_addresses
        return {rtype: tuple(a for a in own if address_type(a) == rtype) for rtype in (A, AAAA)}

    def _additional(self, rrset: RRset | None, found: Found, zone: str) -> tuple[RRset, ...]:
        """Addresses of the targets of SRV (RFC 2782) and NS records, as far as they lie here."""
        if rrset is None or rrset.rtype not in {SRV, NS}:
            return ()
        servers = self._name_servers(zone) if rrset.rtype == NS else {}
        extra: list[RRset] = []
        for host in dict.fromkeys(r.target if isinstance(r, Srv) else str(r) for r in rrset.rdata):
            label = host.removesuffix(found.base).rstrip(".")
            node = servers[host] if servers else (found.tree or {}).get((label,) if label else (), {})
            extra += [RRset(host, rtype, self.options.ttl_s, node[rtype]) for rtype in (A, AAAA) if node.get(rtype)]
        return tuple(extra)


def may_serve_dns(service: Service) -> bool:
    """Whether the Service has port 53, or says nothing of its ports."""
    return not service.ports or any(port.port == DNS_PORT for port in service.ports)


def is_reverse(zone: str) -> bool:
    """Whether the zone maps addresses to names."""
    return f".{zone}".endswith((".in-addr.arpa.", ".ip6.arpa."))


def _below(labels: str, zone: str) -> str:
    return f"{labels}.{zone.lstrip('.')}"
