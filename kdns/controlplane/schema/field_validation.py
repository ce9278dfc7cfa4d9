"""Field validation of writes: unknown fields, duplicate fields and values of the wrong type (`fieldValidation=`).

Kubernetes documentation, "Field validation".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from kdns.controlplane.meta.errors import StatusError, bad_request
from kdns.controlplane.meta.field_errors import invalid_value
from kdns.controlplane.meta.kinds import Json, Kind
from kdns.controlplane.schema import check

Policy: TypeAlias = Literal["Ignore", "Warn", "Strict"]
"""Drop unknown and duplicate fields silently, drop them with a warning, or refuse the write."""

ERRORS_MAX = 100
"""Errors in one message, and duplicate fields of one body, as in kube-apiserver."""


class FieldValidator:
    """Validates the fields of one request's object and collects `warnings`.

    `duplicates` are the errors that the decoder of the body reports. `patch` is, for a patch, the text that an error
    quotes, or "" if the error quotes the patched object.
    """

    def __init__(self, kind: Kind, policy: Policy, duplicates: tuple[str, ...] = (), patch: str | None = None) -> None:
        self.kind, self.policy, self.duplicates, self.patch = kind, policy, duplicates, patch
        self.warnings: list[str] = []

    def __call__(self, obj: Json) -> Json:
        """The object without unknown fields. An error for values of the wrong type, and for such fields if strict.

        Without a `kind` or an `apiVersion` it is of this kind.
        """
        if why := check.another_type(self.kind, obj):
            raise self._refusal(obj, why)
        if errors := check.type_errors(self.kind, obj):
            raise self._refusal(obj, _unhandled(self.kind, errors[0]))
        if self.policy != "Ignore":
            unknown = [f'unknown field "{path}"' for path in check.unknown_fields(self.kind, obj)]
            self._report(obj, [*self.duplicates, *unknown])
        return check.prune(self.kind, obj)

    def _report(self, obj: Json, errors: list[str]) -> None:
        if errors and self.policy == "Strict":
            message = f"strict decoding error: {', '.join(errors[:ERRORS_MAX])}"
            raise self._refusal(obj, message if self.patch is not None else _unhandled(self.kind, message))
        self.warnings += errors

    def _refusal(self, obj: Json, message: str) -> StatusError:
        if self.patch is None:
            return bad_request(message)
        text = self.patch or msgspec.json.encode(obj).decode()
        cause = invalid_value("patch", text, message)
        row = {"reason": cause.reason, "message": cause.message, "field": "patch"}
        return StatusError(422, "Invalid", f' "" is invalid: patch: {cause.message}', {"causes": [row]})


class ApplyFieldValidator(FieldValidator):
    """Validates an applied configuration. Unknown fields have been refused before, by the merge."""

    def __init__(self, kind: Kind, policy: Policy, duplicates: tuple[str, ...]) -> None:
        super().__init__(kind, policy, tuple(f"error converting YAML to JSON: {each}" for each in duplicates))

    def _report(self, obj: Json, errors: list[str]) -> None:
        if self.duplicates and self.policy == "Strict":
            raise bad_request(f"error strict decoding YAML: {self.duplicates[0]}")
        super()._report(obj, errors)


def _unhandled(kind: Kind, reason: str) -> str:
    return check.cannot_be_handled(kind, reason).message


def duplicate_fields(text: bytes) -> list[str]:
    """Paths such as `spec.ports[0].name` of fields that a valid JSON text holds twice; each path once, at most 100.

    A decoder keeps the last value of such a field.
    """
    has_duplicates = False

    def decoded(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal has_duplicates
        obj = dict(pairs)
        has_duplicates = has_duplicates or len(obj) != len(pairs)
        return obj

    json.loads(text, object_pairs_hook=decoded)
    if not has_duplicates:
        return []
    paths = dict.fromkeys(_duplicates(json.loads(text, object_pairs_hook=_Pairs), ""))
    return [path.removeprefix(".") for path in paths][:ERRORS_MAX]


class _Pairs(list[tuple[str, Any]]):
    """The names and values of an object in the order of the text, duplicates included."""


def _duplicates(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Pairs):
        names: set[str] = set()
        for name, inner in value:
            if name in names:
                yield f"{path}.{name}"
            names.add(name)
            yield from _duplicates(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _duplicates(inner, f"{path}[{index}]")
