"""The types of kinds: those of the release, or of a CustomResourceDefinition."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

from kdns.controlplane.apimachinery.kinds import Kind
from kdns.controlplane.schema.custom.types import custom_type
from kdns.controlplane.schema.types import Field, TypeName, TypeRef, package_named

KUBERNETES_VERSION: Final = "1.36.0"
"""The API and the data are those of this release."""


def type_of(kind: Kind) -> TypeRef:
    """Raises KeyError if the release lacks the kind."""
    if kind.schema:
        return custom_type(kind.schema)
    type_name = type_at(kind.api_version, kind.kind)
    if type_name is None:
        raise KeyError(f"the schema of Kubernetes {KUBERNETES_VERSION} has no {kind.kind} in {kind.api_version}")
    return type_name


@cache
def type_at(api_version: str, kind: str) -> TypeName | None:
    """None if the release lacks the kind."""
    group, _, version = api_version.rpartition("/")
    try:
        package = package_named(f"{group.split('.')[0] or 'core'}.{version}")
    except (OSError, ValueError):
        return None
    if package.api_version != api_version or kind not in package.blocks:
        return None
    return f"{package.name}.{kind}"


def object_of(kind: Kind) -> Field:
    return _object(type_of(kind))


@lru_cache(maxsize=1024)
def _object(type_ref: TypeRef) -> Field:
    return Field("", type_ref)


def field_at(kind: Kind, path: str) -> Field:
    """Leads through lists and maps: `spec.ports.nodePort`. Raises KeyError if the field is absent."""
    field = object_of(kind)
    for name in path.split("."):
        child = field.child(name)
        if child is None:
            raise KeyError(name)
        field = child
    return field
