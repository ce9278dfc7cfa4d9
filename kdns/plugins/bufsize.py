"""bufsize [SIZE]: the largest answer over UDP, whatever the client can take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kdns.corefile.lines import Stanza
from kdns.dns.answer import MAX_UDP_BYTES
from kdns.dns.query import PLAIN_PAYLOAD_BYTES
from kdns.plugins.directive import Directive, Repeat, Setup
from kdns.plugins.stanza import configured, count, integer

MOST_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class BufsizeConfig:
    """The limit in bytes."""

    size_bytes: int = MAX_UDP_BYTES


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> BufsizeConfig:
    """What a `bufsize` stanza says; raises CorefileError."""
    count(stanza, "bufsize [SIZE]", 0, 1)
    sizes = [integer(token, PLAIN_PAYLOAD_BYTES, MOST_BYTES) for token in stanza.args]
    return configured(BufsizeConfig(*sizes), stanza, {})


def build(configs: tuple[BufsizeConfig, ...], setup: Setup) -> None:
    """Limits the answers of the server block."""
    (config,) = configs
    setup.limit_udp(config.size_bytes)


DIRECTIVE = Directive("bufsize", parse, build, Repeat.LAST)
