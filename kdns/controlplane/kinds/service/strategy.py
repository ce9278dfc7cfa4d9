"""The strategies of Services, ServiceCIDRs and IPAddresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.kinds import IP_ADDRESS, SERVICE, SERVICE_CIDR, Json, Kind
from kdns.controlplane.kinds import warnings
from kdns.controlplane.kinds.service import columns
from kdns.controlplane.kinds.service.allocation import ServiceAllocator
from kdns.controlplane.kinds.service.defaults import default_service
from kdns.controlplane.kinds.service.ip_families import fill_on_read
from kdns.controlplane.kinds.service.service_cidr import (
    ip_address_of,
    names_of,
    service_of,
    validate_ip_address,
    validate_service_cidr,
)
from kdns.controlplane.kinds.service.spec import addresses_of
from kdns.controlplane.kinds.service.validation import (
    validate_load_balancer_status,
    validate_service,
    validate_service_update,
)
from kdns.controlplane.kinds.strategy import COMMON, OwnedObjects, Strategy, status
from kdns.controlplane.storage.field_selectors import FieldLabels, fields
from kdns.controlplane.storage.watch import StoredObject


def _validate_new_and_changed_service(new: Json, old: Json | None) -> list[Cause]:
    return validate_service_update(new, old) if old else validate_service(new)


def _validate_service_status(new: Json, old: Json | None) -> list[Cause]:
    return validate_load_balancer_status(new, old or {}, path="status.loadBalancer")


def _restored_address(numbers: ServiceAllocator, version: StoredObject) -> list[str]:
    """Reads the name alone: at start most IPAddresses need not be decoded."""
    numbers.reserve(version.key[1])
    return []


def _restored_range(numbers: ServiceAllocator, version: StoredObject) -> list[str]:
    numbers.service_cidr(version.key[1], version.obj)
    return []


STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    SERVICE: Strategy(
        _validate_new_and_changed_service,
        columns.SERVICES,
        defaults=default_service,
        allocate=ServiceAllocator.allocate,
        first_status=status({"loadBalancer": {}}),
        validate_subresource={"status": _validate_service_status},
        on_read=fill_on_read,
        generation=None,
        field_labels=FieldLabels({**COMMON, **fields("spec.clusterIP", "spec.type")}),
        warnings=warnings.service_warnings,
        allow_create_on_update=True,
        return_deleted_object=True,
        owned_objects=OwnedObjects(IP_ADDRESS, addresses_of, names_of, ip_address_of, service_of),
        deleted=ServiceAllocator.release,
        restored=lambda numbers, version: numbers.restore(version.obj),
    ),
    SERVICE_CIDR: Strategy(
        validate_service_cidr,
        columns.SERVICE_CIDRS,
        first_status=status({}),
        generation=None,
        stored=lambda numbers, obj: numbers.service_cidr(obj["metadata"]["name"], obj),
        warnings=warnings.service_cidr_warnings,
        deleted=lambda numbers, obj: numbers.service_cidr(obj["metadata"]["name"], None),
        restored=_restored_range,
    ),
    IP_ADDRESS: Strategy(
        validate_ip_address,
        columns.IP_ADDRESSES,
        generation=None,
        stored=lambda numbers, obj: numbers.reserve(obj["metadata"]["name"]),
        deleted=lambda numbers, obj: numbers.unreserve(obj["metadata"]["name"]),
        restored=_restored_address,
    ),
}
