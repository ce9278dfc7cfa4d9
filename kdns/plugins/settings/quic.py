"""quic { max_streams N; worker_pool_size N }: how many queries over QUIC may be open."""

from __future__ import annotations

from kdns.corefile.lines import Stanza
from kdns.serverblocks.block_options import BlockOptions
from kdns.serverblocks.directive import Directive
from kdns.serverblocks.listener_options import DEFAULTS, ListenerOptions
from kdns.serverblocks.stanza import Option, configured, count, integer, refuse_repeated, sets

OPTIONS = {
    "max_streams": Option("max_streams N", sets("quic_streams", integer, 1)),
    "worker_pool_size": Option("worker_pool_size N", sets("quic_pending", integer, 1)),
}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> ListenerOptions:
    """Returns the configuration of a `quic` stanza; raises CorefileError."""
    count(stanza, "quic")
    refuse_repeated(stanza)
    config = ListenerOptions(quic_streams=DEFAULTS.quic_streams, quic_pending=DEFAULTS.quic_pending)
    return configured(config, stanza, OPTIONS)


DIRECTIVE = Directive("quic", parse, sets_up=BlockOptions.with_listener, options=OPTIONS)
