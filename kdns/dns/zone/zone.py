"""A zone as a value: the tree of its names, each with its RRsets (RFC 1034 §4.2.1).

A name that only has names below it is an empty non-terminal, and exists (RFC 4592 §2.2.2). Signatures are with the
RRsets that they sign. NSEC3 records are not in the tree: queries for their owners find nothing (RFC 5155 §7.2.8).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha1
from itertools import chain
from typing import Final

from kdns.dns.names import Labels, encode_name, folded, is_below, labels_of, text_of
from kdns.dns.rdata import type_covered, wire_of
from kdns.dns.rrset import Rdata, RRset, Soa
from kdns.dns.types import CNAME, DNAME, IN, NSEC, NSEC3, RRSIG, SOA

MAX_RECORDS: Final = 4_000_000
MAX_ITERATIONS: Final = 100
"""The most hash iterations of NSEC3: more are expensive and give no protection (RFC 9276 §3.1)."""
BESIDE_CNAME: Final = frozenset((CNAME, RRSIG, NSEC, 25))
"""Types that a name with a CNAME may have (RFC 4034 §3, RFC 4035 §2.5); 25 is KEY."""
SHA1: Final = 1
_BASE32: Final = b"0123456789abcdefghijklmnopqrstuv"


class ZoneError(ValueError):
    """Invalid records of a zone: the reasons, which name the owners."""

    def __init__(self, *reasons: str) -> None:
        self.reasons = reasons
        super().__init__("; ".join(reasons))


@dataclass(slots=True, eq=False)
class ZoneNode:
    """One name: RRsets by type, signatures by the type that they cover."""

    owner: str
    rrsets: dict[int, RRset] = field(default_factory=dict)
    signatures: dict[int, RRset] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Nsec3Chain:
    """The NSEC3 records in the order of their hashes, and how names are hashed (RFC 5155 §5)."""

    salt: bytes
    iterations: int
    hashes: tuple[bytes, ...]
    nodes: tuple[ZoneNode, ...]

    def match(self, labels: Labels) -> ZoneNode | None:
        digest = self.hash(labels)
        index = bisect_right(self.hashes, digest) - 1
        return self.nodes[index] if index >= 0 and self.hashes[index] == digest else None

    def cover(self, labels: Labels) -> ZoneNode | None:
        """The last record also covers hashes below the first."""
        return self.nodes[bisect_right(self.hashes, self.hash(labels)) - 1] if self.nodes else None

    def hash(self, labels: Labels) -> bytes:
        digest = sha1(encode_name(labels) + self.salt, usedforsecurity=False).digest()
        for _ in range(self.iterations):
            digest = sha1(digest + self.salt, usedforsecurity=False).digest()
        number = int.from_bytes(digest, "big")
        return bytes(_BASE32[number >> shift & 31] for shift in range(155, -1, -5))


class Zone:
    """The records of one zone, immutable; `labels` are folded, `ignored` are owners outside of the zone."""

    def __init__(self, name: str, rrsets: Iterable[RRset]) -> None:
        """Raises ZoneError for no SOA at the apex, or two, and for a CNAME or DNAME that is not alone."""
        self.name = folded(name)
        self.labels: Labels = labels_of(self.name)
        self.nodes: dict[Labels, ZoneNode] = {self.labels: ZoneNode(self.name)}
        self.ignored: set[str] = set()
        hashed: dict[bytes, ZoneNode] = {}
        for group in _groups(rrsets):
            self._add(*group, hashed)
        self._check()
        self.apex = self.nodes[self.labels]
        self._close()
        chained = sorted((tuple(reversed(labels)), node) for labels, node in self.nodes.items() if NSEC in node.rrsets)
        self._nsec_names = [name for name, _ in chained]
        self._nsec_nodes = [node for _, node in chained]
        self.nsec3 = _nsec3_chain(hashed)

    @property
    def soa(self) -> RRset:
        return self.apex.rrsets[SOA]

    @property
    def soa_rdata(self) -> Soa:
        (rdata,) = self.soa.rdata
        assert isinstance(rdata, Soa)  # noqa: S101 - `_check` has seen to it
        return rdata

    @property
    def serial(self) -> int:
        return self.soa_rdata.serial

    @property
    def negative_soa(self) -> RRset:
        """The SOA of negative answers; its TTL is the least of its own and MINIMUM (RFC 2308 §3)."""
        return replace(self.soa, ttl=min(self.soa.ttl, self.soa_rdata.minimum))

    def nsec_match(self, labels: Labels) -> ZoneNode | None:
        node = self.nodes.get(labels)
        return node if node and NSEC in node.rrsets else None

    def nsec_cover(self, labels: Labels) -> ZoneNode | None:
        index = bisect_right(self._nsec_names, tuple(reversed(labels))) - 1
        return self._nsec_nodes[index] if self._nsec_nodes else None

    def parts(self) -> list[object]:
        """The large values of a zone, so that a caller can free them piece by piece."""
        hashed = self.nsec3.nodes if self.nsec3 else ()
        return [*self.nodes, *self.nodes.values(), *self._nsec_names, *hashed]

    def records(self) -> Iterator[RRset]:
        """Yields all RRsets but the SOA, those of the apex first."""
        for node in chain(self.nodes.values(), self.nsec3.nodes if self.nsec3 else ()):
            for rtype, rrset in node.rrsets.items():
                if rtype != SOA or node is not self.apex:
                    yield rrset
            yield from node.signatures.values()

    def _add(self, owner: str, rtype: int, covered: int, rrset: RRset, hashed: dict[bytes, ZoneNode]) -> None:
        labels = labels_of(owner)
        if not is_below(labels, self.labels) or rrset.rclass != IN:
            self.ignored.add(owner)
            return
        if NSEC3 in {rtype, covered}:
            node = hashed.setdefault(labels[0], ZoneNode(owner))
        else:
            node = self.nodes.get(labels) or self.nodes.setdefault(labels, ZoneNode(owner))
        if covered:
            node.signatures[covered] = rrset
        else:
            node.rrsets[rtype] = rrset

    def _check(self) -> None:
        soa = self.nodes[self.labels].rrsets.get(SOA)
        if soa is None:
            raise ZoneError(f"the zone {self.name} has no SOA record at its apex")
        wrong = [f"the zone {self.name} has more than one SOA record"] if len(soa.rdata) > 1 else []
        for node in self.nodes.values():
            cname = node.rrsets.get(CNAME)
            if cname and len(node.rrsets) > 1 and not node.rrsets.keys() <= BESIDE_CNAME:
                wrong.append(f"{node.owner} has a CNAME and other records beside it (RFC 1034 §3.6.2)")
            wrong += [
                f"{node.owner} has more than one {name}"
                for rtype, name in ((CNAME, "CNAME"), (DNAME, "DNAME"))
                if rtype in node.rrsets and len(node.rrsets[rtype].rdata) > 1
            ]
        if wrong:
            raise ZoneError(*wrong)

    def _close(self) -> None:
        depth = len(self.labels)
        for labels in list(self.nodes):
            above = labels[1:]
            while len(above) > depth and above not in self.nodes:
                self.nodes[above] = ZoneNode(text_of(above))
                above = above[1:]


def _groups(rrsets: Iterable[RRset]) -> Iterator[tuple[str, int, int, RRset]]:
    """Owner, type, covered type and RRset with the lowest TTL, each record once (RFC 2181 §5)."""
    groups: dict[tuple[str, int, int, int], tuple[int, dict[Rdata, None]]] = {}
    for rrset in rrsets:
        owner, rtype = folded(rrset.owner), rrset.rtype
        for rdata in rrset.rdata:
            key = (owner, rtype, type_covered(rtype, rdata), rrset.rclass)
            ttl, known = groups.get(key) or (rrset.ttl, {})
            known[rdata] = None
            groups[key] = min(ttl, rrset.ttl), known
    for (owner, rtype, covered, rclass), (ttl, rdata_of_all) in groups.items():
        yield owner, rtype, covered, RRset(owner, rtype, ttl, tuple(rdata_of_all), rclass)


def _nsec3_chain(hashed: dict[bytes, ZoneNode]) -> Nsec3Chain | None:
    """Raises ZoneError for records that are not hashed alike, or too often."""
    rows = sorted((label.lower(), node) for label, node in hashed.items() if NSEC3 in node.rrsets)
    if not rows:
        return None
    first = wire_of(rows[0][1].rrsets[NSEC3].rdata[0])
    iterations = int.from_bytes(first[2:4], "big")
    if first[0] != SHA1 or iterations > MAX_ITERATIONS:
        raise ZoneError(
            f"{rows[0][1].owner}: NSEC3 is supported with SHA-1 and at most {MAX_ITERATIONS} iterations, "
            f"not with algorithm {first[0]} and {iterations} (RFC 9276)"
        )
    salt = first[5 : 5 + first[4]]
    return Nsec3Chain(salt, iterations, tuple(label for label, _ in rows), tuple(node for _, node in rows))
