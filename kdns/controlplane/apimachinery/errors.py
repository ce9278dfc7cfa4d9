"""The API's errors: each is a meta/v1 Status that an HTTP server can send as it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.errors import KdnsError

_REASONS = {
    "Duplicate value": "FieldValueDuplicate",
    "Forbidden": "FieldValueForbidden",
    "Internal error": "InternalError",
    "Invalid value": "FieldValueInvalid",
    "Not found": "FieldValueNotFound",
    "Required value": "FieldValueRequired",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
    "Unsupported value": "FieldValueNotSupported",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """One field of an invalid object (meta/v1 StatusCause). `type` begins the message, such as `Invalid value: "x"`.

    `is_immutable`: only an update violates the rule; a new object may have this value.

    `specific_reason` replaces the reason that belongs to the type.
    """

    field: str
    type: str
    detail: str
    is_immutable: bool = False
    specific_reason: str = ""

    @property
    def reason(self) -> str:
        """Machine-readable, such as FieldValueInvalid for `Invalid value: "x"`."""
        return self.specific_reason or _REASONS[self.type.partition(":")[0]]

    @property
    def message(self) -> str:
        return f"{self.type}: {self.detail}" if self.detail else self.type


class StatusError(KdnsError):
    """A refused request: HTTP code, machine-readable reason, message for people and details.

    `is_about_immutable_fields`: changes of immutable fields are the only mistakes of the update.
    """

    is_about_immutable_fields = False

    def __init__(
        self, code: int, reason: str, message: str, details: Json | None = None, *, metadata: Json | None = None
    ) -> None:
        self.code, self.reason, self.message, self.details = code, reason, message, details
        self.metadata: Json = metadata or {}
        super().__init__(message)

    def body(self) -> Json:
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }
        return {key: value for key, value in status.items() if value not in (None, "")}


def _quoted(name: str) -> str:
    """As Go's %q."""
    return json.dumps(name, ensure_ascii=False)


def _details(kind: Kind, name: str, **more: object) -> Json:
    details: Json = {"name": name, "group": kind.group, "kind": kind.plural, **more}
    return {key: value for key, value in details.items() if value}


def not_found(kind: Kind, name: str) -> StatusError:
    return StatusError(404, "NotFound", f"{kind.resource} {_quoted(name)} not found", _details(kind, name))


def already_exists(kind: Kind, name: str, *, is_generated: bool = False, is_terminating: bool = False) -> StatusError:
    """409 AlreadyExists. With a generated name (`is_generated`) the client may try again.

    The message of `is_terminating` says that the object is being deleted, so its name will be free.
    """
    why, details = f"{kind.resource} {_quoted(name)} already exists", _details(kind, name)
    if is_generated:
        why += ", the server was not able to generate a unique name for the object"
        details["retryAfterSeconds"] = 1
    if is_terminating:
        why = f"object is being deleted: {why}"
    return StatusError(409, "AlreadyExists", why, details)


def conflict(kind: Kind, name: str, why: str) -> StatusError:
    message = f"Operation cannot be fulfilled on {kind.resource} {_quoted(name)}: {why}"
    return StatusError(409, "Conflict", message, _details(kind, name))


_CAUSES_MAX = 1000


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> StatusError:
    """422 Invalid: each violated rule is a cause; the message omits duplicates.

    Differs: causes after the first 1000 are only counted. A list of empty items would get a response of a hundred times
    its size.
    """
    about_immutable_fields = all(cause.is_immutable for cause in causes)
    omitted, causes = len(causes) - _CAUSES_MAX, causes[:_CAUSES_MAX]
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    texts += [f"and {omitted} more"] if omitted > 0 else []
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    rows = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    details = {"name": name, "group": kind.group, "kind": kind.kind, "causes": rows}
    details = {key: value for key, value in details.items() if value}
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    error = StatusError(422, "Invalid", f"{qualified} {_quoted(name)} is invalid: {listed}", details)
    error.is_about_immutable_fields = about_immutable_fields
    return error


def gone(message: str, *, continue_token: str = "") -> StatusError:
    """410 Expired: the resourceVersion or continue token is older than the history.

    `continue_token` lets a paged list continue, but no longer from one consistent snapshot.
    """
    return StatusError(410, "Expired", message, metadata={"continue": continue_token} if continue_token else None)


def unprocessable() -> StatusError:
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def forbidden(kind: Kind, name: str, why: str) -> StatusError:
    return StatusError(403, "Forbidden", f"{kind.resource} {_quoted(name)} is forbidden: {why}", _details(kind, name))


def method_not_allowed() -> StatusError:
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def internal(message: str) -> StatusError:
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]})
