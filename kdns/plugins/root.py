"""root PATH: the folder that the block's files are in, where their names do not begin with a slash."""

from __future__ import annotations

from dataclasses import dataclass

from kdns.corefile.lines import Stanza
from kdns.dnsserver.directive import Directive, Setup
from kdns.dnsserver.stanza import configured, count


@dataclass(frozen=True, slots=True)
class RootConfig:
    """The folder."""

    path: str


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> RootConfig:
    """What a `root` stanza says; raises CorefileError."""
    count(stanza, "root PATH")
    return configured(RootConfig(stanza.args[0].text), stanza, {})


def build(config: RootConfig, setup: Setup) -> None:
    """Has the directives behind it look there: it is the first one of the chain."""
    setup.root(config.path)


DIRECTIVE = Directive("root", parse, build)
