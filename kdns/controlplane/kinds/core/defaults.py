"""The defaults of Secrets (core/v1 defaults.go)."""

from __future__ import annotations

from base64 import b64encode

from kdns.controlplane.apimachinery.kinds import Json


def default_secret(obj: Json) -> Json:
    """Sets type Opaque, merges stringData into data, and removes whitespace of data."""
    text = {key: b64encode((value or "").encode()).decode() for key, value in (obj.get("stringData") or {}).items()}
    given = {key: "".join((value or "").split()) for key, value in (obj.get("data") or {}).items()}
    rest = {key: value for key, value in obj.items() if key not in {"stringData", "data", "type"}}
    data = {**given, **text}
    return {**rest, **({"data": data} if data else {}), "type": obj.get("type") or "Opaque"}
