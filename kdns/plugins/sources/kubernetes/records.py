"""Answers to plain questions about one zone, in bytes: the records that `Zones.find` returns, and denials.

Falls back to the whole chain for everything else, such as CNAMEs.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack
from typing import Final

from kdns.answers.chain import Request, Serve, ServeResult
from kdns.answers.response import Encoded, Response, Reuse, ZoneSoa
from kdns.dns.encode import MAX_OFFSET, QUESTION_POINTER
from kdns.dns.names import MAX_LABEL_BYTES, MAX_NAME_BYTES, POINTER, encode_name, is_below, labels_of
from kdns.dns.query import AA, HEADER_BYTES, Query
from kdns.dns.types import AAAA, CNAME, IN, NOERROR, NXDOMAIN, PTR, SRV, A
from kdns.plugins.sources.kubernetes.service import PORT_LABELS, weight_of
from kdns.plugins.sources.kubernetes.subjects import REVERSE
from kdns.plugins.sources.kubernetes.zone import KubernetesZone, NameRecords, Zones
from kdns.tally import Tally

PLUGIN: Final = "kubernetes"
_SERVICE_LABELS: Final = 3
"""Labels of a Service below its zone: name, namespace, and `svc`."""
_TARGET_LABELS: Final = frozenset((_SERVICE_LABELS, _SERVICE_LABELS + PORT_LABELS))
_LENGTHS: Final = [b"", *(bytes((size,)) for size in range(1, MAX_LABEL_BYTES + 1))]
"""Size of a label → its length byte; none for "", the Service's own name as a host."""
_POINTER_BYTES: Final = 2
_TYPE_AND_CLASS_BYTES: Final = 4


class ClusterNames:
    """The names of one zone; with `falls_through`, the whole chain answers missing names.

    `tallies` count the replies; `whole` is the whole chain.
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
        self._find = zones.find
        self._zone = zone
        self._depth = zone.depth
        self._state = zones.state
        self._explains = zones.options.explain
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
        """Size of an address → the bytes between owner and address."""
        self._srv_start = QUESTION_POINTER + pack("!HHI", SRV, IN, ttl_s)
        self._ptr_start = QUESTION_POINTER + pack("!HHI", PTR, IN, ttl_s)

    def serve(self, request: Request) -> ServeResult:
        """The whole chain answers from a snapshot, because such answers are marked."""
        if not self._state.stale:
            query = request.query
            records = self._find(query.labels, self._zone, query.qtype)
            response = self._response(records, query) if records is not None else None
            if response is not None:
                return response
        return self._whole(request)

    def _response(self, records: NameRecords, query: Query) -> Response | None:
        node, qtype = records.node, query.qtype
        if node is None:
            return None if self._falls_through else self._denial(NXDOMAIN, records)
        if rdata := node.get(qtype):
            if qtype in self._starts:
                start = self._starts[qtype]
                addresses: tuple[bytes, ...] = rdata  # type: ignore[assignment] # A and AAAA hold packed addresses
                return self._reply(records, Encoded(tuple([start + address for address in addresses]), (), True))
            return self._pointer(records, str(rdata[0])) if qtype == PTR and len(rdata) == 1 else None
        if qtype == SRV and records.targets:
            return self._targets(records, query)
        if CNAME in node or (self._falls_through and REVERSE in records.subjects):
            return None
        return self._denial(NOERROR, records)

    def _reply(self, records: NameRecords, body: Encoded) -> Response:
        return Response(NOERROR, AA, reuse=Reuse(records.subjects), plugin=PLUGIN, body=body, tallies=self._tallies)

    def _denial(self, rcode: int, records: NameRecords) -> Response | None:
        if self._explains:
            return None
        return Response(rcode, AA, soa=self._soa, reuse=Reuse(records.subjects), plugin=PLUGIN, tallies=self._tallies)

    def _pointer(self, records: NameRecords, name: str) -> Response | None:
        """The PTR record of an address with one name, if nothing in it can be compressed."""
        try:
            target = labels_of(name)
            rdata = encode_name(target)
        except ValueError:
            return None
        if is_below(target, self._zone.labels):
            return None
        return self._reply(records, Encoded((b"".join((self._ptr_start, len(rdata).to_bytes(2), rdata)),)))

    def _targets(self, records: NameRecords, query: Query) -> Response | None:
        """SRV records of a Service or of its named port, with the addresses of their targets.

        None unless all targets have the same single port, and hosts that are one label of plain text.
        """
        labels, groups = query.labels[: len(query.labels) - self._depth], records.targets
        numbers = groups[0][1]
        hosts = groups[0][0] if len(groups) == 1 else [host for hosts, _ in groups for host in hosts]
        is_one = len(numbers) == 1 and (len(groups) == 1 or all(other == numbers for _, other in groups))
        names, addresses = zip(*hosts, strict=True)
        text = ".".join(names)
        if not is_one or len(labels) not in _TARGET_LABELS or not text.isascii() or "\\" in text:
            return None
        plain = text.encode().split(b".")
        if len(plain) != len(names) or max(map(len, plain)) > MAX_LABEL_BYTES:
            return None
        targets = [_LENGTHS[len(label)] + label for label in plain]
        name = query.packet[HEADER_BYTES : query.question_end - _TYPE_AND_CLASS_BYTES].lower()
        above = labels[:-_SERVICE_LABELS]
        service_name = name[len(b"".join(above)) + len(above) :]
        if len(service_name) + 1 + MAX_LABEL_BYTES > MAX_NAME_BYTES:
            return None
        weight, rdata_bytes, start = weight_of(targets), 6 + len(service_name), self._srv_start
        used = dict.fromkeys(targets)
        starts = {size: start + pack("!HHHH", rdata_bytes + size, 0, weight, numbers[0]) for size in {*map(len, used)}}
        answer = [starts[len(label)] + label + service_name for label in used]
        at = HEADER_BYTES + len(name) + _TYPE_AND_CLASS_BYTES + sum(map(len, answer))
        zone_at = HEADER_BYTES + len(name) - self._zone_bytes
        base = service_name[: -self._zone_bytes] + pack("!H", POINTER | zone_at) if above else QUESTION_POINTER
        owners = [*zip(targets, addresses, strict=True)]
        additional = self._of_one(owners, at, base) if len(used) == len(owners) else self._of_many(owners, at, base)
        is_near = at + sum(map(len, additional)) <= MAX_OFFSET
        return self._reply(records, Encoded(tuple(answer), tuple(additional))) if is_near else None

    def _of_one(self, owners: Sequence[tuple[bytes, bytes]], at: int, above: bytes) -> list[bytes]:
        """Address records at `at`, for hosts with one address each; `above` encodes the names above their labels."""
        label, address = owners[0]
        pointer = pack("!H", POINTER | at + len(label)) if len(above) > _POINTER_BYTES else above
        middle = {size: pointer + fixed for size, fixed in self._fixed.items()}
        others = [label + middle[len(address)] + address for label, address in owners[1:]]
        return [label + above + self._fixed[len(address)] + address, *others]

    def _of_many(self, owners: Sequence[tuple[bytes, bytes]], at: int, above: bytes) -> list[bytes]:
        """As `_of_one` for hosts with several addresses: A before AAAA, with the host's name once."""
        additional: list[bytes] = []
        for label in dict(owners):
            owner, owner_at = label + above, at
            if len(above) > _POINTER_BYTES:
                above = pack("!H", POINTER | at + len(label))
            own = dict.fromkeys([address for other, address in owners if other == label])
            for address in sorted(own, key=len):
                additional.append(owner + self._fixed[len(address)] + address)
                at += len(additional[-1])
                owner = pack("!H", POINTER | owner_at)
        return additional
