"""Exact answers about the cluster: what is queried most, straight from Services and EndpointSlices.

They are A and AAAA of a Service's own name and of Pod names, SRV of a named port, PTR of an address with one name, and
the names of search paths that do not exist. The chain answers everything else, with the trees of zone.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from struct import pack
from typing import Final

from kdns.cluster.objects import EndpointPort, EndpointSlice, Service, ServicePort
from kdns.cluster.packed import ready_addresses
from kdns.dns.encode import MAX_OFFSET, QUESTION_POINTER
from kdns.dns.names import MAX_NAME_BYTES, POINTER, encode_name, is_below, labels_of, reversed_address
from kdns.dns.query import HEADER_BYTES
from kdns.dns.types import AAAA, IN, NOERROR, NXDOMAIN, PTR, SRV, A
from kdns.dnsserver.answers.response import Subject, ZoneSoa
from kdns.dnsserver.exact import Found
from kdns.net import packed
from kdns.plugins.kubernetes import subjects
from kdns.plugins.kubernetes.reverse import is_shown, ptr_targets
from kdns.plugins.kubernetes.service import Node, endpoint_label, own_addresses, port_labels, weight_of
from kdns.plugins.kubernetes.zone import FIXED, MAX_FIXED_LABELS, KubernetesZone, Zones

MAX_ENDPOINTS: Final = 64
"""The most endpoints that are read for an answer; the names of more are kept in a tree."""
_SERVICE_LABELS: Final = 3
"""The labels of a Service or Pod below its zone: its name, its namespace, and `svc` or `pod`."""
_PORT_LABELS: Final = 5
_PLAIN_LABEL: Final = re.compile(r"[a-z0-9_-]{1,63}")
"""A label whose text is its bytes."""
_POINTER_BYTES: Final = 2
_OWN: Final = b""
"""The label of the Service's own name, among those of its endpoints."""


class ClusterNames:
    """The names of one zone; with `falls_through`, names that do not exist may be those of the next directive."""

    def __init__(self, zones: Zones, zone: KubernetesZone, soa: ZoneSoa, plugin: str, *, falls_through: bool) -> None:
        self.labels = zone.labels
        self.ttl_s = zones.options.ttl_s
        self.plugin = plugin
        self._zones = zones
        self._state = zones.state
        self._options = zones.options
        self._is_reverse = zone.is_reverse
        self._soa = soa
        self._falls_through = falls_through
        self._zone_bytes = len(encode_name(zone.labels))
        self._starts = {
            rtype: QUESTION_POINTER + pack("!HHIH", rtype, IN, self.ttl_s, size_bytes)
            for rtype, size_bytes in ((A, 4), (AAAA, 16))
        }
        self._fixed = {4: self._starts[A][_POINTER_BYTES:], 16: self._starts[AAAA][_POINTER_BYTES:]}
        """What is between the owner and an address of so many bytes."""
        self._srv_start = QUESTION_POINTER + pack("!HHI", SRV, IN, self.ttl_s)

    def find(self, labels: Sequence[bytes], qtype: int, name: bytes) -> Found | None:
        """See ExactNames. What is from a snapshot is marked by the chain."""
        if not (labels and self._zones.is_synced) or self._state.stale:
            return None
        if self._is_reverse:
            return self._pointer(labels) if qtype == PTR else None
        branch = labels[-1]
        if len(labels) <= MAX_FIXED_LABELS:
            return None if branch in FIXED else self._absent()
        if branch == b"svc":
            return self._service(labels, qtype, name)
        if branch == b"pod" and len(labels) == _SERVICE_LABELS:
            node, subject, _, _ = self._zones.pod(labels[1].decode("latin-1"), labels[0].decode("latin-1"))
            return self._absent(subject) if node is None else self._addresses(node, qtype, subject)
        return self._absent()

    def _absent(self, *depends_on: Subject) -> Found | None:
        return None if self._falls_through or self._options.explain else Found(NXDOMAIN, depends_on, self._soa)

    def _addresses(self, node: Node, qtype: int, subject: Subject) -> Found | None:
        """Returns the addresses of a name that has no other records, or NODATA."""
        addresses: tuple[bytes, ...] = node.get(qtype, ())  # type: ignore[assignment] # A and AAAA hold packed addresses
        if not addresses:
            return None if self._options.explain else Found(NOERROR, (subject,), self._soa)
        start = self._starts[qtype]
        return Found(NOERROR, (subject,), None, tuple([start + address for address in addresses]))

    def _service(self, labels: Sequence[bytes], qtype: int, name: bytes) -> Found | None:
        key = labels[-2].decode("latin-1"), labels[-3].decode("latin-1")
        subject = subjects.of_service(key)
        service = self._state.services.get(key)
        if service is None or not is_shown(key[0], self._state, self._options):
            return self._absent(subject)
        slices = self._state.slices_by_service.get(key, {}).values()
        if sum(len(endpoint_slice.endpoints or ()) for endpoint_slice in slices) > MAX_ENDPOINTS:
            return None
        if qtype == SRV:
            return self._ports(service, slices, labels, name, subject) if len(labels) == _PORT_LABELS else None
        node = own_addresses(service, slices, self._options) if len(labels) == _SERVICE_LABELS else None
        return None if node is None else self._addresses(node, qtype, subject)

    def _ports(
        self, service: Service, slices: Iterable[EndpointSlice], labels: Sequence[bytes], name: bytes, subject: Subject
    ) -> Found | None:
        """Returns the SRV records of a named port, and the addresses of their targets."""
        if service.is_external_name or self._options.ignore_empty_service:
            return None
        asked = labels[0].decode("latin-1"), labels[1].decode("latin-1")
        hosts: dict[bytes, list[bytes]] = {}
        pairs: list[tuple[bytes, int]] = []
        if not service.is_headless:
            hosts[_OWN] = list(filter(None, map(packed, service.virtual_ips)))
            pairs = [(_OWN, number) for _ in hosts[_OWN] for number in _numbers(service.ports, asked)]
        for endpoint_slice in slices if service.is_headless and self._options.endpoints else ():
            if endpoint_slice.address_type == "FQDN":
                return None
            numbers = _numbers(endpoint_slice.ports or (), asked)
            for endpoint in ready_addresses(endpoint_slice):
                label = endpoint_label(endpoint, self._options)
                if (endpoint.hostname or endpoint.pod) and not _PLAIN_LABEL.fullmatch(label):
                    return None
                host = bytes((len(label),)) + label.encode("ascii")
                hosts.setdefault(host, []).append(endpoint.address)
                pairs += [(host, number) for number in numbers]
        if not pairs:
            return None
        return self._targets(pairs, hosts, name, 2 + len(labels[0]) + len(labels[1]), subject)

    def _targets(
        self,
        pairs: Sequence[tuple[bytes, int]],
        hosts: Mapping[bytes, Sequence[bytes]],
        name: bytes,
        service_at: int,
        subject: Subject,
    ) -> Found | None:
        """Returns the records of these (host, port) pairs; `service_at` is where the Service's name is in `name`.

        A host is the encoded label of an endpoint, or _OWN.
        """
        service_name = name[service_at:]
        if len(service_name) + max(map(len, hosts)) > MAX_NAME_BYTES:
            return None
        weight, rdata_bytes, start = weight_of(pairs), 6 + len(service_name), self._srv_start
        used = dict.fromkeys(pairs)
        records = [
            b"".join((start, pack("!HHHH", rdata_bytes + len(host), 0, weight, port), host, service_name))
            for host, port in used
        ]
        at = HEADER_BYTES + len(name) + 4 + sum(map(len, records))
        zone_at = HEADER_BYTES + len(name) - self._zone_bytes
        base = service_name[: -self._zone_bytes] + pack("!H", POINTER | zone_at)
        additional: list[bytes] = []
        for host in {host: None for host, _ in used}:
            owner, host_at = host + base, at
            if len(base) > _POINTER_BYTES:
                base = pack("!H", POINTER | at + len(host))
            addresses = hosts[host]
            if len(addresses) > 1:
                addresses = sorted(dict.fromkeys(addresses), key=len)  # A before AAAA
            for address in addresses:
                record = owner + self._fixed[len(address)] + address
                additional.append(record)
                at += len(record)
                owner = pack("!H", POINTER | host_at) if len(addresses) > 1 else owner
        return Found(NOERROR, (subject,), None, tuple(records), tuple(additional)) if at <= MAX_OFFSET else None

    def _pointer(self, labels: Sequence[bytes]) -> Found | None:
        """Returns the PTR record of an address, if it has one name."""
        address = reversed_address((*labels, *self.labels))
        if address is None:
            return None
        subject = subjects.of_address(address)
        names = ptr_targets(address, self._state, self._options)
        if not names:
            return self._absent(subject)
        try:
            target = labels_of(names[0])
            name = encode_name(target)
        except ValueError:
            return None
        if len(names) > 1 or is_below(target, self.labels):
            return None
        return Found(
            NOERROR, (subject,), None, (QUESTION_POINTER + pack("!HHIH", PTR, IN, self.ttl_s, len(name)) + name,)
        )


def _numbers(ports: Iterable[ServicePort | EndpointPort], asked: tuple[str, str]) -> list[int]:
    """Returns the numbers of the ports with these labels."""
    return [port.port for port in ports if port.port and port_labels(port) == asked]
