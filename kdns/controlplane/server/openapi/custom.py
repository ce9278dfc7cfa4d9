"""The schemas of custom kinds as OpenAPI schema objects: those of their definitions, with the fields of every object.

v2 has no alternatives and no nullable values: they are left out, and the value of such a field may be anything.
"""

from __future__ import annotations

from typing import Any, Final

from kdns.controlplane.meta.kinds import Json, Kind

_V2_WORDS: Final = frozenset(
    {"additionalProperties", "default", "description", "enum", "format", "items", "properties", "required", "type"}
)


def name_of_kind(kind: Kind) -> str:
    """Returns the name of a custom kind's schema: com.example.v1.Widget."""
    return ".".join((*reversed(kind.group.split(".")), kind.version, kind.kind))


def custom_schema(kind: Kind, common: Json, *, is_v2: bool) -> Json:
    """Returns the schema of a custom kind's objects; `common` are the properties that every object has."""
    source = ((kind.source or {}).get("schema") or {}).get("openAPIV3Schema") or {}
    schema = _v2(source) if is_v2 else source
    if source.get("x-kubernetes-preserve-unknown-fields") and is_v2:
        return {"type": "object"}
    return {**schema, "properties": dict(sorted({**(schema.get("properties") or {}), **common}.items()))}


def _v2(schema: Any) -> Any:
    """Returns a schema without what v2 lacks."""
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string"):
        kept = ("description", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string")
        return {word: schema[word] for word in kept if word in schema}
    if schema.get("nullable"):
        return {"description": schema["description"]} if "description" in schema else {}
    shown = {word: each for word, each in schema.items() if word in _V2_WORDS or word.startswith("x-kubernetes-")}
    shown.pop("x-kubernetes-validations", None)
    for word in ("additionalProperties", "items"):
        if word in shown:
            shown[word] = _v2(shown[word])
    if isinstance(shown.get("additionalProperties"), bool):
        del shown["additionalProperties"]
    if "properties" in shown:
        shown["properties"] = {name: _v2(each) for name, each in shown["properties"].items()}
    return shown
