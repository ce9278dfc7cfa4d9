"""The zone's answers in bytes, straight from Services and EndpointSlices.

A and AAAA of a Service's own name and of Pod names, SRV of a named port, PTR of an address with one name, and denials.
The whole chain answers everything else, from the trees of zone.py, which have records for transfers too.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Collection, Iterable, Sequence
from struct import pack
from typing import Final

from kdns.answers.chain import Reply, Request, Serve
from kdns.answers.response import Encoded, Response, Reuse, Subject, ZoneSoa
from kdns.cluster.objects import EndpointPort, EndpointSlice, Service, ServicePort
from kdns.cluster.packed import PackedEndpoints, ready_addresses
from kdns.dns.encode import MAX_OFFSET, QUESTION_POINTER
from kdns.dns.names import (
    MAX_LABEL_BYTES,
    MAX_NAME_BYTES,
    POINTER,
    Labels,
    encode_name,
    is_below,
    labels_of,
    reversed_address,
)
from kdns.dns.query import AA, HEADER_BYTES, Query
from kdns.dns.types import AAAA, IN, NOERROR, NXDOMAIN, PTR, SRV, A
from kdns.net import IPV4_BYTES, packed
from kdns.plugins.sources.kubernetes import subjects
from kdns.plugins.sources.kubernetes.dashed import dashed_ipv4
from kdns.plugins.sources.kubernetes.options import Options
from kdns.plugins.sources.kubernetes.reverse import is_shown, ptr_targets
from kdns.plugins.sources.kubernetes.service import Node, endpoint_label, own_addresses, port_labels, weight_of
from kdns.plugins.sources.kubernetes.zone import FIXED, MAX_FIXED_LABELS, KubernetesZone, Zones
from kdns.tally import Tally

PLUGIN: Final = "kubernetes"
MAX_ENDPOINTS: Final = 64
"""The most endpoints that are read for an answer; the names of more are kept in a tree."""
_SERVICE_LABELS: Final = 3
"""The labels of a Service or Pod below its zone: its name, its namespace, and `svc` or `pod`."""
_PORT_LABELS: Final = 5
_PLAIN_LABEL: Final = re.compile(r"[a-z0-9_-]{1,63}")
"""A label whose text is its bytes."""
_LENGTHS: Final = [bytes((size,)) for size in range(64)]
_POINTER_BYTES: Final = 2
_TYPE_AND_CLASS_BYTES: Final = 4
_OWN: Final = b""
"""The label of the Service's own name, among those of its endpoints."""


class ClusterNames:
    """The names of one zone; with `falls_through`, names that do not exist may be those of the next directive.

    `tallies` count the replies; `whole` is the chain for what has no answer here.
    """

    def __init__(
        self,
        zones: Zones,
        zone: KubernetesZone,
        soa: ZoneSoa,
        tallies: tuple[Tally, ...],
        whole: Serve,
        *,
        falls_through: bool,
    ) -> None:
        self._zones = zones
        self._zone = zone
        self._depth = zone.depth
        self._state = zones.state
        self._options = zones.options
        self._soa = soa
        self._tallies = tallies
        self._whole = whole
        self._falls_through = falls_through
        self._zone_bytes = len(encode_name(zone.labels))
        ttl_s = zones.options.ttl_s
        self._starts = {
            rtype: QUESTION_POINTER + pack("!HHIH", rtype, IN, ttl_s, size_bytes)
            for rtype, size_bytes in ((A, 4), (AAAA, 16))
        }
        self._fixed = {4: self._starts[A][_POINTER_BYTES:], 16: self._starts[AAAA][_POINTER_BYTES:]}
        """What is between the owner and an address, by the address's size."""
        self._srv_start = QUESTION_POINTER + pack("!HHI", SRV, IN, ttl_s)
        self._ptr_start = QUESTION_POINTER + pack("!HHI", PTR, IN, ttl_s)

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        """Answers from a snapshot need a mark, so the whole chain gives them."""
        if self._zones.is_synced and not self._state.stale:
            response = self._find(request.query)
            if response is not None:
                return response
        return self._whole(request)

    def _find(self, query: Query) -> Response | None:
        labels = query.labels[: len(query.labels) - self._depth]
        if not labels:
            return None
        qtype = query.qtype
        if self._zone.is_reverse:
            return self._pointer(query.labels) if qtype == PTR else None
        branch = labels[-1]
        if len(labels) <= MAX_FIXED_LABELS:
            return None if branch in FIXED else self._absent()
        if branch == b"svc":
            return self._service(labels, qtype, query)
        if branch == b"pod" and len(labels) == _SERVICE_LABELS:
            pod = self._zones.pod(labels[1].decode("latin-1"), labels[0].decode("latin-1"))
            subject = pod.subject
            return self._absent(subject) if pod.node is None else self._addresses(pod.node, qtype, subject)
        return self._absent()

    def _records(self, subject: Subject, body: Encoded) -> Response:
        return Response(NOERROR, AA, reuse=Reuse((subject,)), plugin=PLUGIN, body=body, tallies=self._tallies)

    def _denial(self, rcode: int, subjects: tuple[Subject, ...]) -> Response:
        return Response(rcode, AA, soa=self._soa, reuse=Reuse(subjects), plugin=PLUGIN, tallies=self._tallies)

    def _absent(self, *depends_on: Subject) -> Response | None:
        return None if self._falls_through or self._options.explain else self._denial(NXDOMAIN, depends_on)

    def _addresses(self, node: Node, qtype: int, subject: Subject) -> Response | None:
        addresses: tuple[bytes, ...] = node.get(qtype, ())  # type: ignore[assignment] # A and AAAA hold packed addresses
        if not addresses:
            return None if self._options.explain else self._denial(NOERROR, (subject,))
        start = self._starts[qtype]
        return self._records(subject, Encoded(tuple([start + address for address in addresses]), (), True))

    def _service(self, labels: Sequence[bytes], qtype: int, query: Query) -> Response | None:
        key = labels[-2].decode("latin-1"), labels[-3].decode("latin-1")
        subject = subjects.of_service(key)
        service = self._state.services.get(key)
        if service is None or not is_shown(key[0], self._state, self._options):
            return self._absent(subject)
        slices = self._state.slices_by_service.get(key, {}).values()
        if sum([len(endpoint_slice.endpoints or ()) for endpoint_slice in slices]) > MAX_ENDPOINTS:
            return None
        if qtype == SRV:
            return self._ports(service, slices, labels, query, subject) if len(labels) == _PORT_LABELS else None
        node = own_addresses(service, slices, self._options) if len(labels) == _SERVICE_LABELS else None
        return None if node is None else self._addresses(node, qtype, subject)

    def _ports(
        self, service: Service, slices: Iterable[EndpointSlice], labels: Sequence[bytes], query: Query, subject: Subject
    ) -> Response | None:
        """Returns the SRV records of a named port, and the addresses of their targets."""
        if service.is_external_name or self._options.ignore_empty_service:
            return None
        asked = labels[0].decode("latin-1"), labels[1].decode("latin-1")
        hosts: list[tuple[bytes, bytes]] = []
        pairs: list[tuple[bytes, int]] = []
        if not service.is_headless:
            hosts = [(_OWN, address) for address in map(packed, service.virtual_ips) if address]
            numbers = _numbers(service.ports, asked)
            pairs = [(host, number) for host, _ in hosts for number in numbers]
        for endpoint_slice in slices if service.is_headless and self._options.endpoints else ():
            found = None if endpoint_slice.address_type == "FQDN" else _hosts(endpoint_slice, self._options)
            if found is None:
                return None
            hosts += found
            numbers = _numbers(endpoint_slice.ports or (), asked)
            pairs += [(host, number) for host, _ in found for number in numbers]
        if not pairs:
            return None
        name = query.packet[HEADER_BYTES : query.question_end - _TYPE_AND_CLASS_BYTES].lower()
        return self._targets(pairs, hosts, name, 2 + len(labels[0]) + len(labels[1]), subject)

    def _targets(
        self,
        pairs: Sequence[tuple[bytes, int]],
        hosts: Sequence[tuple[bytes, bytes]],
        name: bytes,
        service_at: int,
        subject: Subject,
    ) -> Response | None:
        """Returns the records of these (host, port) pairs; `service_at` is where the Service's name is in `name`.

        A host is the encoded label of an endpoint, or _OWN; `hosts` has it with each of its addresses.
        """
        service_name = name[service_at:]
        if len(service_name) + 1 + MAX_LABEL_BYTES > MAX_NAME_BYTES:
            return None
        weight, rdata_bytes, start = weight_of(pairs), 6 + len(service_name), self._srv_start
        used = dict.fromkeys(pairs)
        starts = {
            (size, port): start + pack("!HHHH", rdata_bytes + size, 0, weight, port)
            for size, port in {(len(host), port) for host, port in used}
        }
        records = [starts[len(host), port] + host + service_name for host, port in used]
        at = HEADER_BYTES + len(name) + 4 + sum(map(len, records))
        zone_at = HEADER_BYTES + len(name) - self._zone_bytes
        base = service_name[: -self._zone_bytes] + pack("!H", POINTER | zone_at)
        additional = self._additional(dict.fromkeys([host for host, _ in used]), hosts, at, base)
        is_near = at + sum(map(len, additional)) <= MAX_OFFSET
        return self._records(subject, Encoded(tuple(records), tuple(additional))) if is_near else None

    def _additional(
        self, targets: Collection[bytes], hosts: Sequence[tuple[bytes, bytes]], at: int, base: bytes
    ) -> list[bytes]:
        """Returns the addresses of targets, in records that begin at `at`; `base` is what is behind the first label."""
        fixed = self._fixed
        if len(dict(hosts)) == len(hosts):
            near = [(host, address) for host, address in hosts if host in targets]
            host, address = near[0]
            pointer = pack("!H", POINTER | at + len(host))
            middle = {size: pointer + one for size, one in fixed.items()}
            others = [host + middle[len(address)] + address for host, address in near[1:]]
            return [host + base + fixed[len(address)] + address, *others]
        additional: list[bytes] = []
        for host in targets:
            owner, host_at = host + base, at
            if len(base) > _POINTER_BYTES:
                base = pack("!H", POINTER | at + len(host))
            own = dict.fromkeys([address for label, address in hosts if label == host])
            for address in sorted(own, key=len):  # A before AAAA
                additional.append(owner + fixed[len(address)] + address)
                at += len(additional[-1])
                owner = pack("!H", POINTER | host_at)
        return additional

    def _pointer(self, labels: Labels) -> Response | None:
        """Returns the PTR record of an address, if it has one name."""
        address = reversed_address(labels)
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
        if len(names) > 1 or is_below(target, self._zone.labels):
            return None
        record = b"".join((self._ptr_start, len(name).to_bytes(2), name))
        return self._records(subject, Encoded((record,)))


def _hosts(endpoint_slice: EndpointSlice, options: Options) -> list[tuple[bytes, bytes]] | None:
    """Returns the encoded label and the address of each ready endpoint; None if a label's bytes are not its text."""
    endpoints = endpoint_slice.endpoints
    if (
        isinstance(endpoints, PackedEndpoints)
        and endpoints.width == IPV4_BYTES
        and not (endpoints.hostnames or options.endpoint_pod_names)
    ):
        addresses = endpoints.bare_addresses()
        labels = dashed_ipv4(addresses)
    else:
        ready = [*ready_addresses(endpoint_slice)]
        texts = [endpoint_label(endpoint, options) for endpoint in ready]
        if not all(map(_PLAIN_LABEL.fullmatch, texts)):
            return None
        addresses, labels = [endpoint.address for endpoint in ready], [text.encode("ascii") for text in texts]
    return [(_LENGTHS[len(label)] + label, address) for label, address in zip(labels, addresses, strict=True)]


def _numbers(ports: Iterable[ServicePort | EndpointPort], asked: tuple[str, str]) -> list[int]:
    return [port.port for port in ports if port.port and port_labels(port) == asked]
