"""Durations as Go reads and writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdns.durations import format_duration, parse_duration


@given(st.integers(min_value=-(10**17), max_value=10**17))
def test_durations_come_back(nanoseconds: int) -> None:
    duration = nanoseconds / 1e9
    assert parse_duration(format_duration(duration)) == pytest.approx(duration, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", "0s"), ("24h", "24h0m0s"), ("90s", "1m30s"), ("1.5h", "1h30m0s"), ("250ms", "250ms"),
        ("-1500us", "-1.5ms"), (".5s", "500ms"), ("7ns", "7ns"),
    ],
)  # fmt: skip
def test_durations_as_go_writes_them(text: str, expected: str) -> None:
    assert format_duration(parse_duration(text)) == expected
