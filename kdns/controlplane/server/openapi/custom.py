"""The schemas of custom kinds as OpenAPI schemas: those of their definitions, with the fields of every object."""

from __future__ import annotations

from kdns.controlplane.apimachinery.kinds import Json, Kind


def name_of_kind(kind: Kind) -> str:
    """Returns the name of a custom kind's schema: com.example.v1.Widget."""
    return ".".join((*reversed(kind.group.split(".")), kind.version, kind.kind))


def custom_schema(kind: Kind, common: Json) -> Json:
    """Returns the schema of a custom kind's objects; `common` are the properties that every object has."""
    schema = ((kind.source or {}).get("schema") or {}).get("openAPIV3Schema") or {}
    return {**schema, "properties": dict(sorted({**(schema.get("properties") or {}), **common}.items()))}
