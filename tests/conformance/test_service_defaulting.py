"""Recorded defaults of Services."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kdns.controlplane.defaults import with_defaults
from kdns.controlplane.kinds import SERVICE

FILE = Path(__file__).parents[2].parent / "shared" / "conformance" / "service-defaulting-cases.json"


def test_recorded_defaults() -> None:
    if not FILE.exists():
        pytest.skip(f"the recorded cases are not here: {FILE}")
    cases = json.loads(FILE.read_text())["cases"]
    assert len(cases) > 20
    print(f"{FILE.name}: {len(cases)} to pass, no known deviations")
    for case in cases:
        made = with_defaults(SERVICE, case["in"])
        wanted = case["expect"]
        assert made["spec"] == wanted["spec"], case["name"]
        assert made.get("status") == wanted.get("status"), case["name"]
