"""The directives of kdns, and server blocks → what each server does.

A directive that only CoreDNS has is refused by name, so that nobody takes it for a typing error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

from kdns.corefile.address import DEFAULT_PORTS, ZoneAddress
from kdns.corefile.lines import Stanza
from kdns.corefile.parse import ServerBlock
from kdns.errors import CorefileError
from kdns.plugins import bind, errors, health, kubernetes, loadbalance, log, prometheus, ready

T = TypeVar("T")

Parser = Callable[[Stanza, tuple[str, ...]], object]

DIRECTIVES: dict[str, Parser] = {
    "bind": bind.parse,
    "ready": ready.parse,
    "health": health.parse,
    "prometheus": prometheus.parse,
    "errors": errors.parse,
    "log": log.parse,
    "loadbalance": loadbalance.parse,
    "kubernetes": kubernetes.parse,
}
"""Name → what reads its stanza, in CoreDNS's order of execution: that order, not the Corefile's, is the chain's."""

ADDING_UP = frozenset({"bind", "log"})
"""Directives that may be repeated: all stanzas count."""
LAST_ONE_COUNTS = frozenset({"health", "loadbalance"})
"""Directives that may be repeated, as in CoreDNS: an imported file may override what stands above it."""

# fmt: off
KNOWN_ELSEWHERE = frozenset((
    "acl", "any", "auto", "autopath", "azure", "bufsize", "cache", "cancel", "chaos", "clouddns", "debug", "dns64",
    "dnssec", "dnstap", "erratic", "etcd", "file", "forward", "geoip", "grpc", "grpc_server", "header", "hosts",
    "https", "https3", "k8s_external", "local", "loop", "metadata", "minimal", "multisocket", "nomad", "nsid", "on",
    "pprof", "proxyproto", "quic", "reload", "rewrite", "root", "route53", "secondary", "shed", "sign", "template",
    "timeouts", "tls", "trace", "transfer", "tsig", "view", "whoami",
))
# fmt: on
"""Directives of CoreDNS 1.14 that kdns does not have."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server block, understood. None and () stand for directives that it does not have."""

    path: str
    line: int
    addresses: tuple[ZoneAddress, ...]
    bind: tuple[bind.BindConfig, ...] = ()
    ready: ready.ReadyConfig | None = None
    health: health.HealthConfig | None = None
    prometheus: prometheus.PrometheusConfig | None = None
    errors: errors.ErrorsConfig | None = None
    log: tuple[log.LogConfig, ...] = ()
    loadbalance: loadbalance.LoadbalanceConfig | None = None
    kubernetes: kubernetes.KubernetesConfig | None = None

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones of the block, each once."""
        return tuple(dict.fromkeys(address.zone for address in self.addresses))


def configure(
    blocks: Iterable[ServerBlock], *, dns_port: int = DEFAULT_PORTS["dns"], schemes: Collection[str] = ("dns",)
) -> tuple[ServerConfig, ...]:
    """The servers that the blocks ask for, in order; raises CorefileError.

    `dns_port` stands in for a missing port of dns://, `schemes` are those that can be served.
    """
    servers = tuple(_server(block) for block in blocks)
    for server in servers:
        for address in server.addresses:
            if address.scheme not in schemes:
                served = ", ".join(f"{scheme}://" for scheme in schemes)
                raise _at(server, address, f"kdns does not serve {address.scheme}:// (yet); it serves {served}")
    _refuse_overlaps(servers, dns_port)
    return servers


def _server(block: ServerBlock) -> ServerConfig:
    _refuse_missing_zones(block)
    zones = tuple(dict.fromkeys(address.zone for address in block.addresses))
    seen: dict[str, Stanza] = {}
    parsed: dict[str, list[object]] = {name: [] for name in DIRECTIVES}
    for stanza in block.stanzas:
        parse = DIRECTIVES.get(stanza.name)
        if parse is None:
            raise stanza.error(_unknown(stanza, block))
        first = seen.setdefault(stanza.name, stanza)
        if first is not stanza and stanza.name not in ADDING_UP | LAST_ONE_COUNTS:
            raise stanza.error(
                f"`{stanza.name}` may stand only once in a server block; first at {first.path}:{first.line}"
            )
        parsed[stanza.name].append(parse(stanza, zones))
    return ServerConfig(
        block.path,
        block.line,
        block.addresses,
        bind=_all(bind.BindConfig, parsed["bind"]),
        ready=_last(ready.ReadyConfig, parsed["ready"]),
        health=_last(health.HealthConfig, parsed["health"]),
        prometheus=_last(prometheus.PrometheusConfig, parsed["prometheus"]),
        errors=_last(errors.ErrorsConfig, parsed["errors"]),
        log=_all(log.LogConfig, parsed["log"]),
        loadbalance=_last(loadbalance.LoadbalanceConfig, parsed["loadbalance"]),
        kubernetes=_last(kubernetes.KubernetesConfig, parsed["kubernetes"]),
    )


def _all(kind: type[T], configs: Iterable[object]) -> tuple[T, ...]:
    return tuple(config for config in configs if isinstance(config, kind))


def _last(kind: type[T], configs: Iterable[object]) -> T | None:
    found = _all(kind, configs)
    return found[-1] if found else None


def _refuse_missing_zones(block: ServerBlock) -> None:
    """`errors` in the first line of a file without braces would be a zone: nobody means that."""
    for address in block.addresses:
        if not block.braces and address.token and address.token.text in DIRECTIVES:
            name = address.token.text
            raise address.token.error(
                f"a zone is wanted here and `{name}` is a directive: begin with a line such as `.:53`"
            )


def _unknown(stanza: Stanza, block: ServerBlock) -> str:
    name = stanza.name
    if name in KNOWN_ELSEWHERE:
        return f"kdns does not have the directive `{name}` (CoreDNS does)"
    if stanza.braces and not block.braces:
        return f"unknown directive `{name}`; if it is a zone: with more than one server block each needs {{ braces }}"
    meant = get_close_matches(name, (*DIRECTIVES, *sorted(KNOWN_ELSEWHERE)), n=1)
    if meant:
        return f"unknown directive `{name}`; did you mean `{meant[0]}`?"
    return f"unknown directive `{name}`; kdns has {', '.join(sorted(DIRECTIVES))}"


def _refuse_overlaps(servers: Iterable[ServerConfig], dns_port: int) -> None:
    """A zone on a port and an address cannot have two masters; a block without `bind` listens on every address."""
    taken: dict[tuple[str, str, int], dict[str, ServerConfig]] = {}
    for server in servers:
        for address in server.addresses:
            port = address.port_or_default(dns_port)
            others = taken.setdefault((address.scheme, address.zone, port), {})
            for host in _hosts(server):
                for other_host, other in others.items():
                    if port and ("" in {host, other_host} or host == other_host):
                        where = f"{other.path}:{other.line}"
                        raise _at(
                            server, address, f"{address.zone} on port {port} is already served by the block at {where}"
                        )
                others[host] = server


def _hosts(server: ServerConfig) -> Collection[str]:
    if not server.bind:
        return ("",)
    return {host for stanza in server.bind for host in stanza.hosts if host not in stanza.exclude}


def _at(server: ServerConfig, address: ZoneAddress, reason: str) -> CorefileError:
    return address.token.error(reason) if address.token else CorefileError(server.path, server.line, "", reason)
