"""The three-way merge of `kubectl apply`: last applied manifest, present manifest, stored object.

A field that left the manifest is removed from the object; fields that others set stay. The last applied manifest is the
text of an annotation of the object, so it survives a restart.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any, Final

import msgspec

from kdns.controlplane.apimachinery.annotations import LAST_APPLIED
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.schema import schema
from kdns.controlplane.schema.types import Field
from kdns.controlplane.server.registry import Registry, Request

_PLAIN_MAX: Final = 64 * 1024
"""Longer texts are compressed: the annotations of an object may have 256 KiB, and definitions have up to 1 MiB."""
_TEXT_MAX: Final = 16 * 1024 * 1024
_ZLIB: Final = "zlib:"


def text_of(manifest: Json) -> str:
    """JSON; a long text is compressed, in base64."""
    text = json.dumps(manifest, separators=(",", ":"), sort_keys=True)
    if len(text) <= _PLAIN_MAX:
        return text
    return _ZLIB + base64.b64encode(zlib.compress(text.encode())).decode()


def manifest_of(text: str) -> Json:
    """{} for an invalid text."""
    try:
        if text.startswith(_ZLIB):
            packed = base64.b64decode(text.removeprefix(_ZLIB), validate=True)
            text = zlib.decompressobj().decompress(packed, _TEXT_MAX).decode()
        value = json.loads(text)
    except (ValueError, zlib.error, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def last_applied(obj: Json) -> Json:
    """{} for an object without the annotation."""
    return manifest_of((obj["metadata"].get("annotations") or {}).get(LAST_APPLIED) or "")


def applied(api: Registry, request: Request, obj: Json) -> tuple[Json | None, Json]:
    """Creates the object of a manifest, or merges it into the stored one; then its status, if it has one.

    Returns the object before, None for a new one, and after. A dry run leaves the status out.
    """
    kind = request.served_version or request.kind
    before = api.get(request) if api.store.get(request.kind, request.key) else None
    if before is None:
        live = api.create(request, obj).obj
    else:
        desired = merged(kind, before, obj)
        live = api.update(request, desired).obj if desired != before else before
    if "status" in kind.subresources and not request.dry_run:
        stored = {**(before or {"metadata": {}}), "status": live.get("status")}
        status = merged(kind, stored, obj).get("status", {})
        if status != live.get("status", {}):
            live = {**live, "status": status}
            api.update(msgspec.structs.replace(request, subresource="status"), live)
    return before, live


def merged(kind: Kind, live: Json, modified: Json) -> Json:
    return _objects(schema.object_of(kind), last_applied(live), modified, live)


def _objects(field: Field | None, last: Json, modified: Json, live: Json) -> Json:
    """Merges objects; `field` is None for fields that the schema lacks."""
    result = {name: value for name, value in live.items() if name not in last or name in modified}
    for name, value in modified.items():
        result[name] = _values(field.child(name) if field else None, last.get(name), value, live.get(name))
    return {name: value for name, value in result.items() if value is not None}


def _values(field: Field | None, last: Any, modified: Any, live: Any) -> Any:
    if isinstance(modified, dict) and isinstance(live, dict):
        return _objects(field, last if isinstance(last, dict) else {}, modified, live)
    if isinstance(modified, list) and isinstance(live, list) and field and field.form in {"list", "set"}:
        return _lists(field, last if isinstance(last, list) else [], modified, live)
    return modified


def _lists(field: Field, last: list[Any], modified: list[Any], live: list[Any]) -> list[Any]:
    """The items of the manifest in its order, then those that others have added."""
    last_by, modified_by, live_by = (
        {_identity(field, item): item for item in items} for items in (last, modified, live)
    )
    if len(modified_by) < len(modified):
        return modified  # an item occurs twice: validation refuses it
    result = [_values(field.element, last_by.get(key), item, live_by.get(key)) for key, item in modified_by.items()]
    return result + [item for key, item in live_by.items() if key not in modified_by and key not in last_by]


def _identity(field: Field, item: Any) -> str:
    if field.key_defaults and isinstance(item, dict):
        return json.dumps([item.get(name, default) for name, default in field.key_defaults.items()])
    return json.dumps(item, sort_keys=True)
