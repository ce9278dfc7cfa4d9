"""pprof [ADDRESS] { block [RATE] }: accepted, and has no effect.

Differs: Python has no profiles in pprof's format; py-spy shows the stacks of a running process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from kdns.corefile.address import host_port
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line, Stanza
from kdns.errors import CorefileError, DoubtfulError
from kdns.serverblocks.block_options import BlockOptions
from kdns.serverblocks.directive import Directive
from kdns.serverblocks.stanza import Option, configured, count, integer

INSTEAD: Final = "`py-spy dump` and `py-spy top` show the stacks of the process"


@dataclass(frozen=True, slots=True)
class PprofConfig:
    """Where the directive stands."""

    at: Token


def _block(config: PprofConfig, line: Line) -> PprofConfig:
    for token in line.args:
        integer(token, 0)
    return config


OPTIONS = {"block": Option("block [RATE]", _block)}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> PprofConfig:
    count(stanza, "pprof [ADDRESS]")
    for token in stanza.args:
        host_port(token)
    return configured(PprofConfig(stanza.words[0]), stanza, OPTIONS)


def sets_up(options: BlockOptions, _config: PprofConfig) -> BlockOptions:
    return replace(options, notes=(*options.notes, ("pprof has no effect", {"instead": INSTEAD})))


def warnings(config: PprofConfig) -> Iterator[CorefileError]:
    at = config.at
    yield DoubtfulError(at.path, at.line, at.text, f"has no effect: {INSTEAD}")


DIRECTIVE = Directive("pprof", parse, sets_up=sets_up, options=OPTIONS, warnings=warnings)
