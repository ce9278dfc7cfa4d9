"""Named tuples that are made of their values, and changed copies of them."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from kdns.named_tuples import quick_replace


@quick_replace
class Pair(NamedTuple):
    left: int
    right: str = ""


def test_what_is_not_changed_stays() -> None:
    pair = Pair(1, "a")
    assert pair._replace(right="b") == Pair(1, "b")
    assert type(pair._replace(left=2, right="b")) is Pair
    assert pair == pair._replace() == Pair(1, "a")


def test_made_of_its_values() -> None:
    assert Pair._make((1, "a")) == Pair(1, "a")
    assert type(Pair._make(iter((1, "a")))) is Pair


def test_a_field_that_there_is_not() -> None:
    with pytest.raises(KeyError, match="middle"):
        Pair(1)._replace(middle=2)  # type: ignore[call-arg]
