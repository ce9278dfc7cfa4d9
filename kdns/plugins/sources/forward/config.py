"""forward FROM TO… { … }: configuration and grammar.

The options are CoreDNS's; `max_age` and `max_connect_attempts` are those of 1.14.
Differs: a network as FROM means all its reverse zones; CoreDNS takes the first and warns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from kdns.corefile.address import all_zones, name, zones
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line, Stanza
from kdns.dns.types import NOERROR, rcode_number
from kdns.net import HostPort
from kdns.plugins.sources.forward.targets import File, Target, target_of
from kdns.serverblocks.stanza import (
    Option,
    adds,
    adds_all,
    choice,
    configured,
    count,
    dns_address,
    duration_s,
    flag,
    integer,
    ip,
    mnemonic,
    path_of,
    positive_s,
    sets,
    sets_all,
)
from kdns.upstream.upstream import TlsSpec, UpstreamSpec

Policy = Literal["random", "round_robin", "sequential"]
POLICIES: Final[tuple[Policy, ...]] = ("random", "round_robin", "sequential")
USAGE: Final = "forward FROM TO..."
MAX_UPSTREAMS: Final = 15
MAX_COUNT: Final = 2**32 - 1
MAX_RESOLVERS: Final = 3
RESOLVER: Final = "the address of a resolver: IP, IP:PORT or [IPV6]:PORT"
NO_TLS: Final = TlsSpec()


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """Queries a failed upstream for NS of `domain` until it answers."""

    interval_s: float = 0.5
    recursion_desired: bool = True
    domain: str = "."


@dataclass(frozen=True, slots=True)
class ForwardConfig:
    """One stanza: names in `zones` are forwarded to `targets`, except those in `excluded`.

    `tls` is for tls:// and https://. `max_connect_attempts` None: two for each upstream; 0: no limit. `max_concurrent`
    0: no limit. `next_rcodes` lead to the next stanza, `failover_rcodes` to the next upstream.
    """

    zones: tuple[str, ...]
    targets: tuple[Target | File, ...]
    excluded: tuple[str, ...] = ()
    force_tcp: bool = False
    prefer_udp: bool = False
    expire_s: float = 10.0
    max_age_s: float | None = None
    max_idle: int | None = None
    read_timeout_s: float = 2.0
    max_fails: int = 2
    max_connect_attempts: int | None = None
    doh_method: Literal["GET", "POST"] = "POST"
    tls: TlsSpec = NO_TLS
    policy: Policy = "random"
    health_check: HealthCheck = HealthCheck()
    max_concurrent: int = 0
    next_rcodes: tuple[int, ...] = ()
    next_on_nodata: bool = False
    failfast: bool = False
    failover_rcodes: tuple[int, ...] = ()
    resolvers: tuple[HostPort, ...] = ()
    source_address: str = ""

    def spec(self, target: Target) -> UpstreamSpec:
        source = self.source_address
        return UpstreamSpec(
            address=target.address,
            scheme=target.scheme,
            tls=replace(self.tls, server_name=target.server_name or self.tls.server_name)
            if target.scheme != "dns"
            else NO_TLS,
            expire_s=self.expire_s,
            max_age_s=self.max_age_s,
            max_idle=self.max_idle,
            source_address=source if source and (":" in source) == (":" in target.host) else "",
            doh_method=self.doh_method,
        )


def _doh_method(token: Token) -> str:
    return choice(replace(token, text=token.text.upper()), ("GET", "POST"))


def _tls(config: ForwardConfig, line: Line) -> ForwardConfig:
    """No files, CA, certificate and key, or certificate, key and CA."""
    paths = [path_of(token) for token in line.args]
    certificate, key = paths[:2] if len(paths) > 1 else ("", "")
    authority = paths[-1] if len(paths) in {1, 3} else ""
    return replace(config, tls=replace(config.tls, ca_path=authority, cert_path=certificate, key_path=key))


def _tls_servername(config: ForwardConfig, line: Line) -> ForwardConfig:
    (token,) = line.args
    return replace(config, tls=replace(config.tls, server_name=name(token).removesuffix(".")))


def _health_check(args: Sequence[Token]) -> HealthCheck:
    check = HealthCheck(duration_s(args[0]))
    words = iter(args[1:])
    for word in words:
        if word.text == "no_rec":
            check = replace(check, recursion_desired=False)
        elif word.text == "domain":
            queried = next(words, None)
            if queried is None:
                raise word.error("expected a name to query after `domain`")
            check = replace(check, domain=name(queried))
        else:
            raise word.expected("no_rec or domain NAME")
    return check


def _rcode(token: Token) -> int:
    return mnemonic(token, rcode_number, "the name of a response code, such as NXDOMAIN or SERVFAIL", folds=True)


def _failure(token: Token) -> int:
    rcode = _rcode(token)
    if rcode == NOERROR:
        raise token.expected("a response code of an error: an upstream that answers NOERROR has not failed")
    return rcode


def _resolver(config: ForwardConfig, line: Line) -> ForwardConfig:
    resolvers = (*config.resolvers, *(dns_address(word, RESOLVER) for word in line.args))
    if len(resolvers) > MAX_RESOLVERS:
        raise line.args[-1].error(f"expected at most {MAX_RESOLVERS} resolvers")
    return replace(config, resolvers=resolvers)


OPTIONS: Final = {
    "except": Option("except ZONE...", adds_all("excluded", all_zones)),
    "force_tcp": Option("force_tcp", flag("force_tcp")),
    "prefer_udp": Option("prefer_udp", flag("prefer_udp")),
    "expire": Option("expire DURATION", sets("expire_s", duration_s)),
    "max_age": Option("max_age DURATION", sets("max_age_s", lambda word: duration_s(word) or None)),
    "max_idle_conns": Option("max_idle_conns N", sets("max_idle", lambda word: integer(word, 0, MAX_COUNT) or None)),
    "read_timeout": Option("read_timeout DURATION", sets("read_timeout_s", positive_s)),
    "max_fails": Option("max_fails N", sets("max_fails", integer, 0, MAX_COUNT)),
    "max_connect_attempts": Option("max_connect_attempts N", sets("max_connect_attempts", integer, 0, MAX_COUNT)),
    "doh_method": Option("doh_method GET|POST", sets("doh_method", _doh_method)),
    "tls": Option("tls [CERT KEY] [CA]", _tls),
    "tls_servername": Option("tls_servername NAME", _tls_servername),
    "policy": Option("policy random|round_robin|sequential", sets("policy", choice, POLICIES)),
    "health_check": Option("health_check DURATION [no_rec] [domain NAME]", sets_all("health_check", _health_check)),
    "max_concurrent": Option("max_concurrent N", sets("max_concurrent", integer, 0, MAX_COUNT)),
    "next": Option("next RCODE...", adds("next_rcodes", _rcode)),
    "next_on_nodata": Option("next_on_nodata", flag("next_on_nodata")),
    "failfast_all_unhealthy_upstreams": Option("failfast_all_unhealthy_upstreams", flag("failfast")),
    "failover": Option("failover RCODE...", adds("failover_rcodes", _failure)),
    "resolver": Option("resolver ADDRESS...", _resolver),
    "source_address": Option("source_address ADDRESS", sets("source_address", ip)),
}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> ForwardConfig:
    count(stanza, USAGE)
    source, *words = stanza.args
    if len(words) > MAX_UPSTREAMS:
        raise words[MAX_UPSTREAMS].error(f"expected at most {MAX_UPSTREAMS} upstreams")
    config = configured(ForwardConfig(zones(source), tuple(map(target_of, words))), stanza, OPTIONS)
    if config.max_age_s is not None and config.max_age_s < config.expire_s:
        wrong = next(line.args[0] for line in reversed(stanza.block) if line.name == "max_age")
        raise wrong.error(f"expected a max_age of at least expire, which is {config.expire_s:g} s")
    server_name = config.tls.server_name
    for target in config.targets:
        if server_name and isinstance(target, Target) and target.scheme != "dns" and target.zone and target.token:
            raise target.token.error(
                f"the name in the certificate is also set by tls_servername, to {server_name}; remove one"
            )
    return config
