"""How many processes a server has: as configured, and not more than processors."""

import os
from pathlib import Path

import pytest
from configured import configured
from structlog.testing import capture_logs

from kdns.dnsserver.io import server
from kdns.dnsserver.io.server import number_of_processes
from kdns.runtime import process
from kdns.runtime.process import processors

linux_only = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="workers need Linux")


@linux_only
@pytest.mark.parametrize(
    ("directives", "default", "available", "expected", "is_reported"),
    [
        (("", ""), 1, 8, 1, False),
        (("", ""), 3, 8, 3, False),
        (("multisocket 4", ""), 1, 8, 4, False),
        (("multisocket 4", "multisocket 6"), 1, 8, 6, False),
        (("multisocket 1", "multisocket 1"), 3, 8, 1, False),
        (("multisocket 1", ""), 3, 8, 3, False),
        (("multisocket 8", ""), 1, 8, 8, False),
        (("multisocket 9", ""), 1, 8, 8, True),
        (("multisocket", "multisocket 2"), 1, 8, 8, False),
        (("multisocket", ""), 1, 1, 1, False),
        (("multisocket 2", ""), 1, 1, 1, True),
        (("", ""), 2, 1, 1, True),
    ],
)
def test_processes_of_a_configuration(
    monkeypatch: pytest.MonkeyPatch,
    directives: tuple[str, str],
    default: int,
    available: int,
    expected: int,
    is_reported: bool,
) -> None:
    monkeypatch.setattr(server, "processors", lambda: available)
    one, other = directives
    configs = configured(f".:53 {{\nwhoami\n{one}\n}}\nother.test:54 {{\nwhoami\n{other}\n}}\n")
    with capture_logs() as logged:
        assert number_of_processes(configs, default) == expected
    assert [entry["event"] for entry in logged] == ["fewer processes than configured"] * is_reported


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
