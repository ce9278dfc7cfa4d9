"""Reads a Corefile and what it imports."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kdns.corefile.imports import Reader
from kdns.corefile.parse import parse
from kdns.errors import CorefileError, InputError
from kdns.runtime.files.bounded import bounded_text
from kdns.serverblocks.config import ServerConfig, server_configs
from kdns.serverblocks.directive import Row

CHARACTERS_MAX: Final = 16 << 20
"""The longest Corefile, in characters."""


@dataclass(frozen=True, slots=True)
class Corefile:
    """A parsed Corefile: its valid servers, the `others` with mistakes, and every mistake.

    `sha512` is the hash of its text and its imports, "" for a file that could not be read.
    """

    sha512: str
    servers: tuple[ServerConfig, ...] = ()
    others: tuple[ServerConfig, ...] = ()
    errors: tuple[CorefileError, ...] = ()

    def checked(self) -> tuple[ServerConfig, ...]:
        """Raises the first mistake."""
        if self.errors:
            raise self.errors[0]
        return self.servers

    def findings(self) -> list[CorefileError]:
        """Mistakes and warnings."""
        return [*self.errors, *(warning for server in (*self.servers, *self.others) for warning in server.warnings())]


def read_corefile(
    path: str, table: Mapping[str, Row], *, dns_port: int, with_variables: Callable[[str], str] = str
) -> Corefile:
    """Does not raise for an invalid Corefile; `with_variables` replaces variables in its text.

    `table` has the directives by name.
    """
    try:
        text = bounded_text(path, CHARACTERS_MAX)
    except OSError as error:
        return Corefile("", errors=(CorefileError(path, 0, "", f"cannot be read: {error.strerror}"),))
    try:
        text = with_variables(text)
    except InputError as error:
        digest = hashlib.sha512(text.encode()).hexdigest()
        return Corefile(digest, errors=(CorefileError(path, 0, "", str(error)),))
    return corefile_of(text, path, table, dns_port=dns_port)


def corefile_of(
    text: str, path: str, table: Mapping[str, Row], *, dns_port: int, read_imports: Reader | None = None
) -> Corefile:
    """`path` is its name in errors, and imports are relative to its folder."""
    digest = hashlib.sha512(text.encode())

    def read(pattern: str) -> Sequence[tuple[str, str]]:
        files = (read_imports or _read_all)(pattern)
        for name, content in files:
            digest.update(f"\0{name}\0{content}".encode())
        return files

    mistakes: list[CorefileError] = []
    try:
        blocks = parse(text, path, environ=os.environ, read=read, mistakes=mistakes)
        servers, others, errors = server_configs(blocks, table, dns_port=dns_port, mistakes=mistakes)
    except CorefileError as error:
        return Corefile(digest.hexdigest(), errors=(error,))
    return Corefile(digest.hexdigest(), servers, others, tuple(errors))


def _read_all(pattern: str) -> Sequence[tuple[str, str]]:
    names = sorted(glob.glob(pattern))  # noqa: PTH207 - the pattern is the user's text
    return [(name, bounded_text(name, CHARACTERS_MAX)) for name in names if Path(name).is_file()]
