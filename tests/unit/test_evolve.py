"""Values of the hot path, and copies of them with other fields."""

from __future__ import annotations

import pytest

from kdns.values import Value, evolve


class Pair(Value, frozen=True):
    left: int
    right: str = ""


def test_fields_that_are_not_named_stay() -> None:
    pair = Pair(1, "a")
    assert evolve(pair, right="b") == Pair(1, "b")
    assert pair == evolve(pair) == Pair(1, "a")


def test_an_unknown_field() -> None:
    with pytest.raises(TypeError, match="middle"):
        evolve(Pair(1), middle=2)


def test_no_field_is_set() -> None:
    with pytest.raises(AttributeError):
        Pair(1).left = 2  # type: ignore[misc]
