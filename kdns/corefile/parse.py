"""A Corefile's text → server blocks. Directives are interpreted by kdns.serverblocks.config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kdns.corefile.address import ZoneAddress, zone_addresses
from kdns.corefile.imports import Importer, Reader, no_files
from kdns.corefile.lexer import expanded, tokens
from kdns.corefile.lines import Line, Stanza, lines
from kdns.errors import CorefileError

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ServerBlock:
    """Zones, directives, and mistakes that do not hide others; without `braces` it is the only block.

    `is_whole` is False if a part of it could not be read.
    """

    path: str
    line: int
    addresses: tuple[ZoneAddress, ...]
    stanzas: tuple[Stanza, ...]
    braces: bool = True
    mistakes: tuple[CorefileError, ...] = ()
    is_whole: bool = True


def parse(
    text: str,
    path: str = "Corefile",
    *,
    environ: Mapping[str, str] = NO_VARIABLES,
    read: Reader = no_files,
    mistakes: list[CorefileError] | None = None,
) -> tuple[ServerBlock, ...]:
    """Returns the server blocks (at least one) in order, imports and variables resolved; raises CorefileError.

    Mistakes in single options are in the blocks, those of the grammar and of imports in `mistakes`, if it is given.
    Differs: a Corefile without a server block is an error; CoreDNS starts and answers nothing.
    """
    errors: list[CorefileError] = [] if mistakes is None else mistakes

    def shape(text: str, path: str) -> tuple[Line, ...]:
        return lines(expanded(tokens(text, path), environ), errors)

    outer = tuple(Importer(shape, read, errors).resolved(shape(text, path)))
    if mistakes is None and errors:
        raise errors[0]
    if not outer and not errors:
        raise CorefileError(path, 1, "", "expected a server block; the smallest one is `. { }`")
    return tuple(_server_blocks(outer))


def _server_blocks(outer: tuple[Line, ...]) -> Iterator[ServerBlock]:
    for index, line in enumerate(outer):
        stanzas = line.block if line.braces else outer[index + 1 :]
        mistakes: list[CorefileError] = []
        addresses = tuple(zone_addresses(line.words, mistakes))
        mistakes += [
            option.error(f"an option of `{stanza.name}` cannot have a block")
            for stanza in stanzas
            for option in stanza.block
            if option.braces
        ]
        yield ServerBlock(line.path, line.line, addresses, stanzas, line.braces, tuple(mistakes), line.is_whole)
        if not line.braces:
            return
