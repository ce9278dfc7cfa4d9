"""Snippets and imports: `(name) { … }` defines a snippet, `import name` inserts it, `import PATTERN` inserts files.

Files are read by a Reader that the caller passes. A pattern is relative to the importing file. A snippet is defined
before its first use. A pattern with a wildcard may match nothing, a file name without one must exist.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from kdns.corefile.lexer import Token
from kdns.corefile.lines import BracesError, Line
from kdns.errors import CorefileError

Reader: TypeAlias = Callable[[str], Sequence[tuple[str, str]]]
"""A glob pattern → (path, text) of every file that matches, sorted by path; may raise OSError or UnicodeError."""

MAX_IMPORTS = 10_000
"""Imports of one Corefile, as in CoreDNS: snippets that import each other twice grow exponentially."""
MAX_NESTING = 50


def no_files(pattern: str) -> Sequence[tuple[str, str]]:
    del pattern
    return ()


@dataclass(slots=True)
class Importer:
    """Replaces imports by their lines.

    A wrong import is a mistake, and inserts nothing. A directive that is not whole is left out. `gaps` counts lines
    that are missing without a mistake of their own.
    """

    parse: Callable[[str, str], tuple[Line, ...]]
    read: Reader
    mistakes: list[CorefileError]
    snippets: dict[str, Line] = field(default_factory=dict)
    imports: int = 0
    gaps: int = 0

    def resolved(self, lines: Iterable[Line], chain: tuple[str, ...] = (), *, outermost: bool = True) -> Iterator[Line]:
        """The lines without imports and snippet definitions; `chain` names the enclosing imports."""
        for line in lines:
            before = len(self.mistakes) + self.gaps
            try:
                if line.is_import:
                    yield from self._imported(line, chain, outermost)
                elif outermost and _is_snippet(line):
                    self._define(line)
                elif line.braces:
                    block = tuple(self.resolved(line.block, chain, outermost=False))
                    is_whole = line.is_whole and len(self.mistakes) + self.gaps == before
                    if outermost or is_whole:
                        yield replace(line, block=block, is_whole=is_whole)
                else:
                    yield line
            except CorefileError as error:
                if self.imports > MAX_IMPORTS:
                    raise
                self.mistakes.append(error)

    def _define(self, line: Line) -> None:
        name = line.name[1:-1]
        if not line.braces:
            raise line.error(f"expected `{{ … }}` after the snippet name ({name})")
        if name in self.snippets:
            first = self.snippets[name]
            raise line.error(f"the snippet ({name}) is already defined at {first.path}:{first.line}")
        self.snippets[name] = line

    def _imported(self, line: Line, chain: tuple[str, ...], outermost: bool) -> Iterator[Line]:
        if len(line.args) != 1 or line.braces:
            raise line.error("expected one snippet name, file or pattern after `import`, and no block")
        source = line.args[0]
        if not source.text:
            raise source.expected("a snippet name, file or pattern after `import`")
        for name, body in self._sources(source):
            if name in chain:
                raise source.error(f"circular import: {' → '.join((*chain, name))}")
            if len(chain) == MAX_NESTING:
                raise source.error(f"imports are nested more than {MAX_NESTING} deep")
            self.imports += 1
            if self.imports > MAX_IMPORTS:
                raise source.error(f"more than {MAX_IMPORTS} imports")
            yield from self.resolved(body(), (*chain, name), outermost=outermost)

    def _sources(self, source: Token) -> Iterator[tuple[str, Callable[[], tuple[Line, ...]]]]:
        """Name and lines of the import's target; a file is parsed when the function is called."""
        if snippet := self.snippets.get(source.text):
            self.gaps += not snippet.is_whole
            yield f"({source.text})", lambda: snippet.block
            return
        pattern = posixpath.normpath(posixpath.join(posixpath.dirname(source.path), source.text))
        try:
            files = self.read(pattern)
        except (OSError, UnicodeError, ValueError) as error:
            raise source.error(f"cannot read {pattern}: {error}") from error
        if not files and not any(sign in pattern for sign in "*?["):
            if any(isinstance(mistake, BracesError) for mistake in self.mistakes):  # its definition may be unreadable
                self.gaps += 1
                return
            raise source.error(f"found no snippet ({source.text}) above this line and no file {pattern}")
        for path, text in files:
            yield path, partial(self.parse, text, path)


def _is_snippet(line: Line) -> bool:
    return len(line.words) == 1 and not line.words[0].quoted and line.name.startswith("(") and line.name.endswith(")")
