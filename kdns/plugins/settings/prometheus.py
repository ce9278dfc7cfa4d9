"""prometheus [ADDRESS] { runtime_metrics }: /metrics for the zones of the server block."""

from __future__ import annotations

from kdns.corefile.address import host_port
from kdns.corefile.lines import Stanza
from kdns.net import HostPort
from kdns.serverblocks.block_options import BlockOptions, MetricsPage
from kdns.serverblocks.directive import Directive
from kdns.serverblocks.stanza import Option, configured, count, flag, not_yet

DEFAULT_ADDRESS = HostPort("localhost", 9153)


OPTIONS = {
    "runtime_metrics": Option("runtime_metrics", flag("runtime")),
    "tls": Option("tls [FILE...]", not_yet("metrics are served over plain HTTP")),
}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> MetricsPage:
    """Returns the configuration of a `prometheus` stanza; raises CorefileError."""
    count(stanza, "prometheus [ADDRESS]")
    address = host_port(stanza.args[0]) if stanza.args else DEFAULT_ADDRESS
    return configured(MetricsPage(address), stanza, OPTIONS)


DIRECTIVE = Directive("prometheus", parse, sets_up=BlockOptions.with_page, options=OPTIONS)
