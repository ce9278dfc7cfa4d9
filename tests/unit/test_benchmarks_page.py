"""What makes docs/benchmarks.md: tables out of a program's output, and how costs grow."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from suite import CASES, HERE, PAGE, Growth, Table, exponents, number, sections, tables

OUTPUT = """\
a line before it

| Services | µs | text | none |
|---|---|---|---|
| 100 | 2.0 | a | - |
| 10,000 | 20.0 / 3 | b | - |

Memory in MiB: 7.
"""


def test_a_table_is_read_from_a_programs_output() -> None:
    (table,) = tables(OUTPUT)
    assert table.head == ("Services", "µs", "text", "none")
    assert table.column("Services") == [100, 10_000]
    assert table.column("µs") == [2, 20]
    assert table.column("text") == [None, None]


@pytest.mark.parametrize(("text", "value"), [("1,234.5 ms", 1234.5), ("-0.1", -0.1), ("max", None), ("", None)])
def test_numbers_of_cells(text: str, value: float | None) -> None:
    assert number(text) == value


def test_exponents_of_the_columns_with_numbers() -> None:
    (table,) = tables(OUTPUT)
    assert not exponents(table, Growth("Services")), "rows of two sorts"
    same = Table(table.head, tuple((*row[:2], "a", *row[3:]) for row in table.rows))
    assert exponents(same, Growth("Services", ("µs", "none"))).splitlines() == [
        "| exponents over Services | µs | none |",
        "|---|---|---|",
        "| a - | 0.50 |  |",
    ]
    assert not exponents(same, Growth("clients"))
    assert not exponents(Table(same.head, same.rows[:1]), Growth("Services"))


def test_a_plot_is_a_picture_without_scripts(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from suite import Plot, draw, tables
(table,) = tables(sys.stdin.read())
draw(Plot("cost", "µs of a query", ("µs",)), table, Path(sys.argv[1]))
"""  # another process, since pygal changes how this one imports
    to = tmp_path / "plots" / "cost.svg"
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    subprocess.run([sys.executable, "-c", program, to], input=OUTPUT, text=True, env=environment, check=True)
    picture = to.read_text()
    assert "µs of a query" in picture
    assert "<script" not in picture


def test_each_case_is_a_program_and_each_program_a_case() -> None:
    programs = {path.stem for path in HERE.glob("[a-z]*.py")} - {"suite"}
    assert programs == {case.program for case in CASES}


def test_the_page_has_only_sections_and_plots_of_cases() -> None:
    page = PAGE.read_text()
    assert sections(page).keys() <= {case.title for case in CASES}
    for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page):
        assert (PAGE.parent / path).is_file(), path
