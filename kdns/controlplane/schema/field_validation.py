"""Field validation of writes: unknown fields, duplicate fields and values of the wrong type (`fieldValidation=`).

Kubernetes documentation, "Field validation".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal, TypeAlias

import msgspec

from kdns.controlplane.apimachinery.errors import StatusError, bad_request
from kdns.controlplane.apimachinery.field_errors import invalid_value
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.schema import check
from kdns.controlplane.schema.check import Pairs
from kdns.controlplane.schema.serialization import Serialized, matching, serialized, typed

Policy: TypeAlias = Literal["Ignore", "Warn", "Strict"]
"""Drop unknown and duplicate fields silently, drop them with a warning, or refuse the write."""

ERRORS_MAX = 100
"""Per message, and duplicate fields per body, as in kube-apiserver."""


class FieldValidator:
    """Validates the fields of one request's object and collects `warnings`.

    `duplicates` are errors of the body's decoder; duplicates in `pairs`, the body itself, are reported among the
    unknown fields. The errors of a patch (`is_patch`) quote the patched object.
    """

    def __init__(
        self,
        kind: Kind,
        policy: Policy,
        duplicates: tuple[str, ...] = (),
        pairs: Pairs | None = None,
        *,
        is_patch: bool = False,
    ) -> None:
        self.kind, self.policy, self.duplicates, self.pairs, self.is_patch = kind, policy, duplicates, pairs, is_patch
        self.warnings: list[str] = []

    def __call__(self, obj: Json) -> Json:
        """Returns the object as Go serializes it. Raises an error for values of the wrong type, and for unknown and
        duplicate fields if strict.

        Without a `kind` or an `apiVersion` it is of this kind.
        """
        if why := check.another_type(self.kind, obj):
            raise self._refusal(obj, why) if self.is_patch else bad_request(why)
        if self.pairs is None and not self.duplicates and (exact := matching(self.kind, typed(self.kind, obj))):
            return Serialized(exact)
        strict = {} if self.pairs is not None else dict.fromkeys(self.duplicates)
        for path, why in check.mistakes(self.kind, obj if self.pairs is None else self.pairs):
            if why not in {check.UNKNOWN, check.DUPLICATE}:
                raise self._refusal(obj, f"{path}: {why}")
            strict[f'{why} "{path}"'] = None
        if strict and self.policy == "Strict":
            raise self._refusal(obj, f"strict decoding error: {', '.join(islice(strict, ERRORS_MAX))}")
        self.warnings += strict if self.policy == "Warn" else ()
        return serialized(self.kind, obj)

    def _refusal(self, obj: Json, message: str) -> StatusError:
        if not self.is_patch:
            return check.cannot_be_handled(self.kind, message)
        cause = invalid_value("patch", msgspec.json.encode(obj).decode(), message)
        row = {"reason": cause.reason, "message": cause.message, "field": "patch"}
        return StatusError(422, "Invalid", f' "" is invalid: patch: {cause.message}', {"causes": [row]})


def with_duplicates(text: bytes) -> Pairs | None:
    """The tree of a valid JSON object; None if no field occurs twice in it."""
    has_duplicates = False

    def decoded(pairs: list[tuple[str, Any]]) -> Pairs:
        nonlocal has_duplicates
        has_duplicates = has_duplicates or len({name for name, _ in pairs}) != len(pairs)
        return Pairs(pairs)

    tree = json.loads(text, object_pairs_hook=decoded)
    return tree if has_duplicates else None


def duplicate_fields(tree: Any) -> list[str]:
    """Paths such as `spec.ports[0].name` of fields that occur twice in a JSON text, deduplicated, at most 100.

    A decoder keeps the last value of such a field.
    """
    paths = dict.fromkeys(_duplicates(tree, ""))
    return [path.removeprefix(".") for path in paths][:ERRORS_MAX]


def _duplicates(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Pairs):
        names: set[str] = set()
        for name, inner in value:
            if name in names:
                yield f"{path}.{name}"
            names.add(name)
            yield from _duplicates(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _duplicates(inner, f"{path}[{index}]")
