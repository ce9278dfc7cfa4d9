"""The commands of kdns as click has them, as a page and as manual pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import click

import kdns
from kdns.cli.main import COMMANDS, main

_CONSOLE: Final = "\b\n"
"""Click's mark of a paragraph whose lines stay as they are."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option: its names with the metavariable, its text, and what click adds to it, such as `default: 53`."""

    names: tuple[str, ...]
    metavar: str
    text: str
    limits: str


@dataclass(frozen=True, slots=True)
class Reference:
    """The help of one command."""

    path: str
    usage: str
    paragraphs: tuple[str, ...]
    options: tuple[Option, ...]
    examples: tuple[str, ...]


def references() -> tuple[Reference, ...]:
    """Returns the help of `kdns`, then that of each command."""
    group = _context(main, "kdns")
    commands = (main.get_command(group, name) for name in sorted(COMMANDS))
    return _reference(group), *(_reference(_context(command, command.name, group)) for command in commands if command)


def _context(command: click.Command, name: str | None, parent: click.Context | None = None) -> click.Context:
    return click.Context(command, parent, name, **command.context_settings)


def _reference(context: click.Context) -> Reference:
    command = context.command
    paragraphs = [*(command.help or "").strip().split("\n\n"), *(command.epilog or "").strip("\n").split("\n\n")]
    prose = (" ".join(paragraph.split()) for paragraph in paragraphs if not paragraph.startswith(_CONSOLE))
    return Reference(
        context.command_path,
        " ".join((context.command_path, *command.collect_usage_pieces(context))),
        tuple(filter(None, prose)),
        tuple(_options(context)),
        tuple(
            line
            for paragraph in paragraphs
            if paragraph.startswith(_CONSOLE)
            for line in paragraph.removeprefix(_CONSOLE).splitlines()
        ),
    )


def _options(context: click.Context) -> Iterator[Option]:
    for parameter in context.command.get_params(context):
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context)):
            text, _, limits = record[1].partition("  [")
            names = (*sorted(parameter.opts, key=len), *parameter.secondary_opts)
            metavar = "" if parameter.is_flag or parameter.count else parameter.make_metavar(context)
            yield Option(names, metavar, text, limits.removesuffix("]"))


def page() -> str:
    """Returns the page of all commands."""
    return "\n".join(("# Commands", "", "The help of each command, as `kdns COMMAND --help` prints it.", *_sections()))


def _sections() -> Iterator[str]:
    for reference in references():
        yield from ("", f"## {reference.path}", "", f"```text\n{reference.usage}\n```", "")
        yield from (paragraph.replace(". ", ".\n") for paragraph in _separated(reference.paragraphs))
        if reference.path == "kdns":
            yield from ("", "| command | |", "|---|---|")
            yield from (f"| [{name}](#kdns-{name}) | {text} |" for name, text in sorted(COMMANDS.items()))
        yield from ("", "| option | meaning | default |", "|---|---|---|")
        for option in reference.options:
            names = ", ".join(f"`{_cell(name)}`" for name in option.names)
            names += f" `{_cell(option.metavar)}`" if option.metavar else ""
            yield f"| {names} | {_cell(option.text)} | {_cell(option.limits.removeprefix('default: '))} |"
        yield from ("", "```text", *reference.examples, "```")
    yield ""


def _separated(paragraphs: tuple[str, ...]) -> Iterator[str]:
    for index, paragraph in enumerate(paragraphs):
        if index:
            yield ""
        yield paragraph


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<")


def manual_pages() -> dict[str, str]:
    """Returns each manual page by the name of its file (man(7))."""
    pages = references()
    return {f"{each.path.replace(' ', '-')}.1": "\n".join((*_manual(each, pages), "")) for each in pages}


def _manual(page: Reference, pages: tuple[Reference, ...]) -> Iterator[str]:
    name = page.path.replace(" ", "-")
    words = page.usage.removeprefix(page.path)
    yield f'.TH "{name.upper()}" "1" "" "kdns {kdns.__version__}" "kdns"'
    yield from (".SH NAME", f"{_roff(name)} \\- {_roff(page.paragraphs[0].removesuffix('.'))}")
    yield from (".SH SYNOPSIS", f".B {_roff(page.path)}", _roff(words.strip()))
    yield ".SH DESCRIPTION"
    for index, paragraph in enumerate(page.paragraphs):
        yield from ((".PP",) if index else ())
        yield _roff(paragraph)
    if page.path == "kdns":
        yield ".SH COMMANDS"
        for command, text in sorted(COMMANDS.items()):
            yield from (".TP", f".B {_roff(command)}", _roff(text))
    yield ".SH OPTIONS"
    for option in page.options:
        names = ", ".join(f"\\fB{_roff(each)}\\fR" for each in option.names)
        metavar = f" \\fI{_roff(option.metavar)}\\fR" if option.metavar else ""
        limits = f" [{option.limits}]" if option.limits else ""
        yield from (".TP", f"{names}{metavar}", _roff(f"{option.text}{limits}"))
    yield from (".SH EXAMPLES", ".nf", *map(_roff, page.examples), ".fi")
    others = (each.path.replace(" ", "-") for each in pages if each is not page)
    yield from (".SH SEE ALSO", ", ".join(f"\\fB{_roff(other)}\\fR(1)" for other in others))


def _roff(text: str) -> str:
    """Returns the text with nothing in it that roff reads as a request or an escape."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return f"\\&{text}" if text.startswith((".", "'")) else text
