"""Functions for the defaults of all kinds."""

from __future__ import annotations

from kdns.controlplane.apimachinery.kinds import Json


def without_nulls(fields: Json | None) -> Json:
    """Returns a copy without the fields that are null: a client that sends null means that the field is not set."""
    return {key: value for key, value in (fields or {}).items() if value is not None}
