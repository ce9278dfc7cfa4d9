"""multisocket [N]: accepted, and without an effect: one event loop reads all sockets of the process.

Differs: CoreDNS opens N sockets for each address, so that its threads share the packets among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kdns.corefile.lines import Stanza
from kdns.dnsserver.directive import Directive, Setup
from kdns.dnsserver.stanza import configured, count, integer

MOST: Final = 1024


@dataclass(frozen=True, slots=True)
class MultisocketConfig:
    """How many sockets the Corefile asks for; 0 where it leaves that to the number of processors."""

    sockets: int = 0


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> MultisocketConfig:
    """What a `multisocket` stanza says; raises CorefileError."""
    count(stanza, "multisocket [N]")
    sockets = [integer(token, 1, MOST) for token in stanza.args]
    return configured(MultisocketConfig(*sockets), stanza, {})


def build(config: MultisocketConfig, setup: Setup) -> None:
    """Says in the log that one socket is what there is."""
    setup.log("info", "multisocket has no effect: one event loop reads all sockets", sockets=config.sockets)


DIRECTIVE = Directive("multisocket", parse, build)
