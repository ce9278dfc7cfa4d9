"""The strategies of Services, ServiceCIDRs and IPAddresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kdns.controlplane.apimachinery.kinds import IP_ADDRESS, SERVICE, SERVICE_CIDR, Json, Kind
from kdns.controlplane.kinds import warnings
from kdns.controlplane.kinds.service import columns
from kdns.controlplane.kinds.service.allocation import ServiceAllocator
from kdns.controlplane.kinds.service.defaults import default_service, prepare_service
from kdns.controlplane.kinds.service.ip_families import fill_on_read
from kdns.controlplane.kinds.service.service_cidr import (
    ip_address_of,
    names_of,
    service_of,
    validate_ip_address,
    validate_service_cidr,
)
from kdns.controlplane.kinds.service.spec import addresses_of, spec_of
from kdns.controlplane.kinds.service.validation import validate_load_balancer_status, validate_service
from kdns.controlplane.kinds.strategy import (
    COMMON,
    DeleteStrategy,
    Hooks,
    OwnedObjects,
    Strategy,
    SubresourceStrategy,
    on_create,
    with_status,
)
from kdns.controlplane.storage.field_selectors import FieldLabels, fields
from kdns.controlplane.storage.watch import StoredObject


def _addresses(service: Json) -> list[str]:
    return addresses_of(spec_of(service))


def _reserved(numbers: ServiceAllocator, version: StoredObject) -> list[str]:
    """Reads the name alone: at start most IPAddresses need not be decoded."""
    numbers.reserve(version.key[1])
    return []


def _restored_range(numbers: ServiceAllocator, version: StoredObject) -> list[str]:
    numbers.follow_range(None, version.obj)
    return []


STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    SERVICE: Strategy(
        validate_service,
        columns.SERVICES,
        defaults=default_service,
        prepare=prepare_service,
        subresources={"status": SubresourceStrategy(validate_load_balancer_status)},
        generation=None,
        field_labels=FieldLabels({**COMMON, **fields("spec.clusterIP", "spec.type")}),
        warnings=warnings.service_warnings,
        allow_create_on_update=True,
        delete=DeleteStrategy(returns_object=True),
        hooks=Hooks(
            ServiceAllocator.follow,
            lambda numbers, version: numbers.restore(version.obj),
            ServiceAllocator.allocate,
            fill_on_read,
            OwnedObjects(IP_ADDRESS, _addresses, names_of, ip_address_of, service_of),
        ),
    ),
    SERVICE_CIDR: Strategy(
        validate_service_cidr,
        columns.SERVICE_CIDRS,
        prepare=on_create(with_status({})),
        generation=None,
        warnings=warnings.service_cidr_warnings,
        hooks=Hooks(ServiceAllocator.follow_range, _restored_range),
    ),
    IP_ADDRESS: Strategy(
        validate_ip_address,
        columns.IP_ADDRESSES,
        generation=None,
        hooks=Hooks(ServiceAllocator.follow_address, _reserved),
    ),
}
