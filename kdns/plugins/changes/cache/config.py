"""cache [TTL] [ZONES…] { … }: configuration and grammar.

Differs: CAPACITY is exact; CoreDNS rounds it to a multiple of 256, and up to 1024.
Differs: PERCENT of `prefetch` may be from 1% to 100%; CoreDNS takes 10% to 90%.
Differs: several `disable` of one kind add up; in CoreDNS the last one applies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from kdns.corefile.address import all_zones
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line, Stanza
from kdns.serverblocks.stanza import Option, configured, duration_s, flag, integer, sets, sets_all

DEFAULT_CAPACITY: Final = 9984
MAX_POSITIVE_TTL_S: Final = 3600
MAX_NEGATIVE_TTL_S: Final = 1800
MIN_TTL_S: Final = 5
FAILURE_TTL_S: Final = 5.0
MAX_FAILURE_TTL_S: Final = 300.0
"""RFC 2308 §7.1, RFC 9520 §3.2."""
STALE_TTL_S: Final = 30
"""The TTL of stale records (RFC 8767 §4)."""
MAX_RECHECK_S: Final = 300.0
MAX_TTL_S: Final = (1 << 32) - 1
STALE_USAGE: Final = "serve_stale [DURATION] [immediate|verify [TIMEOUT]] [RESPONSE_TTL [RECHECK]]"

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one kind of items."""

    capacity: int
    max_ttl_s: int
    min_ttl_s: int = MIN_TTL_S

    def clamped(self, ttl_s: int) -> int:
        return min(max(ttl_s, self.min_ttl_s), self.max_ttl_s)


@dataclass(frozen=True, slots=True)
class PrefetchConfig:
    """Refreshes an item in the last `percent` of its TTL, if it was used `amount` times with gaps up to `gap_s`."""

    amount: int
    gap_s: float = 60.0
    percent: int = 10


@dataclass(frozen=True, slots=True)
class StaleConfig:
    """Expired answers are served for `max_age_s` more, with a TTL of `ttl_s`.

    With `verify` only if a refresh fails or takes longer than `timeout_s`, 0: no timeout.
    After a failure the next refresh is `recheck_s` later, 0: with the next question.
    """

    max_age_s: float = 3600.0
    verify: bool = False
    timeout_s: float = 0.0
    ttl_s: int = 0
    recheck_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """Answers of the zones `disabled_success` and `disabled_denial` are not cached."""

    zones: tuple[str, ...]
    success: Limits = Limits(DEFAULT_CAPACITY, MAX_POSITIVE_TTL_S)
    denial: Limits = Limits(DEFAULT_CAPACITY, MAX_NEGATIVE_TTL_S)
    failure_ttl_s: float = FAILURE_TTL_S
    prefetch: PrefetchConfig | None = None
    stale: StaleConfig | None = None
    prefer_positive: bool = False
    keep_ttl: bool = False
    disabled_success: tuple[str, ...] = ()
    disabled_denial: tuple[str, ...] = ()


def _limits(field: str, config: CacheConfig, line: Line) -> CacheConfig:
    limits = replace(getattr(config, field), capacity=integer(line.args[0], 0))
    if len(line.args) > 1:
        limits = replace(limits, max_ttl_s=integer(line.args[1], 1, MAX_TTL_S))
    if len(line.args) > 2:
        limits = replace(limits, min_ttl_s=integer(line.args[2], 0, MAX_TTL_S))
    return replace(config, **{field: limits})


def _prefetch(args: Sequence[Token]) -> PrefetchConfig | None:
    prefetch = PrefetchConfig(integer(args[0], 0))
    if len(args) > 1:
        prefetch = replace(prefetch, gap_s=duration_s(args[1]))
    if len(args) > 2:
        percent = args[2]
        if not percent.text.endswith("%"):
            raise percent.expected("a percentage, such as 10%")
        prefetch = replace(prefetch, percent=integer(replace(percent, text=percent.text[:-1]), 1, 100))
    return prefetch if prefetch.amount else None


def _stale(words: Sequence[Token]) -> StaleConfig:
    args = list(words)
    stale = StaleConfig(duration_s(args.pop(0))) if args else StaleConfig()
    if args:
        mode = args.pop(0)
        if mode.text.lower() not in {"immediate", "verify"}:
            raise mode.expected("one of immediate, verify")
        stale = replace(stale, verify=mode.text.lower() == "verify")
    if args and stale.verify:
        stale = replace(stale, timeout_s=duration_s(args.pop(0)))
    if args:
        stale = replace(stale, ttl_s=_whole_seconds(args.pop(0)))
    if args:
        stale = replace(stale, recheck_s=_at_most(args.pop(0), MAX_RECHECK_S))
    if args:
        raise args[0].error(f"one argument too many; expected `{STALE_USAGE}`")
    return stale


def _whole_seconds(token: Token) -> int:
    seconds = duration_s(token)
    if seconds != int(seconds) or seconds > MAX_TTL_S:
        raise token.expected(f"a TTL of whole seconds up to {MAX_TTL_S}s")
    return int(seconds)


def _at_most(token: Token, most_s: float) -> float:
    seconds = duration_s(token)
    if seconds > most_s:
        raise token.expected(f"a duration of at most {most_s / 60:g} minutes")
    return seconds


def _serve_stale_policy(config: CacheConfig, line: Line) -> CacheConfig:
    if line.args[0].text.lower() != "prefer_positive":
        raise line.args[0].expected("the policy prefer_positive")
    return replace(config, prefer_positive=True)


def _disable(config: CacheConfig, line: Line) -> CacheConfig:
    zones = all_zones(line.args[1:]) or config.zones
    match line.args[0].text:
        case "success":
            return replace(config, disabled_success=(*config.disabled_success, *zones))
        case "denial":
            return replace(config, disabled_denial=(*config.disabled_denial, *zones))
    raise line.args[0].expected("one of success, denial")


OPTIONS: Final = {
    "success": Option("success CAPACITY [TTL] [MINTTL]", partial(_limits, "success")),
    "denial": Option("denial CAPACITY [TTL] [MINTTL]", partial(_limits, "denial")),
    "prefetch": Option("prefetch AMOUNT [DURATION] [PERCENT%]", sets_all("prefetch", _prefetch)),
    "serve_stale": Option(STALE_USAGE, sets_all("stale", _stale)),
    "serve_stale_policy": Option("serve_stale_policy prefer_positive", _serve_stale_policy, once=True),
    "servfail": Option("servfail DURATION", sets("failure_ttl_s", _at_most, MAX_FAILURE_TTL_S)),
    "disable": Option("disable success|denial [ZONES...]", _disable),
    "keepttl": Option("keepttl", flag("keep_ttl")),
}


def parse(stanza: Stanza, zones: tuple[str, ...]) -> CacheConfig:
    args = stanza.args
    config = CacheConfig(zones)
    if args and _INTEGER.fullmatch(args[0].text):
        ttl_s = integer(args[0], 1, MAX_TTL_S)
        config = replace(
            config,
            success=replace(config.success, max_ttl_s=ttl_s),
            denial=replace(config.denial, max_ttl_s=ttl_s),
        )
        args = args[1:]
    config = configured(replace(config, zones=all_zones(args) or zones), stanza, OPTIONS)
    if config.prefer_positive and config.stale is None:
        wrong = next(line for line in stanza.block if line.name == "serve_stale_policy")
        raise wrong.error("`serve_stale_policy` has no effect without `serve_stale`")
    return config
