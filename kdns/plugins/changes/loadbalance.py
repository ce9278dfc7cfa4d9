"""loadbalance [round_robin | weighted FILE] { prefer CIDR… | reload DURATION }: the order of addresses in an answer.

It applies to the answers of all directives of its block, except zone transfers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Final, Literal

from kdns.answers.chain import Plugin, Sees
from kdns.answers.order import Order, Weights
from kdns.answers.response import EVERYTHING
from kdns.corefile.address import name
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Stanza
from kdns.errors import CorefileError, first_of
from kdns.net import Network, packed
from kdns.serverblocks.directive import Directive, Repeat, World
from kdns.serverblocks.stanza import Option, adds, configured, count, duration_s, integer, path_of, sets

MAX_WEIGHT = 255
USAGE = "loadbalance [round_robin | weighted FILE]"


@dataclass(frozen=True, slots=True)
class LoadbalanceConfig:
    """`prefer` sorts addresses of these networks first; empty for `weighted`.

    `weight_path` is checked every `reload_s` seconds, 0: never.
    """

    policy: Literal["round_robin", "weighted"] = "round_robin"
    prefer: tuple[Network, ...] = ()
    weight_path: str = ""
    reload_s: float = 30.0

    def order(self, weights: Weights) -> Order:
        return Order(rotate=True, prefer=self.prefer, weights=weights)


def _network(token: Token) -> Network:
    if "/" not in token.text:
        raise token.expected("a network in CIDR notation, such as 10.9.20.0/24")
    try:
        return ip_network(token.text, strict=False)
    except ValueError as error:
        raise token.error(f"expected a network in CIDR notation: {error}") from error


ROUND_ROBIN_OPTIONS = {"prefer": Option("prefer CIDR...", adds("prefer", _network))}
WEIGHTED_OPTIONS = {"reload": Option("reload DURATION", sets("reload_s", duration_s))}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> LoadbalanceConfig:
    policy = stanza.args[0].text if stanza.args else "round_robin"
    if policy == "round_robin":
        count(stanza, USAGE, (0, 1))
        return configured(LoadbalanceConfig(), stanza, ROUND_ROBIN_OPTIONS)
    if policy == "weighted":
        count(stanza, USAGE, (2, 2))
        return configured(LoadbalanceConfig("weighted", weight_path=path_of(stanza.args[1])), stanza, WEIGHTED_OPTIONS)
    raise stanza.args[0].error(f"unknown policy; expected `{USAGE}`")


def parse_weights(text: str, path: str) -> Weights:
    """A weight file: a name on a line of its own, then lines of an address and its weight.

    Blank lines and lines that begin with # are ignored. A name may be repeated; the first weight of an address applies.
    Raises CorefileError with the file's own lines.
    """
    weights: dict[str, dict[bytes, int]] = {}
    mistakes: list[CorefileError] = []
    of_name: dict[bytes, int] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        words = [Token(path, number, word) for word in line.split()]
        if not words or words[0].text.startswith("#"):
            continue
        try:
            if len(words) == 1:
                of_name = weights.setdefault(_weighted_name(words[0]), {})
            else:
                address, weight = _weight(words)
                if of_name is None:
                    raise words[0].error("expected a name before the first address")
                of_name.setdefault(address, weight)
        except CorefileError as error:
            mistakes.append(error)
            of_name = {} if of_name is None else of_name
    if mistakes:
        raise first_of(mistakes)
    return weights


def _weighted_name(word: Token) -> str:
    if packed(word.text):
        raise word.error(f"expected a weight from 1 to {MAX_WEIGHT} after the address")
    return name(word)


def _weight(words: Sequence[Token]) -> tuple[bytes, int]:
    if len(words) > 2:
        raise words[2].error("one word too many; expected a name alone, or an address and its weight")
    address = packed(words[0].text)
    if not address:
        raise words[0].expected("an IP address")
    return address, integer(words[1], 1, MAX_WEIGHT)


class Loadbalance(Plugin):
    """Decides the order of addresses in the block's answers; a new order drops all answers from the table.

    Differs: a missing weight file is an error at the start; CoreDNS starts if the file is reloaded.
    """

    sees = Sees.PACKET

    def __init__(self, config: LoadbalanceConfig, world: World) -> None:
        self._config = config
        self._world = world
        self.order = config.order({})
        if config.weight_path:
            world.watch_file("weight file", config.weight_path, config.reload_s, self._use, parse=self._parse)

    def _parse(self, text: str) -> Order:
        return self._config.order(parse_weights(text, self._config.weight_path))

    def _use(self, order: Order) -> None:
        self.order = order
        self._world.forget((EVERYTHING,))


OPTIONS = {**ROUND_ROBIN_OPTIONS, **WEIGHTED_OPTIONS}
DIRECTIVE: Final = Directive(USAGE, LoadbalanceConfig, Loadbalance, OPTIONS, Repeat.LAST, parse=parse)
