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
from kdns.controlplane.schema.check import Pairs

Policy: TypeAlias = Literal["Ignore", "Warn", "Strict"]
"""Drop unknown and duplicate fields silently, drop them with a warning, or refuse the write."""

ERRORS_MAX = 100
"""Errors in one message, and duplicate fields of one body, as in kube-apiserver."""


class FieldValidator:
    """Validates the fields of one request's object and collects `warnings`.

    `duplicates` are the errors that the decoder of the body reports; `pairs` is a body whose duplicates are reported
    among the unknown fields. `patch` is, for a patch, the text that an error quotes, or "" if the error quotes the
    patched object.
    """

    def __init__(
        self,
        kind: Kind,
        policy: Policy,
        duplicates: tuple[str, ...] = (),
        patch: str | None = None,
        pairs: Pairs | None = None,
    ) -> None:
        self.kind, self.policy, self.duplicates, self.patch, self.pairs = kind, policy, duplicates, patch, pairs
        self.warnings: list[str] = []

    def __call__(self, obj: Json) -> Json:
        """Returns the object without unknown fields. Raises an error for values of the wrong type, and for such fields
        if strict.

        Without a `kind` or an `apiVersion` it is of this kind.
        """
        if why := check.another_type(self.kind, obj):
            raise self._refusal(obj, why)
        if wrong := next(check.type_mismatches(self.kind, obj), None):
            raise self._refusal(obj, wrong.converted if self.patch else _unhandled(self.kind, wrong.text))
        if self.policy != "Ignore":
            strict = check.strict_errors(self.kind, obj if self.pairs is None else self.pairs)
            self._report(obj, strict if self.pairs is not None else [*self.duplicates, *strict])
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


def with_duplicates(text: bytes) -> Pairs | None:
    """Returns a valid JSON object with the fields that occur twice; None if no field does."""
    has_duplicates = False

    def decoded(pairs: list[tuple[str, Any]]) -> Pairs:
        nonlocal has_duplicates
        has_duplicates = has_duplicates or len({name for name, _ in pairs}) != len(pairs)
        return Pairs(pairs)

    tree = json.loads(text, object_pairs_hook=decoded)
    return tree if has_duplicates else None


def duplicate_fields(tree: Any) -> list[str]:
    """Returns paths such as `spec.ports[0].name` of fields that occur twice in a JSON text; each path once, at most
    100.

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
