"""quic { max_streams N; worker_pool_size N }: how many queries over QUIC may be open."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kdns.corefile.lines import Stanza
from kdns.dnsserver.directive import Directive, Setup
from kdns.dnsserver.listener_options import QUIC_PENDING, QUIC_STREAMS
from kdns.dnsserver.stanza import Option, configured, count, integer, refuse_repeated, sets


@dataclass(frozen=True, slots=True)
class QuicConfig:
    """Queries of one connection, and queries of all connections that may wait for an answer."""

    max_streams: int = QUIC_STREAMS
    worker_pool_size: int = QUIC_PENDING


OPTIONS = {
    "max_streams": Option("max_streams N", sets("max_streams", integer, 1)),
    "worker_pool_size": Option("worker_pool_size N", sets("worker_pool_size", integer, 1)),
}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> QuicConfig:
    """What a `quic` stanza says; raises CorefileError."""
    count(stanza, "quic")
    refuse_repeated(stanza)
    return configured(QuicConfig(), stanza, OPTIONS)


def build(config: QuicConfig, setup: Setup) -> None:
    """Limits the queries of the block's listeners."""
    setup.listener(
        lambda options: replace(options, quic_streams=config.max_streams, quic_pending=config.worker_pool_size)
    )


DIRECTIVE = Directive("quic", parse, build, options=OPTIONS)
