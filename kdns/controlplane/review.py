"""fieldValidation: what becomes of a write's unknown fields, of fields given twice and of values of the wrong type."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from kdns.controlplane import schema_check
from kdns.controlplane.causes import invalid_value
from kdns.controlplane.kinds import Json, Kind
from kdns.controlplane.status import StatusError, bad_request

Policy: TypeAlias = Literal["Ignore", "Warn", "Strict"]
"""Drop such fields silently, with a warning, or refuse the write."""

_TOLD_MAX = 100


class Review:
    """Checks one request's object; warnings gather in `warnings`.

    `duplicates` is what the decoder of the body has to tell. `patch` is, for a patch, the text that a refusal quotes,
    or "" where it quotes the patched object.
    """

    def __init__(self, kind: Kind, policy: Policy, duplicates: tuple[str, ...] = (), patch: str | None = None) -> None:
        self.kind, self.policy, self.duplicates, self.patch = kind, policy, duplicates, patch
        self.warnings: list[str] = []

    def __call__(self, obj: Json) -> Json:
        """The object without unknown fields; an error for them when strict, and always for values of the wrong type."""
        if wrong := schema_check.type_errors(self.kind, obj):
            raise self._refusal(obj, schema_check.cannot_be_handled(self.kind, wrong[0]).message)
        if self.policy != "Ignore":
            unknown = [f'unknown field "{path}"' for path in schema_check.unknown_fields(self.kind, obj)]
            self._tell(obj, [*self.duplicates, *unknown])
        return schema_check.prune(self.kind, obj)

    def _tell(self, obj: Json, told: list[str]) -> None:
        if told and self.policy == "Strict":
            why = f"strict decoding error: {', '.join(told[:_TOLD_MAX])}"
            raise self._refusal(obj, why if self.patch is not None else _unhandled(self.kind, why))
        self.warnings += told

    def _refusal(self, obj: Json, why: str) -> StatusError:
        if self.patch is None:
            return bad_request(why)
        text = self.patch or msgspec.json.encode(obj).decode()
        cause = invalid_value("patch", text, why)
        row = {"reason": cause.reason, "message": cause.message, "field": "patch"}
        return StatusError(422, "Invalid", f' "" is invalid: patch: {cause.message}', {"causes": [row]})


class ApplyReview(Review):
    """The same for a configuration that is applied: what it must not hold, the merge has refused already."""

    def __init__(self, kind: Kind, policy: Policy, duplicates: tuple[str, ...]) -> None:
        super().__init__(kind, policy, tuple(f"error converting YAML to JSON: {each}" for each in duplicates))

    def _tell(self, obj: Json, told: list[str]) -> None:
        if self.duplicates and self.policy == "Strict":
            raise bad_request(f"error strict decoding YAML: {self.duplicates[0]}")
        super()._tell(obj, told)


def _unhandled(kind: Kind, why: str) -> str:
    return schema_check.cannot_be_handled(kind, why).message
