"""root PATH: the folder of the block's files with relative names."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kdns.corefile.lines import Stanza
from kdns.serverblocks.block_options import BlockOptions
from kdns.serverblocks.directive import Directive
from kdns.serverblocks.stanza import configured, count, path_of


@dataclass(frozen=True, slots=True)
class RootConfig:
    """The folder."""

    path: str


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> RootConfig:
    """Returns the configuration of a `root` stanza; raises CorefileError."""
    count(stanza, "root PATH")
    return configured(RootConfig(path_of(stanza.args[0])), stanza, {})


def sets_up(options: BlockOptions, config: RootConfig) -> BlockOptions:
    """Sets the folder of the block's files."""
    return replace(options, root=config.path)


DIRECTIVE = Directive("root", parse, sets_up=sets_up)
