"""IPAddress objects: one for each cluster IP, named by it; hand-made ones reserve an address."""

from __future__ import annotations

from kdns.cluster.objects import Key
from kdns.controlplane.formats import parse_ip
from kdns.controlplane.kinds import IP_ADDRESS, Json
from kdns.controlplane.services import address_family, addresses_of

FAMILY_LABEL = "ipaddress.kubernetes.io/ip-family"
MANAGED_BY = "ipaddress.kubernetes.io/managed-by"
ALLOCATOR = "ipallocator.k8s.io"


def ip_address_of(service: Key, name: str) -> Json:
    """The object that says that a Service has this address."""
    labels = {FAMILY_LABEL: address_family(name), MANAGED_BY: ALLOCATOR}
    parent = {"resource": "services", "namespace": service[0], "name": service[1]}
    return {
        "kind": IP_ADDRESS.kind,
        "apiVersion": IP_ADDRESS.api_version,
        "metadata": {"name": name, "labels": labels},
        "spec": {"parentRef": parent},
    }


def names_of(service: Json | None) -> set[str]:
    """The canonical spellings of the addresses that a Service has."""
    parsed = [parse_ip(address) for address in addresses_of(service)] if service else ()
    return {str(address) for address in parsed if address}


def is_managed(obj: Json) -> bool:
    """Whether the allocator made it."""
    return bool((obj["metadata"].get("labels") or {}).get(MANAGED_BY) == ALLOCATOR)


def parent_of(obj: Json) -> Json:
    """spec.parentRef, never None."""
    parent: Json = (obj.get("spec") or {}).get("parentRef") or {}
    return parent


def service_of(obj: Json) -> Key | None:
    """The Service that has the address; None where the parent is something else."""
    parent = parent_of(obj)
    if parent.get("group") or parent.get("resource") != "services":
        return None
    return parent.get("namespace") or "", parent.get("name") or ""
