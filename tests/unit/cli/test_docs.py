"""What the documentation shows works: Corefiles parse, Python runs, commands have the options, links lead somewhere."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from kdns.cli.main import main
from kdns.corefile.parse import parse
from kdns.durations import parse_duration
from kdns.plugins.directives import BY_NAME, configure
from kdns.proxy.ipvs.settings import SCHEDULERS
from kdns.proxy.modes import MODES
from kdns.proxy.nftables.io import start as nftables
from kdns.proxy.settings.document import encoded
from kdns.proxy.settings.io.files import parse_settings
from kdns.proxy.settings.settings import Settings
from kdns.proxy.xtables.io.programs import OLDEST
from tools import mode_table

PROJECT = Path(__file__).parents[3]
PAGES = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md"), *PROJECT.glob("deploy/*.md")])
FENCE = re.compile(r"^```(?P<language>\S*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)(?P<target>[^)#]+)")


def named(command: str) -> click.Command:
    found = main.get_command(click.Context(main), command)
    assert found, f"no command {command}"
    return found


def blocks(language: str) -> list[tuple[str, str]]:
    """(where, text) of every fenced block in a language."""
    return [
        (f"{page.relative_to(PROJECT)}:{text.count(chr(10), 0, match.start()) + 1}", match["text"])
        for page in PAGES
        for text in [page.read_text(encoding="utf-8")]
        for match in FENCE.finditer(text)
        if match["language"] == language
    ]


def commands() -> list[tuple[str, list[str]]]:
    """(where, words) of every `$ kdns …` line in a console."""
    return [
        (where, shlex.split(line.removeprefix("$ kdns ")))
        for where, text in blocks("console")
        for line in text.splitlines()
        if line.startswith("$ kdns ")
    ]


def test_there_is_something_to_check() -> None:
    assert len(PAGES) > 8
    assert all(blocks(language) for language in ("corefile", "python", "console"))


@pytest.mark.parametrize(("where", "text"), blocks("corefile"))
def test_corefiles_parse(where: str, text: str) -> None:
    assert configure(parse(text, where))


@pytest.mark.parametrize(("where", "text"), blocks("python"))
def test_python_runs(where: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(text, where, "exec"), {"__name__": "example"})  # noqa: S102  # the project's own documentation
    assert capsys.readouterr().err == ""


def options(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize(("where", "words"), commands())
def test_commands_have_the_options_they_are_shown_with(where: str, words: list[str]) -> None:
    group = options(main) | {"--help"}
    while words and words[0].startswith("-"):
        assert words.pop(0) in group, where
    used = {word.split("=")[0] for word in words[1:] if word.startswith("-")}
    assert used <= options(named(words[0])) | {"-h", "--help"}, where


@pytest.mark.parametrize("name", ["check", "env", "explain", "render", "serve", "trace", "up"])
def test_a_commands_page_leads_to_its_options(name: str) -> None:
    page = (PROJECT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert f"(reference/commands.md#kdns-{name})" in page


def test_the_example_of_render_is_a_ruleset(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = next(text for where, text in blocks("console") if where.startswith("docs/render.md"))
    monkeypatch.chdir(PROJECT)
    result = CliRunner().invoke(main, shlex.split(shown.removeprefix("$ kdns ")))
    assert (result.exit_code, result.stderr.partition(" is unset")[0]) == (0, "Warning: without --config: clusterCIDR:")
    assert "10.96.0.11 . 6379" in result.stdout


def test_the_configuration_on_its_page_is_one() -> None:
    text = next(text for where, text in blocks("yaml") if where.startswith("docs/proxy-config.md"))
    assert parse_settings("example", text, pytest.fail).cluster_cidr == "10.244.0.0/16"


def test_the_page_of_the_configuration_has_every_field_and_its_default() -> None:
    told: dict[str, str] = {}
    for line in (PROJECT / "docs" / "proxy-config.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            names, defaults = (re.findall(r"`([^`]+)`", cell) for cell in line.split("|")[1:3])
            told |= dict(zip_longest(names, defaults, fillvalue=""))
    defaults_of_fields = dict(leaves(encoded(Settings())))
    untold = [name for name in defaults_of_fields if not any(f"{name}.".startswith(f"{each}.") for each in told)]
    assert untold == ["apiVersion", "kind"]
    shown = {name: text for name, text in told.items() if text}
    assert {name: same(text, defaults_of_fields[name]) for name, text in shown.items()} == dict.fromkeys(shown, True)


def leaves(document: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def same(text: str, default: object) -> bool:
    if re.fullmatch(r"[0-9]+(ms|s|m|h)", text):
        return isinstance(default, str) and parse_duration(text) == parse_duration(default)
    return default in (text, yaml.safe_load(text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = {match["target"] for match in LINK.finditer(page.read_text(encoding="utf-8"))}
    assert [target for target in sorted(targets) if not (page.parent / target).exists()] == []


def test_the_table_of_modes_is_made_of_their_rows() -> None:
    text = mode_table.PAGE.read_text(encoding="utf-8")
    assert mode_table.page(text) == text, "run `make mode-table`"


def test_the_page_of_modes_names_each_mode_and_what_it_needs() -> None:
    text = mode_table.PAGE.read_text(encoding="utf-8")
    for name in MODES:
        assert f"## Mode {name}\n" in text
        assert text.count(f"| `{name}` |") >= 2
    needs = text.partition("## What they need")[2].partition("\n## ")[0]
    for version in (nftables.KERNEL, nftables.NFT, OLDEST):
        assert f" {'.'.join(map(str, version))}" in needs
    assert nftables.SKIPS_KERNEL in needs
    schedulers = (PROJECT / "docs/ipvs.md").read_text(encoding="utf-8").partition("## Schedulers")[2]
    assert [name for name in SCHEDULERS if f"`{name}`" not in schedulers] == []


ASSUMED = {
    "nftables": ["clusterCIDR"],
    "iptables": ["nodePortAddresses", "clusterCIDR"],
    "ipvs": ["nodePortAddresses", "clusterCIDR"],
    "userspace": ["clusterCIDR"],
    "kernelspace": [],
}
"""The defaults that `kdns render` warns of."""


@pytest.mark.parametrize("name", MODES)
def test_render_and_trace_have_every_mode(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)
    of = ["--proxy-mode", name, "--manifests", "examples/redis-master.yaml", "--node", "kdns"]
    shown = CliRunner().invoke(main, ["render", *of])
    assert shown.exit_code == 0
    assumed = [line.split(": ")[1:3] for line in shown.stderr.splitlines()]
    assert assumed == [["without --config", field] for field in ASSUMED[name]]
    assert "10.96.0.11" in shown.stdout
    told = CliRunner().invoke(main, ["trace", *of, "--from", "192.0.2.7", "--to", "redis-master:6379"])
    assert (told.exit_code, told.stderr) == (0, "")
    assert f"in mode {name}: forwarded to 10.244.1.13:6379" in told.stdout


def test_the_pages_of_directives_can_be_reached() -> None:
    page = (PROJECT / "docs" / "corefile.md").read_text(encoding="utf-8")
    assert [name for name in BY_NAME if f"[{name}](directives/{name}.md)" not in page] == []
    assert "](corefile.md#directives)" in (PROJECT / "docs" / "serve.md").read_text(encoding="utf-8")


@pytest.mark.release
def test_the_site_is_made_without_a_warning(tmp_path: Path) -> None:
    """All pages are read and their references resolved; `make docs` writes the HTML too."""
    pytest.importorskip("sphinx", reason="Sphinx is not installed")
    options = ["-q", "-W", "--keep-going", "-b", "dummy", "-d", str(tmp_path / "doctrees"), "-c", "docs"]
    command = [sys.executable, "-m", "sphinx", *options, ".", str(tmp_path / "site")]
    made = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=600, check=False)
    assert (made.returncode, made.stderr) == (0, "")
