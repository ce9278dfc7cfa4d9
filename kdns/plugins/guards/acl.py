"""acl [ZONES…] { allow|block|filter|drop [type QTYPE…] [net SOURCE…] }: rules about clients, names and types.

The first matching rule applies, in the order of rules and stanzas.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_network
from typing import Final, Literal, TypeAlias, get_args

from kdns.answers.chain import Plugin, Reply, Request, Sees, Serve, ServeResult, for_one_client, then
from kdns.answers.response import Response, Reuse
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line
from kdns.dns.names import ZoneSet, text_of
from kdns.dns.query import extended_error
from kdns.dns.types import BLOCKED, FILTERED, NOERROR, REFUSED, type_number
from kdns.net import Network, client_address
from kdns.serverblocks.directive import Directive, Repeat, World
from kdns.serverblocks.stanza import Option, mnemonic
from kdns.tally import Tally
from kdns.values import evolve

Action: TypeAlias = Literal["allow", "block", "filter", "drop"]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
SECTIONS: Final = ("type", "net")
USAGE: Final = "[type QTYPE...] [net SOURCE...]"

REPLIES: Final[dict[Action, Reply]] = {
    "block": Response(REFUSED, options=(extended_error(BLOCKED),), reuse=Reuse(), plugin="acl"),
    "filter": Response(NOERROR, options=(extended_error(FILTERED),), reuse=Reuse(), plugin="acl"),
    "drop": None,
}
"""Options are sent to clients that sent an OPT (RFC 6891 §7)."""
COUNTED: Final = {"block": "blocked", "filter": "filtered", "drop": "dropped"}


@dataclass(frozen=True, slots=True)
class Rule:
    """The action on queries for one of `qtypes` from one of `networks`; None: all types, all clients."""

    action: Action
    qtypes: frozenset[int] | None = None
    networks: tuple[Network, ...] | None = None


@dataclass(frozen=True, slots=True)
class AclConfig:
    """The rules for names in `zones`."""

    zones: tuple[str, ...]
    rules: tuple[Rule, ...] = ()


class Networks:
    """A set of networks; `in` takes one look-up for each prefix length."""

    __slots__ = ("_prefixes",)

    def __init__(self, networks: Iterable[Network]) -> None:
        self._prefixes: dict[int, dict[int, set[int]]] = {4: {}, 16: {}}
        for network in networks:
            host_bits = network.max_prefixlen - network.prefixlen
            prefixes = self._prefixes[network.max_prefixlen // 8].setdefault(host_bits, set())
            prefixes.add(int(network.network_address) >> host_bits)

    def __contains__(self, address: bytes) -> bool:
        number = int.from_bytes(address, "big")
        prefixes = self._prefixes.get(len(address), {})
        return any(number >> host_bits in networks for host_bits, networks in prefixes.items())


class Acl(Plugin):
    """Answers, drops or passes on each query; without a rule about networks by the packet only."""

    takes_notify = True

    def __init__(self, configs: Iterable[AclConfig], world: World) -> None:
        self._rules = [
            (zones, rule, None if rule.networks is None else Networks(rule.networks))
            for zones, config in ((ZoneSet(config.zones), config) for config in configs)
            for rule in config.rules
        ]
        has_networks = any(networks is not None for *_, networks in self._rules)
        self.sees = Sees.EVERY if has_networks else Sees.PACKET
        by_zone, text = ("server", "zone", "view"), "Queries that a rule"
        self._families = {
            action: world.counters(f"coredns_acl_{word}_requests", f"{text} {word}.", by_zone)
            for action, word in COUNTED.items()
        }
        name = "coredns_acl_allowed_requests"
        self._allowed = world.counters(name, "Queries that were allowed.", ("server", "view"))

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        action, zone, is_of_client = self._decision(request)
        reply: ServeResult
        if action == "allow":
            allowed = self._allowed.tally(request.server, request.view)
            reply = then(next(request), partial(_tallied, allowed))
        else:
            tally = self._families[action].tally(request.server, zone, request.view)
            reply = _tallied(tally, REPLIES[action])
        # an internal query for a CNAME's target: a cache in front of its caller serves all clients
        return then(reply, for_one_client) if is_of_client and request.depth else reply

    def _decision(self, request: Request) -> tuple[Action, str, bool]:
        query = request.query
        client: bytes | None = None
        for zones, rule, networks in self._rules:
            zone = zones.closest(query.labels)
            if zone is None or not (rule.qtypes is None or query.qtype in rule.qtypes):
                continue
            if networks is not None:
                client = client_address(request.client[0]) if client is None else client
                if client not in networks:
                    continue
            return rule.action, text_of(zone), client is not None
        return "allow", "", client is not None


def _tallied(tally: Tally, reply: Reply) -> Reply:
    """Counts the reply when it is sent; silence now."""
    if reply is None:
        tally.count += 1
        return None
    return evolve(reply, tallies=(*reply.tallies, tally))


def _rule(config: AclConfig, line: Line) -> AclConfig:
    action = next(action for action in ACTIONS if action == line.name)
    rule = Rule(action)
    for name, tokens in _sections(line):
        if any(token.text == "*" for token in tokens):
            continue
        if name == "type":
            rule = replace(rule, qtypes=(rule.qtypes or frozenset()) | {_qtype(token) for token in tokens})
        else:
            rule = replace(rule, networks=(*(rule.networks or ()), *(_network(token) for token in tokens)))
    return replace(config, rules=(*config.rules, rule))


def _sections(line: Line) -> list[tuple[str, list[Token]]]:
    sections: list[tuple[str, list[Token]]] = []
    for token in line.args:
        if token.text.lower() in SECTIONS:
            sections.append((token.text.lower(), []))
        elif not sections:
            raise token.expected(f"`type` or `net`, as in `{line.name} {USAGE}`")
        else:
            sections[-1][1].append(token)
    for name, tokens in sections:
        if not tokens:
            raise line.error(f"an argument is missing after `{name}`; expected `{line.name} {USAGE}`")
    return sections


def _qtype(token: Token) -> int:
    return mnemonic(token, type_number, "a record type, such as A or AAAA, or * for all")


def _network(token: Token) -> Network:
    try:
        return ip_network(token.text, strict=False)
    except ValueError:
        raise token.expected("an IP address, a network such as 10.0.0.0/8, or * for all") from None


OPTIONS: Final[dict[str, Option]] = {action: Option(f"{action} {USAGE}", _rule) for action in ACTIONS}


DIRECTIVE: Final = Directive("acl [ZONES...]", AclConfig, Acl, OPTIONS, Repeat.ADD, folds=True)
