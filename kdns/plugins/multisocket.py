"""multisocket [N]: accepted, and without an effect: one event loop reads all sockets of the process.

Differs: CoreDNS opens N sockets for each address, so that its threads share the packets among them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kdns.corefile.lines import Stanza
from kdns.dnsserver.block_options import BlockOptions
from kdns.dnsserver.directive import Directive
from kdns.dnsserver.stanza import configured, count, integer

MOST: Final = 1024


@dataclass(frozen=True, slots=True)
class MultisocketConfig:
    """How many sockets the Corefile asks for; 0 where it leaves that to the number of processors."""

    sockets: int = 0


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> MultisocketConfig:
    """Returns the configuration of a `multisocket` stanza; raises CorefileError."""
    count(stanza, "multisocket [N]")
    sockets = [integer(token, 1, MOST) for token in stanza.args]
    return configured(MultisocketConfig(*sockets), stanza, {})


def sets_up(options: BlockOptions, config: MultisocketConfig) -> BlockOptions:
    """Says in the log that one socket is what there is."""
    note = ("multisocket has no effect: one event loop reads all sockets", {"sockets": config.sockets})
    return replace(options, notes=(*options.notes, note))


DIRECTIVE = Directive("multisocket", parse, sets_up=sets_up)
