"""loadbalance [round_robin | weighted FILE] { prefer CIDR… | reload DURATION }: the order of addresses in an answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import ip_network
from typing import Literal

from kdns.corefile.address import Network
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line, Stanza
from kdns.plugins.options import UNLIMITED, Option, configured, count, duration_s

USAGE = "loadbalance [round_robin | weighted FILE]"


@dataclass(frozen=True, slots=True)
class LoadbalanceConfig:
    """The policy; `prefer` puts addresses of these networks first.

    weighted: `weight_path` is read again every `reload_s` seconds, 0 means never; prefer stays empty.
    """

    policy: Literal["round_robin", "weighted"] = "round_robin"
    prefer: tuple[Network, ...] = ()
    weight_path: str = ""
    reload_s: float = 30.0


def _prefer(config: LoadbalanceConfig, line: Line) -> LoadbalanceConfig:
    return replace(config, prefer=config.prefer + tuple(_network(token) for token in line.args))


def _network(token: Token) -> Network:
    if "/" not in token.text:
        raise token.error("not a network in CIDR notation, such as 10.9.20.0/24")
    try:
        return ip_network(token.text, strict=False)
    except ValueError as error:
        raise token.error(f"not a network in CIDR notation: {error}") from error


def _reload(config: LoadbalanceConfig, line: Line) -> LoadbalanceConfig:
    return replace(config, reload_s=duration_s(line.args[0]))


ROUND_ROBIN_OPTIONS = {"prefer": Option("prefer CIDR...", 1, UNLIMITED, _prefer)}
WEIGHTED_OPTIONS = {"reload": Option("reload DURATION", 1, 1, _reload)}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> LoadbalanceConfig:
    """What a `loadbalance` stanza says; raises CorefileError."""
    policy = stanza.args[0].text if stanza.args else "round_robin"
    if policy == "round_robin":
        count(stanza, USAGE, 0, 1)
        return configured(LoadbalanceConfig(), stanza, ROUND_ROBIN_OPTIONS)
    if policy == "weighted":
        count(stanza, USAGE, 2, 2)
        return configured(LoadbalanceConfig("weighted", weight_path=stanza.args[1].text), stanza, WEIGHTED_OPTIONS)
    raise stanza.args[0].error(f"unknown policy, as in: {USAGE}")
