"""How much a schema makes of the validation of one value, and the limits of that.

Differs: kube-apiserver has no such limits; a few kilobytes of nested `oneOf` would hold this server for minutes.
"""

from __future__ import annotations

from typing import Any, Final

from kdns.controlplane.apimachinery.size import too_large, values_in
from kdns.controlplane.apimachinery.structural import Schema

ALTERNATIVES_MAX: Final = 1000
"""How many schemas may restrict one value; the definitions of Gateway API, cert-manager and Prometheus have up to 8."""

CHECKS_MAX: Final = 500_000
"""How often schemas in junctors may be tried on the values of one object; each try takes about 10 µs."""


def alternatives(schema: Schema) -> int:
    """Returns the largest number of schemas in allOf, anyOf, oneOf and not, at all depths, that one value has."""
    most, schemas = 0, [schema]
    while schemas:
        each = schemas.pop()
        if junctors := _junctors(each):
            most = max(most, sum(map(_size, junctors)))
        schemas += _below(each)
    return most


def check_work(count: int, value: Any) -> None:
    """Raises 413 for a value with too many values for a schema of so many alternatives."""
    if count * values_in(value) > CHECKS_MAX:
        raise too_large(f"{CHECKS_MAX // count} fields and items, since the schema has {count} alternatives")


def _size(schema: Schema) -> int:
    return 1 + sum(map(_size, (*_junctors(schema), *_below(schema))))


def _junctors(schema: Schema) -> tuple[Schema, ...]:
    found = schema.all_of + schema.any_of + schema.one_of
    return (*found, schema.negated) if schema.negated else found


def _below(schema: Schema) -> list[Schema]:
    """Returns the schemas of the fields and items."""
    found = list(schema.properties.values())
    found += [each for each in (schema.additional_properties, schema.items) if isinstance(each, Schema)]
    return found
