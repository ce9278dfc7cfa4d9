"""The house rules: which module may import which, and what is pure."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "kdns"
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "metrics", "logs"}),
    frozenset({"cluster"}),
    frozenset({"records", "env", "proxy", "controlplane", "corefile"}),
    frozenset({"wire"}),
    frozenset({"plugins"}),
    frozenset({"aio"}),
    frozenset({"app", "node"}),
    frozenset({"up"}),
    frozenset({"flags"}),
    frozenset({"cli"}),
    frozenset({"__main__"}),
)
"""Imports go from a later line to an earlier one; parts on one line do not know each other."""

WIRE_SEES = {"wire", "records", "errors"}
SHELLS = {"aio", "app", "node", "up", "flags", "cli", "logs", "__main__"}

# fmt: off
IMPURE = frozenset((
    "_thread", "aiohttp", "asyncio", "concurrent", "fcntl", "glob", "http", "kubernetes", "logging", "multiprocessing",
    "os", "pathlib", "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl",
    "structlog", "subprocess", "tempfile", "threading", "time", "uuid", "uvloop", "yaml",
))
# fmt: on
"""What only shells import: input and output, the clock, randomness, processes and logs."""

IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__"})

DOORS = {
    "asyncio_throttle": {"kdns.aio.connection"},
    "click": {"kdns.cli", "kdns.cli_env", "kdns.cli_node", "kdns.cli_proxy"},
    "dnslib": {"kdns.wire.message"},
    "kubernetes": {"kdns.aio.apiserver"},
    "prometheus_client": {
        "kdns.metrics",
        "kdns.aio.admin",
        "kdns.aio.allocmetrics",
        "kdns.aio.dnsmetrics",
        "kdns.aio.proxymetrics",
    },
    "sqlite3": {"kdns.aio.sqlite", "kdns.aio.sqlite_file"},
}
"""Dependency → the modules that may know it."""


def part_of(module: str) -> str:
    """The layer's word for a module: `kdns.aio.udp` is of `aio`, `kdns.cli_env` of `cli`."""
    name = module.split(".")[1] if "." in module else "__init__"
    return "cli" if name.startswith("cli_") else name


def layer(part: str) -> int:
    found = [index for index, parts in enumerate(LAYERS) if part in parts]
    assert found, f"kdns.{part} is not in the table of layers: say where it belongs"
    return found[0]


def imports(path: Path) -> Iterator[str]:
    """Full names of what a file imports, inside of functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            yield from (f"{module}.{alias.name}" if module == "kdns" else module for alias in node.names)


def ours(path: Path) -> set[str]:
    return {part_of(name) for name in imports(path) if name.startswith("kdns.") and name != "kdns.__version__"}


@pytest.mark.parametrize("module", [name for name in MODULES if name != "kdns"])
def test_imports_go_one_way(module: str) -> None:
    own = part_of(module)
    wrong = [
        f"{module} imports kdns.{part}"
        for part in ours(MODULES[module]) - {own}
        if layer(part) >= layer(own) and layer(own) > 0
    ]
    assert wrong == []


def test_the_lowest_layer_knows_only_itself() -> None:
    for name in LAYERS[0]:
        if f"kdns.{name}" in MODULES:
            assert ours(MODULES[f"kdns.{name}"]) <= LAYERS[0]


def test_wire_sees_only_records() -> None:
    seen = {module: ours(path) - WIRE_SEES for module, path in MODULES.items() if module.startswith("kdns.wire")}
    assert {module: parts for module, parts in seen.items() if parts} == {}


@pytest.mark.parametrize("module", [name for name in MODULES if part_of(name) not in SHELLS])
def test_everything_but_the_shells_is_pure(module: str) -> None:
    path = MODULES[module]
    assert {name.split(".")[0] for name in imports(path)} & IMPURE == set()
    called = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert called & IMPURE_CALLS == set()


@pytest.mark.parametrize("library", DOORS)
def test_a_dependency_has_one_door(library: str) -> None:
    users = {module for module, path in MODULES.items() if any(name.split(".")[0] == library for name in imports(path))}
    assert users <= DOORS[library]


def test_packages_hold_a_docstring_and_nothing_else() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        assert isinstance(body[0], ast.Expr), f"{path}: no docstring"
        rest = [ast.unparse(node).split(" = ")[0] for node in body[1:]]
        assert rest == (["__version__"] if path.parent == PACKAGE else []), path


def test_the_checks_see_what_they_look_for(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("import time\nfrom kdns import app\nfrom kdns.aio import udp\ndef f():\n    import socket.x\n")
    assert set(imports(file)) == {"time", "kdns.app", "kdns.aio", "socket.x"}
    assert ours(file) == {"app", "aio"}
    assert layer(part_of("kdns.cli_env")) > layer(part_of("kdns.aio.udp.x")) > layer(part_of("kdns.wire"))


def test_long_files_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Over 400 lines is a question, not an error."""
    lengths = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in MODULES.items()}
    with capsys.disabled():
        for module, lines in lengths.items():
            if lines > 400:
                sys.stdout.write(f"\n{module} has {lines} lines: more than one idea?\n")
    assert lengths
