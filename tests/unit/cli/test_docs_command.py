"""`kdns docs` lists every page of the documentation and shows it as it is."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from kdns.cli.commands.docs import SECTIONS, pages
from kdns.cli.main import main

PROJECT = Path(__file__).parents[3]
FILES = [*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md"), *PROJECT.glob("deploy/*.md")]


def test_each_page_has_a_name_of_its_own() -> None:
    assert sorted(page.file for page in pages().values()) == sorted(set(FILES) - {PROJECT / "docs/index.md"})


def test_the_list_has_each_page_with_a_summary() -> None:
    result = CliRunner().invoke(main, ["docs"])
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert [line.removesuffix(":") for line in lines if line.endswith(":") and line[0] != " "] == list(SECTIONS)
    listed = {line.split()[0]: line.split()[1:] for line in lines if line.startswith("  ") and line[2] != " "}
    assert listed.keys() == pages().keys()
    assert all(listed.values())
    assert listed["forward"] != ["forward"]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("serve", "docs/serve.md"),
        ("forward", "docs/directives/forward.md"),
        ("upgrade", "docs/tasks/upgrade.md"),
        ("commands", "docs/reference/commands.md"),
        ("deploy", "deploy/README.md"),
        ("CHANGELOG.md", "CHANGELOG.md"),
    ],
)
def test_a_pipe_gets_the_page_as_it_is(name: str, file: str) -> None:
    result = CliRunner().invoke(main, ["docs", name])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (PROJECT / file).read_text(encoding="utf-8")


def test_a_terminal_gets_the_pager(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\ncat > {tmp_path}/paged\n")
    pager.chmod(0o755)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kdns", "docs", "serve"]
    environment = {**os.environ, "PAGER": str(pager)}
    done = subprocess.run(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, check=False)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 0
    assert (tmp_path / "paged").read_text(encoding="utf-8") == (PROJECT / "docs/serve.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("forwrd", "No page 'forwrd': did you mean `kdns docs forward`?"),
        ("Upgrad", "No page 'Upgrad': did you mean `kdns docs upgrade`?"),
        ("xyzzy", "No page 'xyzzy': `kdns docs` lists the pages"),
    ],
)
def test_an_unknown_page_names_the_nearest(name: str, says: str) -> None:
    result = CliRunner().invoke(main, ["docs", name])
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


def test_a_shell_completes_pages() -> None:
    items = ShellComplete(main, {}, "kdns", "_KDNS_COMPLETE").get_completions(["docs"], "replace-")
    assert [(item.value, item.help) for item in items] == [
        ("replace-coredns", "Replace CoreDNS"),
        ("replace-kube-proxy", "Replace kube-proxy"),
    ]
