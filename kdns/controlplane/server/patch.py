"""The three patches: JSON patch (RFC 6902), merge patch (RFC 7396) and Kubernetes' strategic merge patch.

Functions change the original: pass a copy. They raise StatusError with kube-apiserver's codes.

The strategic rules are those of the Kubernetes documentation, "Update API Objects in Place Using kubectl patch", and of
its design note on strategic merge patch ($patch, $retainKeys, $setElementOrder, $deleteFromPrimitiveList).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import jsonpatch
import msgspec
from jsonpointer import JsonPointerException, resolve_pointer, unescape

from kdns.controlplane.apimachinery.errors import StatusError, bad_request, internal, unprocessable
from kdns.controlplane.apimachinery.field_errors import expected
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.schema.types import Field

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PATCH_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH)


def patch_types(kind: Kind) -> tuple[str, ...]:
    """Custom kinds have no strategic merge patch, since their schemas have no patch strategies."""
    return (JSON_PATCH, MERGE_PATCH) if kind.schema else PATCH_TYPES


_OPERATIONS_MAX = 10_000
_COPIED_BYTES_MAX = 3 * 1024 * 1024
_ORDER = "$setElementOrder"
_DROP = "$deleteFromPrimitiveList"


def patched(original: Json, patch_type: str, patch: Any, schema: Field | None) -> Json:
    if patch_type == JSON_PATCH:
        return json_patched(original, patch)
    if patch is None and patch_type == STRATEGIC_MERGE_PATCH:
        patch = {}  # to Go, null is a map without entries
    if not isinstance(patch, dict):
        raise bad_request(f"the patch: {expected('an object', patch)}")
    if patch_type == MERGE_PATCH:
        return merge_patched(original, patch)
    if patch_type == STRATEGIC_MERGE_PATCH:
        of_type = {name: patch[name] for name in ("apiVersion", "kind") if isinstance(patch.get(name), str)}
        return strategic_patched(original, {**patch, **{name: original[name] for name in of_type}}, schema)
    supported = ", ".join(PATCH_TYPES)
    raise StatusError(
        415, "UnsupportedMediaType", f"patch type {patch_type!r} is not supported; expected one of {supported}"
    )


def json_patched(original: Json, operations: Any) -> Json:
    """Raises 422 if an operation fails, 400 for a malformed patch (RFC 6902)."""
    if operations is None:
        return original  # to Go, null is a list without elements
    if not isinstance(operations, list):
        raise bad_request(f"the patch: {expected('a list of operations', operations)}")
    for index, operation in enumerate(operations):
        if not isinstance(operation, dict):
            raise bad_request(f"the patch: operation {index}: {expected('an object', operation)}")
    if len(operations) > _OPERATIONS_MAX:
        message = f"The allowed maximum operations in a JSON patch is {_OPERATIONS_MAX}, got {len(operations)}"
        raise StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")
    try:
        result = _operated(original, operations)
    except (jsonpatch.JsonPatchException, JsonPointerException, LookupError, TypeError, ValueError) as error:
        raise unprocessable() from error
    if not isinstance(result, dict):
        raise unprocessable()
    return result


def _operated(document: Any, operations: list[Json]) -> Any:
    """Applies all operations; the bytes that copies add are limited."""
    copied_bytes = 0
    for operation in operations:
        source = operation.get("from")
        if operation.get("op") == "copy" and isinstance(source, str):
            copied_bytes += len(msgspec.json.encode(resolve_pointer(document, source)))
            if copied_bytes > _COPIED_BYTES_MAX:
                raise unprocessable()
        document = jsonpatch.JsonPatch([_as_in_go(document, operation)]).apply(document, in_place=True)
    return document


def _as_in_go(document: Any, operation: Json) -> Json:
    """As kube-apiserver's library reads an operation: no value is null; `replace` adds an absent field."""
    name, path = operation.get("op"), operation.get("path")
    if name in {"add", "replace", "test"}:
        operation = {"value": None, **operation}
    if name == "replace" and isinstance(path, str) and path:
        parent, _, field = path.rpartition("/")
        holder = resolve_pointer(document, parent)
        if isinstance(holder, dict) and unescape(field) not in holder:
            return {**operation, "op": "add"}
    return operation


def merge_patched(original: Any, patch: Json) -> Json:
    """RFC 7396 §2: null deletes, objects merge, other values replace."""
    merged: Json = original if isinstance(original, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = merge_patched(merged.get(name), value)
        else:
            merged[name] = value
    return merged


def strategic_patched(original: Json, patch: Json, node: Field | None) -> Json:
    """Lists merge by their key or are replaced; `$` directives apply."""
    directive = patch.get("$patch")
    if directive == "replace":
        return {name: _plain(value) for name, value in patch.items() if name != "$patch" and value is not None}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise _unknown_directive(directive)
    _retain_keys(original, patch)
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        if value is None:
            original.pop(name, None)
        elif name not in original:
            original[name] = _plain(value)
        else:
            original[name] = _merged(original[name], value, _child(node, name), patch.get(f"{_ORDER}/{name}"))
    _list_directives(original, patch, node)
    return original


def _unknown_directive(directive: Any) -> StatusError:
    return StatusError(500, "", f"the patch: $patch: {expected('replace, merge or delete', directive)}")


def _child(node: Field | None, field: str) -> Field | None:
    return node.child(field) if node else None


def _list_directives(original: Json, patch: Json, node: Field | None) -> None:
    """Applies directives that delete scalars from lists, and directives that only reorder a list."""
    for directive, value in patch.items():
        prefix, _, field = directive.partition("/")
        items = original.get(field)
        if prefix not in {_DROP, _ORDER} or not isinstance(items, list):
            continue
        if not isinstance(value, list):
            raise bad_request(f"invalid patch format of {directive}: expected a list")
        if prefix == _DROP:
            dropped = {_hashable(item) for item in value}
            original[field] = [item for item in items if _hashable(item) not in dropped]
        elif field not in patch:
            original[field] = _merged_list(items, [], _child(node, field), value)


def _retain_keys(original: Json, patch: Json) -> None:
    retain = patch.get("$retainKeys")
    if retain is None:
        return
    if not isinstance(retain, list) or not all(isinstance(name, str) for name in retain):
        raise bad_request("invalid patch format of retainKeys: expected a list of field names")
    present = {name for name, value in patch.items() if value is not None and not name.startswith("$")}
    if not present <= set(retain):
        raise bad_request("invalid patch format of retainKeys: it must have every field of the patch")
    for name in set(original) - set(retain):
        del original[name]


def _merged(original: Any, patch: Any, node: Field | None, order: Any) -> Any:
    if isinstance(original, dict) and isinstance(patch, dict) and not (node and "replace" in node.strategy):
        return strategic_patched(original, patch, node)
    if isinstance(original, list) and isinstance(patch, list) and node and "merge" in node.strategy:
        return _merged_list(original, patch, node, order)
    return _plain(patch)


@dataclass(slots=True)
class _Element:
    """An element of a merged list; `position` is its index in the server's list, None for a new one."""

    identity: Hashable
    value: Any
    position: int | None = None


def _merged_list(original: list[Any], patch: list[Any], node: Field | None, order: Any) -> list[Any]:
    key = node.merge_key if node else ""
    if not key and not _scalars(original + patch):
        known = set(map(_hashable, original))
        return original + [item for item in patch if _hashable(item) not in known]
    if any(item["$patch"] == "replace" for item in patch if _has_directive(item)):
        return [_plain(item) for item in patch if not _has_directive(item)]
    elements = [_Element(_identity(item, key), item, position) for position, item in enumerate(original)]
    by_identity: dict[Hashable, list[_Element]] = {}
    for element in elements:
        by_identity.setdefault(element.identity, []).append(element)
    deleted: set[int] = set()
    for item in patch:
        identity = _identity(item, key)
        same = by_identity.get(identity)
        directive = item.get("$patch") if isinstance(item, dict) else None
        if directive == "delete":
            deleted |= set(map(id, by_identity.pop(identity, ())))
        elif directive not in (None, "merge"):
            raise _unknown_directive(directive)
        elif same is None:
            elements.append(_Element(identity, _plain(item)))
            by_identity[identity] = elements[-1:]
        elif key:
            same[0].value = strategic_patched(same[0].value, item, node)
    remaining = [element for element in elements if id(element) not in deleted]
    return _ordered(remaining, [_identity(item, key) for item in (order if isinstance(order, list) else patch)])


def _has_directive(item: Any) -> bool:
    return isinstance(item, dict) and "$patch" in item


def _hashable(value: Any) -> Hashable:
    return msgspec.json.encode(value) if isinstance(value, (dict, list)) else value


def _identity(item: Any, key: str) -> Hashable:
    """The merge key's value, or the scalar itself without a key.

    Raises 500 if it is missing, as kube-apiserver does.
    """
    if not key:
        return _hashable(item)
    if not isinstance(item, dict) or key not in item:
        raise internal(f"map: {msgspec.json.encode(item).decode()} does not contain declared merge key: {key}")
    return _hashable(item[key])


def _scalars(items: list[Any]) -> bool:
    return not any(isinstance(item, (dict, list)) for item in items)


def _ordered(elements: list[_Element], order: list[Hashable]) -> list[Any]:
    """Elements of the patch in its order, the others in the server's; the server's order decides between the two.

    If only one of a pair was on the server, the patch's element comes first.
    """
    positions: dict[Hashable, int] = {}
    for position, identity in enumerate(order):
        positions.setdefault(identity, position)
    of_patch = [element for element in elements if element.identity in positions]
    named = deque(sorted(of_patch, key=lambda element: positions[element.identity]))
    others = deque(element for element in elements if element.identity not in positions)
    result: list[Any] = []
    while named and others:
        mine, theirs = named[0].position, others[0].position
        server_decides = mine is not None and theirs is not None and theirs < mine
        result.append((others if server_decides else named).popleft().value)
    return result + [element.value for element in (*named, *others)]


def _plain(value: Any) -> Any:
    """A copy of a patch's value without nulls and directives."""
    if isinstance(value, dict):
        if value.get("$patch") == "delete":
            return {}
        return {name: _plain(item) for name, item in value.items() if item is not None and not name.startswith("$")}
    if isinstance(value, list):
        return [_plain(item) for item in value if not _is_directive(item)]
    return value


def _is_directive(item: Any) -> bool:
    directive = item.get("$patch") if isinstance(item, dict) else None
    return isinstance(directive, str) and directive in {"delete", "replace"}
