"""The command `kdns docs`: the pages of the documentation, in a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click
from click.shell_completion import CompletionItem

import kdns
from kdns.cli.command import command
from kdns.cli.console import say
from kdns.spelling import closest

SECTIONS: Final = {
    "Tasks": ("docs/tasks/*.md", "deploy/README.md"),
    "Commands and configuration": ("docs/*.md",),
    "Directives": ("docs/directives/*.md",),
    "Reference": ("docs/reference/*.md",),
    "The project": ("*.md",),
}
"""The files of a section's pages, by its heading."""
_PACKAGE: Final = Path(kdns.__file__).parent
_NAMES: Final = {"deploy/README.md": "deploy"}
_TITLE: Final = re.compile(r"^# (.+)\n\n(.+)", re.MULTILINE)
_WIDTH: Final = 100


class Page(NamedTuple):
    """A page: the heading of its section and its file."""

    section: str
    file: Path

    def summary(self) -> str:
        """The title, or the first sentence if the title is only the name of a command or directive."""
        title, line = _TITLE.search(self.file.read_text(encoding="utf-8")).groups()  # type: ignore[union-attr]
        if title.removeprefix("kdns ") != self.file.stem:
            return title
        sentence = re.sub(r"\[([^]]+)]\([^)]+\)", r"\1", line)
        return sentence.partition(". ")[0].rstrip(".:")


def pages() -> dict[str, Page]:
    """In the order of SECTIONS. The wheel has them in kdns/pages; a checkout has them beside the package."""
    packaged = _PACKAGE / "pages"
    root = packaged if packaged.is_dir() else _PACKAGE.parent
    return {
        _NAMES.get(file.relative_to(root).as_posix(), file.stem.lower()): Page(section, file)
        for section, patterns in SECTIONS.items()
        for pattern in patterns
        for file in sorted(root.glob(pattern))
        if file.stem != "index"
    }


def _complete(_context: click.Context, _argument: click.Parameter, incomplete: str) -> list[CompletionItem]:
    by_name = {name: page for name, page in pages().items() if name.startswith(incomplete)}
    return [CompletionItem(name, help=page.summary()) for name, page in by_name.items()]


def _lines(by_name: dict[str, Page]) -> Iterator[str]:
    for section in SECTIONS:
        formatter = click.HelpFormatter(max_width=_WIDTH)
        with formatter.section(section):
            formatter.write_dl([(name, page.summary()) for name, page in by_name.items() if page.section == section])
        yield formatter.getvalue()


@command("docs", "kdns docs", "kdns docs forward", "kdns docs deploy | grep -n rollout")
@click.argument("page", required=False, shell_complete=_complete)
def docs(page: str | None) -> None:
    """List the pages of the documentation, or show one.

    On a terminal a page is shown by the program in the variable PAGER, or by less.
    """
    by_name = pages()
    if page is None:
        say("\n".join(_lines(by_name)).removesuffix("\n"))
        return
    name = page.lower().removesuffix(".md")
    if name not in by_name:
        close = closest(name, by_name)
        meant = f"did you mean `kdns docs {close}`?" if close else "`kdns docs` lists the pages"
        raise click.UsageError(f"No page {page!r}: {meant}")
    click.echo_via_pager(by_name[name].file.read_text(encoding="utf-8").removesuffix("\n"))
