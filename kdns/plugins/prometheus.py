"""prometheus [ADDRESS] { runtime_metrics }: /metrics for the zones of the server block."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kdns.corefile.address import host_port
from kdns.corefile.lines import Stanza
from kdns.dnsserver.block_options import BlockOptions, MetricsPage
from kdns.dnsserver.directive import Directive
from kdns.dnsserver.stanza import Option, configured, count, flag, not_yet
from kdns.net import HostPort

DEFAULT_ADDRESS = HostPort("localhost", 9153)


@dataclass(frozen=True, slots=True)
class PrometheusConfig:
    """Where /metrics is served, and whether the interpreter's own figures are among them."""

    address: HostPort = DEFAULT_ADDRESS
    runtime_metrics: bool = False


OPTIONS = {
    "runtime_metrics": Option("runtime_metrics", flag("runtime_metrics")),
    "tls": Option("tls [FILE...]", not_yet("metrics are served over plain HTTP")),
}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> PrometheusConfig:
    """What a `prometheus` stanza says; raises CorefileError."""
    count(stanza, "prometheus [ADDRESS]")
    config = PrometheusConfig(host_port(stanza.args[0])) if stanza.args else PrometheusConfig()
    return configured(config, stanza, OPTIONS)


def sets_up(options: BlockOptions, config: PrometheusConfig) -> BlockOptions:
    """Serves /metrics."""
    return replace(options, pages=(*options.pages, MetricsPage(config.address, config.runtime_metrics)))


DIRECTIVE = Directive("prometheus", parse, sets_up=sets_up, options=OPTIONS)
