"""multisocket [N]: N processes, each a whole server at the same addresses; see kdns.dnsserver.io.workers.supervisor.

Differs: CoreDNS opens N sockets for each address in one process; N is one for the whole server here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Final

from kdns.corefile.lines import Stanza
from kdns.serverblocks.block_options import BlockOptions
from kdns.serverblocks.directive import Directive
from kdns.serverblocks.stanza import configured, count, integer

MOST: Final = 1024


@dataclass(frozen=True, slots=True)
class MultisocketConfig:
    """The number of processes; 0 for one for each processor."""

    sockets: int = 0


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> MultisocketConfig:
    """Returns the configuration of a `multisocket` stanza; raises CorefileError."""
    count(stanza, "multisocket [N]")
    sockets = [integer(token, 1, MOST) for token in stanza.args]
    return configured(MultisocketConfig(*sockets), stanza, {})


def sets_up(options: BlockOptions, config: MultisocketConfig) -> BlockOptions:
    """Sets the number of processes."""
    return replace(options, processes=config.sockets or inf)


DIRECTIVE = Directive("multisocket", parse, sets_up=sets_up)
