"""The types of kinds: those of the release, or of a CustomResourceDefinition."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

from kdns.controlplane.apimachinery.kinds import Kind
from kdns.controlplane.schema.custom.types import custom_type
from kdns.controlplane.schema.types import Field, TypeName, TypeRef, package_named

KUBERNETES_VERSION: Final = "1.36.0"
"""The release that the API follows and that the data are of."""


def type_of(kind: Kind) -> TypeRef:
    """Returns the type that objects of a kind have. Raises KeyError if the release lacks it."""
    if kind.schema:
        return custom_type(kind.schema)
    type_name = type_at(kind.api_version, kind.kind)
    if type_name is None:
        raise KeyError(f"the schema of Kubernetes {KUBERNETES_VERSION} has no {kind.kind} in {kind.api_version}")
    return type_name


@cache
def type_at(api_version: str, kind: str) -> TypeName | None:
    """Returns the type of objects with this apiVersion and kind; None if the release lacks it."""
    group, _, version = api_version.rpartition("/")
    try:
        package = package_named(f"{group.split('.')[0] or 'core'}.{version}")
    except (OSError, ValueError):
        return None
    if package.api_version != api_version or kind not in package.blocks:
        return None
    return f"{package.name}.{kind}"


def object_of(kind: Kind) -> Field:
    return _place(type_of(kind))


@lru_cache(maxsize=1024)
def _place(type_ref: TypeRef) -> Field:
    return Field("", type_ref)


def field_at(kind: Kind, path: str) -> Field:
    """Returns the field at a path such as `spec.ports.nodePort`, through lists and maps.

    Raises KeyError if it is absent.
    """
    place = object_of(kind)
    for name in path.split("."):
        found = place.child(name)
        if found is None:
            raise KeyError(name)
        place = found
    return place
