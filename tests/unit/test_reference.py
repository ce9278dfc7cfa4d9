"""What tools/reference makes of the code is what the project has, and is well formed."""

import ast
import re
import shutil
import subprocess
from graphlib import TopologicalSorter

import pytest

from kdns.cli.main import COMMANDS
from tools.reference.commands import Reference, references
from tools.reference.drawing import BASE, drawing, rooms
from tools.reference.files import ROOT, files

PAGES = [str(path.relative_to(ROOT)) for name in ("docs/man", "docs/reference") for path in (ROOT / name).iterdir()]
MANUAL_PAGES = [name for name in PAGES if name.endswith(".1")]
ALL_METRICS = ROOT / "docs/reference/all-metrics.md"
METRIC = re.compile(r"(coredns|kdns|kubeproxy|kube_apiserver|rest_client|kubernetes)_[a-z_{}]+")
NO_METRICS = {"kubernetes_validate"}
"""Strings of the code that look like the name of a metric."""


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return files()


def test_the_reference_has_these_files(made: dict[str, str]) -> None:
    assert set(PAGES) <= made.keys()


@pytest.mark.parametrize("name", [*PAGES, "docs/architecture.svg", "docs/status.svg"])
def test_the_reference_is_that_of_the_code(name: str, made: dict[str, str]) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == made[name], "run `make reference`"


def test_the_drawing_has_every_room_and_goes_one_way() -> None:
    folders = {path.name for path in (ROOT / "kdns").iterdir() if (path / "__init__.py").exists()}
    graph = rooms()
    assert folders <= graph.keys()
    assert next(iter(TopologicalSorter(graph).static_order())) == BASE
    assert not any(other in graph["dns"] for other in ("dnsserver", "cluster", "proxy"))
    names = re.findall(r"<text [^>]+>([^<]+)</text>", drawing())
    assert sorted(names) == sorted(graph)


def metric_names() -> set[str]:
    """The strings of the code that are the name of a metric or, of a formatted string, its beginning."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "kdns").rglob("*.py"))
    texts = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return {text for text in texts if isinstance(text, str) and METRIC.fullmatch(text)} - NO_METRICS


def test_every_metric_of_the_code_is_on_the_page_of_metrics() -> None:
    rows = re.findall(r"^- `(\w+)`: (.+)\.$", ALL_METRICS.read_text(encoding="utf-8"), re.MULTILINE)
    names = metric_names()
    assert len(names) > 60
    documented = " ".join(name for name, meaning in rows if meaning.strip())
    patterns = {name: rf"\b{name.replace('{}', '[a-z_]+')}" for name in names}
    assert [name for name, pattern in patterns.items() if not re.search(pattern, documented)] == []


def test_each_command_has_a_manual_page() -> None:
    assert set(MANUAL_PAGES) == {"docs/man/kdns.1", *(f"docs/man/kdns-{name}.1" for name in COMMANDS)}


@pytest.mark.parametrize("reference", references(), ids=lambda each: each.path)
def test_every_option_has_a_text_and_every_command_an_example(reference: Reference) -> None:
    assert [option.names for option in reference.options if not option.text] == []
    assert any(line.lstrip().startswith(("kdns ", "sudo kdns ")) for line in reference.examples)


@pytest.mark.parametrize("name", MANUAL_PAGES)
def test_mandoc_accepts_a_manual_page(name: str) -> None:
    if not shutil.which("mandoc"):
        pytest.skip("mandoc is not here: tests/install-debian-packages installs it")
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", ROOT / name], capture_output=True, text=True, check=False
    )
    warnings = (done.stdout + done.stderr).splitlines()
    assert [line for line in warnings if "missing date" not in line] == []  # a page of the code has no date
    shown = subprocess.run(["mandoc", "-T", "utf8", ROOT / name], capture_output=True, text=True, check=True).stdout
    for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES"):
        assert f"{heading[0]}\b{heading[0]}" in shown
