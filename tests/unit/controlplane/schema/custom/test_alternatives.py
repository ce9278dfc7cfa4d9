"""How many schemas restrict one value, and what is refused for that."""

from __future__ import annotations

import pytest
from widgets import SCHEMA

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.apimachinery.structural import parsed
from kdns.controlplane.schema.custom.alternatives import ALTERNATIVES_MAX, CHECKS_MAX, alternatives, check_work
from kdns.controlplane.schema.custom.rules import violations

STRING: Json = {"type": "string"}


def nested(depth: int, width: int) -> Json:
    found: Json = {"pattern": "a"}
    for _ in range(depth):
        found = {"oneOf": [found] * width}
    return found


@pytest.mark.parametrize(
    ("schema", "count"),
    [
        (SCHEMA, 0),
        (nested(1, 3), 3),
        (nested(2, 3), 12),
        ({"not": nested(1, 2)}, 3),
        ({"allOf": [{"properties": {"a": {"anyOf": [{}, {}]}}, "items": {}}]}, 5),
        ({"type": "object", "properties": {"a": STRING | nested(1, 2), "b": STRING | nested(1, 4)}}, 4),
        ({"type": "array", "items": STRING | nested(1, 2)}, 2),
        ({"type": "object", "additionalProperties": STRING | nested(1, 2)}, 2),
    ],
)
def test_alternatives(schema: Json, count: int) -> None:
    assert alternatives(parsed(schema)) == count


def test_definitions_with_too_many_are_refused() -> None:
    schema: Json = {"type": "object", "properties": {"a": STRING | nested(5, 8)}}
    (cause,) = violations(schema, "s")
    assert (cause.field, cause.message) == ("s", f"Too many: 37448: must have at most {ALTERNATIVES_MAX} items")


def test_objects_with_too_many_values_for_them_are_refused() -> None:
    check_work(0, ["a"] * CHECKS_MAX)
    check_work(100, ["a"] * 4999)
    with pytest.raises(StatusError, match="limit is 5000 fields and items, since the schema has 100 alternatives"):
        check_work(100, ["a"] * 5000)
