"""quic { max_streams N; worker_pool_size N }: how many queries over QUIC may be open."""

from __future__ import annotations

from kdns.corefile.lines import Stanza
from kdns.dnsserver.directive import Directive, Setup
from kdns.dnsserver.listener_options import DEFAULTS, ListenerOptions
from kdns.dnsserver.stanza import Option, configured, count, integer, refuse_repeated, sets

OPTIONS = {
    "max_streams": Option("max_streams N", sets("quic_streams", integer, 1)),
    "worker_pool_size": Option("worker_pool_size N", sets("quic_pending", integer, 1)),
}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> ListenerOptions:
    """What a `quic` stanza says; raises CorefileError."""
    count(stanza, "quic")
    refuse_repeated(stanza)
    config = ListenerOptions(quic_streams=DEFAULTS.quic_streams, quic_pending=DEFAULTS.quic_pending)
    return configured(config, stanza, OPTIONS)


def build(config: ListenerOptions, setup: Setup) -> None:
    """Limits the queries of the block's listeners."""
    setup.listener(config)


DIRECTIVE = Directive("quic", parse, build, options=OPTIONS)
