"""How many processes answer at an address: as configured, and not more than processors."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kdns.corefile.parse import parse
from kdns.dnsserver.config import ListenAddress
from kdns.dnsserver.io import listeners
from kdns.dnsserver.io.listeners import number_of_processes
from kdns.dnsserver.listener_options import DEFAULTS, ListenerOptions
from kdns.plugins.directives import configure
from kdns.runtime import process
from kdns.runtime.process import processors

linux_only = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="workers need Linux")


@linux_only
@pytest.mark.parametrize(
    ("scheme", "configured", "available", "expected", "is_reported"),
    [
        ("dns", 1, 8, 1, False),
        ("dns", 4, 8, 4, False),
        ("dns", 8, 8, 8, False),
        ("dns", 9, 8, 8, True),
        ("dns", inf, 8, 8, False),
        ("dns", inf, 1, 1, False),
        ("dns", 2, 1, 1, True),
        ("tls", inf, 8, 1, False),
        ("quic", 4, 8, 1, False),
        ("https", 4, 8, 1, False),
    ],
)
def test_processes_of_an_address(
    monkeypatch: pytest.MonkeyPatch,
    scheme: str,
    configured: float,
    available: int,
    expected: int,
    is_reported: bool,
) -> None:
    monkeypatch.setattr(listeners, "processors", lambda: available)
    place = ListenAddress(("127.0.0.1",), 53, scheme)
    with capture_logs() as logged:
        assert number_of_processes(place, ListenerOptions(processes=configured)) == expected
    assert [each["event"] for each in logged] == ["fewer processes than configured"] * is_reported


@pytest.mark.parametrize(
    ("directive", "expected"), [("", 1), ("multisocket", inf), ("multisocket 1", 1), ("multisocket 7", 7)]
)
def test_the_directive_sets_the_number(directive: str, expected: float) -> None:
    (config,) = configure(parse(f".:53 {{\nwhoami\n{directive}\n}}\n"))
    assert DEFAULTS.overridden(config.options.listener).processes == expected


@linux_only
@pytest.mark.parametrize(
    ("cpu_max", "affinity", "expected"),
    [
        ("max 100000\n", 4, 4),
        ("200000 100000\n", 4, 2),
        ("150000 100000\n", 4, 2),
        ("10000 100000\n", 4, 1),
        ("800000 100000\n", 4, 4),
        ("", 4, 4),
        (None, 3, 3),
    ],
)
def test_processors_are_those_of_the_affinity_and_the_quota(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cpu_max: str | None, affinity: int, expected: int
) -> None:
    file = tmp_path / "cpu.max"
    if cpu_max is not None:
        file.write_text(cpu_max)
    monkeypatch.setattr(process, "_CPU_MAX", file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)))
    assert processors() == expected
