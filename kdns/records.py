"""The DNS records of a Service, as values and as lines of a zone file: no server, no input and output."""

from __future__ import annotations

from collections.abc import Iterable

from kdns.cluster.objects import EndpointSlice, Service
from kdns.dns.rrset import RRset
from kdns.dns.types import class_name, type_name
from kdns.dns.zonefile import rdata_text
from kdns.plugins.sources.kubernetes import transfer
from kdns.plugins.sources.kubernetes.options import Options

__all__ = ["RRset", "as_zone_file", "service_records"]


def service_records(
    service: Service, slices: Iterable[EndpointSlice] = (), *, domain: str = "cluster.local", ttl_s: int = 5
) -> tuple[RRset, ...]:
    """Returns the records of a Service and of its ready endpoints, without those of reverse zones.

    Kubernetes DNS specification 1.1.0 §2.3 to §2.5. `slices` are the EndpointSlices of this Service; a headless
    Service without a ready endpoint has no records. The rdata of A and AAAA records is the packed address.
    """
    zone = f"{domain.rstrip('.').lower()}."
    return tuple(transfer.service_records(service, tuple(slices), zone, Options(zones=(zone,), ttl_s=ttl_s)))


def as_zone_file(records: Iterable[RRset]) -> str:
    """Returns a line for each record (RFC 1035 §5)."""
    return "".join(
        f"{rrset.owner} {rrset.ttl} {class_name(rrset.rclass)} {type_name(rrset.rtype)} "
        f"{rdata_text(rrset.rtype, rdata, rrset.rclass)}\n"
        for rrset in records
        for rdata in rrset.rdata
    )
