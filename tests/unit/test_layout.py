"""The rules of the layout: which room imports which, what is pure, and who imports a library."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from kdns.plugins.directives import BY_NAME, FOLDERS
from kdns.plugins.settings import SETTINGS
from tools.reference.python_api import PUBLIC

PACKAGE = Path(__file__).parents[2] / "kdns"
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

# Imports go from a later row to an earlier one; rooms of one row do not import each other. The room of a module is the
# longest prefix in the table; modules of one room, its folder io/ included, may import each other.
# fmt: off
ROOMS: tuple[tuple[str, ...], ...] = (
    ("durations", "errors", "fair_queue", "net", "logs", "spelling", "tally", "values"),
    ("watch",),
    ("runtime",),
    ("netlink",),
    ("cluster", "dns"),
    ("env", "corefile", "upstream", "answers"),
    ("serverblocks",),
    ("dnsserver",),
    ("plugins",),
    ("records",),
    ("explain",),
    ("proxy.plan",),
    ("diagnosis",),
    ("status",),

    ("proxy.settings.section",),
    ("proxy.settings.settings",),
    ("proxy.mode",),
    ("proxy.xtables",),
    ("proxy.nftables", "proxy.iptables", "proxy.kernelspace"),
    ("proxy.ipvs", "proxy.userspace"),
    ("proxy.modes",),
    ("proxy.settings",),
    ("proxy.sync",),
    ("proxy.node",),
    ("proxy.xtables.io",),
    ("proxy.nftables.io", "proxy.iptables.io", "proxy.kernelspace.io"),
    ("proxy.ipvs.io", "proxy.userspace.io"),
    ("proxy.takeover", "proxy.trace"),
    ("proxy.status",),
    ("node_local",),

    ("controlplane.apimachinery", "controlplane.cluster_config"),
    ("controlplane.schema",),
    ("controlplane.storage",),
    ("controlplane.fieldmanager",),
    ("controlplane.kinds",),
    ("controlplane.gc",),
    ("controlplane.server",),
    ("controlplane.controllers.reconciler",),
    ("controlplane.controllers.events",),
    ("controlplane.endpoints",),
    ("controlplane.simulation",),
    ("controlplane.controllers",),
    ("controlplane.bootstrap",),
    ("controlplane.manifests",),
    ("controlplane.io",),

    ("apps",),
    ("cli",),
    ("__main__", "testing"),
    ("pytest_plugin",),
)
# fmt: on

SIDES = (
    {"answers", "corefile", "dns", "dnsserver", "plugins", "serverblocks", "upstream"},
    {"controlplane"},
    {"env"},
    {"proxy"},
)
"""Parts that import nothing of another side, whatever the rows of their rooms."""

SHELLS = {"runtime", "apps", "cli", "logs", "__main__", "pytest_plugin", "testing"}
"""Parts that touch the world, as every folder io/ does."""

# fmt: off
IMPURE = frozenset((
    "_thread", "aiohttp", "asyncio", "concurrent", "fcntl", "glob", "kubernetes", "logging", "multiprocessing",
    "os", "pathlib", "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl",
    "structlog", "subprocess", "tempfile", "threading", "time", "uuid", "uvloop", "yaml",
    "http.client", "http.cookiejar", "http.server",
))
# fmt: on
"""Libraries that only shells import: input and output, the clock, randomness, processes and logs."""

CONVERTERS = {"kdns.net": {"socket"}}
"""Modules that import functions of impure libraries which only convert values, here inet_pton and inet_ntop."""

IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__"})

DOORS = {
    "aioquic": ("kdns.dnsserver.io.encrypted.quic", "kdns.dnsserver.io.listeners"),
    "aiohttp": (
        "kdns.controlplane.server.io",
        "kdns.dnsserver.io.supervisor",
        "kdns.proxy.node.io",
        "kdns.runtime.http",
        "kdns.cluster.io",
        "kdns.status.io",
        "kdns.proxy.status.io",
    ),
    "asyncio_throttle": ("kdns.cluster.io.connection",),
    "cachetools": (
        "kdns.plugins.changes.dnssec.plugin",
        "kdns.controlplane.controllers.io.controller_manager",
        "kdns.proxy.node.io.events",
    ),
    "click": ("kdns.cli",),
    "cryptography": ("kdns.plugins.changes.dnssec.keys",),
    "dns": ("kdns.dns.zonefile", "kdns.plugins.guards.tsig.signature"),
    "dnslib": ("kdns.testing",),
    "h11": ("kdns.upstream.io.http", "kdns.dnsserver.doh.http1"),
    "h2": ("kdns.upstream.io.http", "kdns.dnsserver.doh.http2"),
    "hpack": ("kdns.dnsserver.doh.http2",),
    "jinja2": ("kdns.status.render",),
    "jsonpatch": ("kdns.controlplane.server.patch",),
    "jsonpointer": ("kdns.controlplane.server.patch",),
    "kubernetes": ("kdns.cluster.io.credentials",),
    "msgspec": (
        "kdns.apps.sources",
        "kdns.cluster",
        "kdns.controlplane",
        "kdns.answers.answer",
        "kdns.dnsserver.io.supervisor",
        "kdns.plugins.changes.cache.store",
        "kdns.proxy.plan",
        "kdns.tally",
        "kdns.testing",
        "kdns.upstream.io.exchanges",
        "kdns.values",
    ),
    "prometheus_client": (
        "kdns.runtime.metrics",
        "kdns.runtime.metric_sums",
        "kdns.runtime.http.sites",
        "kdns.dnsserver.io.metrics",
        "kdns.dnsserver.io.request_metrics",
        "kdns.dnsserver.io.supervisor",
        "kdns.controlplane.server.io.metrics",
        "kdns.proxy.node.io.metrics",
    ),
    "pytest": ("kdns.pytest_plugin",),
    "re2": ("kdns.serverblocks.patterns", "kdns.controlplane.schema.custom.patterns"),
    "sqlite3": ("kdns.controlplane.storage.io.journal", "kdns.controlplane.storage.io.sqlite"),
    "structlog": ("kdns.logs",),
    "yaml": ("kdns.runtime.files.yaml",),
}
"""Library → the rooms or modules that may import it. Every dependency has a row."""

BROUGHT = frozenset({"pytest"})
"""Libraries that whoever imports their door has: an entry point of pytest is loaded by pytest."""

DEPENDENCIES_NOT_IMPORTED: dict[str, str] = {}
"""Declared dependency → why nothing in kdns/ imports it."""

IMPORT_NAMES = {"dnspython": "dns", "google-re2": "re2", "pyyaml": "yaml"}
"""Distribution → the package that it installs, where the names differ by more than dashes."""

MAX_MODULES = 15
"""Modules of a folder."""


def is_within(module: str, place: str) -> bool:
    return module == place or module.startswith(f"{place}.")


def room_of(module: str) -> str:
    """The room of a module: `kdns.dnsserver.io.udp` is in `dnsserver`."""
    name = module.removeprefix("kdns.")
    rooms = [room for row in ROOMS for room in row if is_within(name, room)]
    assert rooms, f"{module} is in no room: say in ROOMS where it belongs"
    return max(rooms, key=len)


def row_of(room: str) -> int:
    return next(index for index, row in enumerate(ROOMS) if room in row)


@cache
def imports(path: Path) -> tuple[str, ...]:
    """The full names of a file's imports, those inside functions too; a submodule is named with its package."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            for alias in node.names:
                whole = f"{module}.{alias.name}"
                yield whole if whole in MODULES or module == "kdns" else module


def ours(path: Path) -> set[str]:
    return {name for name in imports(path) if name.startswith("kdns.") and name != "kdns.__version__"}


def is_apart(own: str, other: str) -> bool:
    """Whether two rooms are of different sides."""
    (mine, theirs) = (
        {side for side, parts in enumerate(SIDES) if room.split(".")[0] in parts} for room in (own, other)
    )
    return bool(mine and theirs and mine != theirs)


def test_imports_go_one_way() -> None:
    wrong = [
        f"{module} imports {name}"
        for module, path in MODULES.items()
        if path.name != "__init__.py"
        for own in (room_of(module),)
        for name in sorted(ours(path))
        if (room := room_of(name)) != own and (row_of(room) >= row_of(own) > 0 or is_apart(own, room))
    ]
    assert wrong == []


def test_the_lowest_rooms_know_only_themselves() -> None:
    for module, path in MODULES.items():
        if module.removeprefix("kdns.") in ROOMS[0]:
            assert {room_of(name) for name in ours(path)} <= set(ROOMS[0])


def touches_the_world(module: str) -> bool:
    """Whether a module may read files, clocks and sockets, and log: those of the shells, and of a folder io/."""
    parts = module.split(".")
    return "io" in parts or any(part in SHELLS for part in parts[1:2])


PURE = [name for name in MODULES if not touches_the_world(name)]


def test_only_io_and_the_shells_touch_the_world() -> None:
    wrong = {module: names for module in PURE if (names := touched(module))}
    assert wrong == {}


def touched(module: str) -> set[str]:
    """What a module imports and calls that touches the world."""
    path = MODULES[module]
    names = set(imports(path)) - CONVERTERS.get(module, set())
    called = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return {
        *(name for name in names if name in IMPURE or name.split(".")[0] in IMPURE),
        *(name for name in ours(path) if touches_the_world(name)),
        *(called & IMPURE_CALLS),
    }


@pytest.mark.parametrize("library", DOORS)
def test_a_dependency_has_one_door(library: str) -> None:
    users = {module for module, path in MODULES.items() if any(name.split(".")[0] == library for name in imports(path))}
    assert {user for user in users if not any(is_within(user, door) for door in DOORS[library])} == set()


NOT_AT_START = ("OpenSSL", "aioquic", "cryptography", "dns", "dnslib", "h11", "h2", "hpack", "re2")
"""Libraries of some directives, schemes and options; aioquic takes 20 MiB and 0.15 s, cryptography 8 MiB."""


def test_the_server_starts_without_the_libraries_that_its_corefile_may_not_need() -> None:
    program = f"import sys, kdns.cli.commands.serve; print([name for name in {NOT_AT_START} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_packages_hold_a_docstring_and_nothing_else() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        assert isinstance(body[0], ast.Expr), f"{path}: no docstring"
        rest = [ast.unparse(node).split(" = ")[0] for node in body[1:]]
        assert rest == (["__version__"] if path.parent == PACKAGE else []), path


def test_every_folder_is_a_package_of_a_handful_of_files() -> None:
    for folder in {path.parent for path in PACKAGE.rglob("*.py")}:
        assert (folder / "__init__.py").exists(), f"{folder}: no __init__.py"
        modules = [path for path in folder.glob("*.py") if path.stem != "__init__"]
        assert len(modules) <= MAX_MODULES, f"{folder} has {len(modules)} modules: which room is missing?"


@pytest.mark.parametrize("name", BY_NAME)
def test_a_directive_has_a_file_or_folder_of_its_name_and_a_page(name: str) -> None:
    """Settings have a row in place of a file."""
    place = f"kdns.plugins.{FOLDERS[name]}"
    assert (place if FOLDERS[name] == "settings" else f"{place}.{name}") in MODULES
    assert (FOLDERS[name] == "settings", BY_NAME[name].name) == (name in SETTINGS, name)
    assert (PACKAGE.parent / "docs" / "directives" / f"{name}.md").is_file()


def declared_dependencies() -> set[str]:
    """The packages that the declared dependencies install, by the names under which they are imported."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"[^A-Za-z0-9._-]", dependency, maxsplit=1)[0].lower() for dependency in project["dependencies"]]
    return {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in names}


def test_what_is_declared_is_imported_and_what_is_imported_is_declared() -> None:
    imported = {name.split(".")[0] for path in MODULES.values() for name in imports(path)}
    third_party = imported - set(sys.stdlib_module_names) - {"kdns"} - BROUGHT
    declared = declared_dependencies()
    assert third_party - declared == set(), "imported, but not in pyproject.toml"
    assert declared - third_party == set(DEPENDENCIES_NOT_IMPORTED), "in pyproject.toml, but imported by nothing"
    assert third_party - set(DOORS) == set(), "imported by any module: which room is its door?"


@pytest.mark.parametrize("module", PUBLIC)
def test_public_modules_name_what_is_public(module: str) -> None:
    loaded = import_module(module)
    assert loaded.__all__
    assert [name for name in loaded.__all__ if not hasattr(loaded, name)] == []
    page = (PACKAGE.parent / "docs" / "python.md").read_text(encoding="utf-8")
    assert f"`{module}`" in page
    if module in ("kdns.env", "kdns.records", "kdns.testing"):
        assert [name for name in loaded.__all__ if f"`{name}" not in page] == []
    assert (PACKAGE / "py.typed").is_file()


def test_unit_tests_stand_in_the_rooms_of_what_they_test() -> None:
    """But for the tests of the manifests in deploy/."""
    tests = PACKAGE.parent / "tests" / "unit"
    folders = {path.parent.relative_to(tests) for path in tests.rglob("*.py")} - {
        Path("deploy")
    }  # deploy/ is no package
    assert {str(folder) for folder in folders if not (PACKAGE / folder).is_dir()} == set()


def test_the_page_of_the_house_names_places_that_exist() -> None:
    page = (PACKAGE.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    places = re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9]+)+(?:\.py)?)`", page)
    assert len(places) > 40
    assert [place for place in places if not ((PACKAGE / place).exists() or (PACKAGE.parent / place).exists())] == []
    assert [
        room
        for row in ROOMS
        for room in row
        if not (PACKAGE / room.replace(".", "/")).exists() and not (PACKAGE / f"{room.replace('.', '/')}.py").exists()
    ] == []


def test_the_checks_see_what_they_look_for(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(
        "import time\nfrom kdns import apps\nfrom kdns.dnsserver.io import udp\ndef f():\n    import socket.x\n"
    )
    assert set(imports(file)) == {"time", "kdns.apps", "kdns.dnsserver.io.udp", "socket.x"}
    assert ours(file) == {"kdns.apps", "kdns.dnsserver.io.udp"}
    assert (
        row_of(room_of("kdns.cli.commands.env"))
        > row_of(room_of("kdns.dnsserver.io.udp"))
        > row_of(room_of("kdns.dns"))
    )
    assert is_apart("proxy.plan", "dns")
    assert not is_apart("plugins", "dns")
    assert touches_the_world("kdns.dnsserver.io.udp")
    assert not touches_the_world("kdns.dnsserver.blocks")
