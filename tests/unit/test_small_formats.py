"""Cron schedules, quantities and base64: what is wrong with a text, in the words of Kubernetes' own parsers."""

from __future__ import annotations

import pytest

from kdns.controlplane.cron import schedule_problems
from kdns.controlplane.kinds import SECRET
from kdns.controlplane.quantities import canonical, quantity
from kdns.controlplane.schema_check import type_errors


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("*/5 0-6,22 1 jan-mar mon", ""),
        ("@hourly", ""),
        ("@every 1h30m", ""),
        ("? ? ? ? ?", ""),
        ("5/15 * * * *", ""),
        ("@often", "unrecognized descriptor: @often"),
        ("@every soon", 'failed to parse duration @every soon: time: invalid duration "soon"'),
        ("@every 0", ""),
        ("@every -1.5h.5m", ""),
        ("@every ", 'failed to parse duration @every : time: invalid duration ""'),
        ("@every 5", 'failed to parse duration @every 5: time: missing unit in duration "5"'),
        ("@every 1d", 'failed to parse duration @every 1d: time: unknown unit "d" in duration "1d"'),
        ("@every 1h.", 'failed to parse duration @every 1h.: time: invalid duration "1h."'),
        ("CRON_TZ=Europe/Paris @daily", ""),
        ("TZ=Foo/Bar 0 * * * *", "provided bad location Foo/Bar: unknown time zone Foo/Bar"),
        ("TZ=UTC 0 *", "expected exactly 5 fields, found 2: [0 *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("9-5 * * * *", "beginning of range (9) beyond end of range (5): 9-5"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("*/2/3 * * * *", "too many slashes: */2/3"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
    ],
)
def test_schedules(schedule: str, problem: str) -> None:
    assert schedule_problems(schedule) == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("1.5Gi", 1.5 * 2**30),
        ("100m", 0.1),
        ("2e3", 2000),
        ("-1k", -1000),
        (".5", 0.5),
        ("1Q", None),
        ("", None),
    ],
)
def test_quantities(text: str, number: float | None) -> None:
    found = quantity(text)
    assert (None if found is None else float(found)) == number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (0.5, "500m"),
        ("0", "0"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("-2000m", "-2"),
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("512Mi", "512Mi"),
        ("0.5Ki", "512"),
        ("1000k", "1M"),
        ("2e3", "2e3"),
        ("2000e0", "2e3"),
        ("1E", "1E"),
        ("0.1n", "1n"),
        ("+2", "2"),
        ("much", "much"),
    ],
)
def test_quantities_as_kubernetes_writes_them(value: object, text: str) -> None:
    assert canonical(value) == text


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", ""),
        ("AA==", ""),
        ("AAAA\nAAA=", ""),
        ("!!!", "illegal base64 data at input byte 0"),
        ("AAAA AAAA", "illegal base64 data at input byte 4"),
        ("AAAAAAA", "illegal base64 data at input byte 4"),
    ],
)
def test_base64(value: str, problem: str) -> None:
    assert type_errors(SECRET, {"data": {"a": value}}) == ([problem] if problem else [])
