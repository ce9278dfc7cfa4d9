"""PTR records: the names of an address (RFC 1035 §3.5; Kubernetes DNS specification §2.3.3, §2.4.3)."""

from __future__ import annotations

from collections.abc import Iterator

from kdns.cluster.packed import ready_addresses
from kdns.cluster.state import State
from kdns.plugins.sources.kubernetes.options import Options
from kdns.plugins.sources.kubernetes.service import endpoint_label


def ptr_targets(address: bytes, state: State, options: Options) -> tuple[str, ...]:
    """An address's names, sorted: its Services', or else its ready endpoints', one for each Service.

    Differs: of several Services with the address CoreDNS names one; it also names endpoints of hidden or deleted
    Services and namespaces, and cannot answer for a slice without a Service.
    """
    return tuple(sorted(set(service_names(address, state, options)) or set(endpoint_names(address, state, options))))


def is_shown(namespace: str, state: State, options: Options) -> bool:
    """Whether names of this namespace exist."""
    allowed = options.namespaces is None or namespace in options.namespaces
    return allowed and ("", namespace) in state.namespaces


def service_names(address: bytes, state: State, options: Options) -> Iterator[str]:
    """`svc.ns.svc.ZONE` of each Service with this cluster IP."""
    for namespace, name in state.services_by_ip[address]:
        if is_shown(namespace, state, options):
            yield f"{name}.{namespace}.svc.{options.primary_zone.lstrip('.')}"


def endpoint_names(address: bytes, state: State, options: Options) -> Iterator[str]:
    """`host.svc.ns.svc.ZONE` of each ready endpoint at this address."""
    for key in state.slices_by_ip[address] if options.endpoints else ():
        endpoint_slice = state.slices[key]
        service = state.services.get(endpoint_slice.service_key or ("", ""))
        if service is None or service.is_external_name or not is_shown(service.key[0], state, options):
            continue
        for endpoint in ready_addresses(endpoint_slice):
            if endpoint.address == address:
                label = endpoint_label(endpoint, options)
                yield f"{label}.{service.key[1]}.{service.key[0]}.svc.{options.primary_zone.lstrip('.')}"


def is_above_an_address(first: bytes, last: bytes, state: State, options: Options) -> bool:
    """Whether an address in these bounds has a name, so that the reverse name above them is an empty non-terminal."""
    indexes = (state.services_by_ip, state.slices_by_ip)
    return any(ptr_targets(address, state, options) for index in indexes for address in index.between(first, last))
