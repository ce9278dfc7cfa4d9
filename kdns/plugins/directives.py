"""All directives of kdns: one row each, and their order is the chain's.

A row and the directive's own file, page and tests are all that a directive is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kdns.corefile.address import DEFAULT_PORTS
from kdns.corefile.parse import ServerBlock
from kdns.dnsserver import config as server_config
from kdns.dnsserver.directive import Row
from kdns.plugins import (
    acl,
    auto,
    autopath,
    bind,
    bufsize,
    cancel,
    chaos,
    debug,
    dns64,
    errors,
    file,
    header,
    health,
    hosts,
    https,
    k8s_external,
    loadbalance,
    local,
    log,
    loop,
    metadata,
    minimal,
    multisocket,
    nsid,
    pprof,
    prometheus,
    quic,
    ready,
    records,
    reload,
    root,
    rrl,
    timeouts,
    tls,
    transfer,
    view,
    whoami,
)
from kdns.plugins import any as any_
from kdns.plugins.cache import plugin as cache
from kdns.plugins.dnssec import plugin as dnssec
from kdns.plugins.dnstap import plugin as dnstap
from kdns.plugins.forward import plugin as forward
from kdns.plugins.kubernetes import plugin as kubernetes
from kdns.plugins.rewrite import plugin as rewrite
from kdns.plugins.secondary import plugin as secondary
from kdns.plugins.template import plugin as template
from kdns.plugins.tsig import plugin as tsig

DIRECTIVES: Final[tuple[Row, ...]] = (
    root.DIRECTIVE,
    metadata.DIRECTIVE,
    cancel.DIRECTIVE,
    tls.DIRECTIVE,
    quic.DIRECTIVE,
    https.DIRECTIVE,
    timeouts.DIRECTIVE,
    multisocket.DIRECTIVE,
    reload.DIRECTIVE,
    nsid.DIRECTIVE,
    bufsize.DIRECTIVE,
    bind.DIRECTIVE,
    debug.DIRECTIVE,
    ready.DIRECTIVE,
    health.DIRECTIVE,
    pprof.DIRECTIVE,
    prometheus.DIRECTIVE,
    errors.DIRECTIVE,
    log.DIRECTIVE,
    dnstap.DIRECTIVE,
    local.DIRECTIVE,
    dns64.DIRECTIVE,
    rrl.DIRECTIVE,
    acl.DIRECTIVE,
    any_.DIRECTIVE,
    chaos.DIRECTIVE,
    loadbalance.DIRECTIVE,
    tsig.DIRECTIVE,
    cache.DIRECTIVE,
    rewrite.DIRECTIVE,
    header.DIRECTIVE,
    dnssec.DIRECTIVE,
    autopath.DIRECTIVE,
    minimal.DIRECTIVE,
    template.DIRECTIVE,
    transfer.DIRECTIVE,
    hosts.DIRECTIVE,
    records.DIRECTIVE,
    k8s_external.DIRECTIVE,
    kubernetes.DIRECTIVE,
    file.DIRECTIVE,
    auto.DIRECTIVE,
    secondary.DIRECTIVE,
    loop.DIRECTIVE,
    forward.DIRECTIVE,
    whoami.DIRECTIVE,
    view.DIRECTIVE,
)
"""In CoreDNS's order of execution. The order in which they stand in a Corefile means nothing."""

BY_NAME: Final = {row.name: row for row in DIRECTIVES}

# fmt: off
COREDNS_ORDER: Final = (
    "root", "metadata", "geoip", "cancel", "tls", "quic", "proxyproto", "grpc_server", "https", "https3", "timeouts",
    "multisocket", "shed", "reload", "nsid", "bufsize", "bind", "debug", "trace", "ready", "health", "pprof",
    "prometheus", "errors", "log", "dnstap", "local", "dns64", "rrl", "acl", "any", "chaos", "loadbalance", "tsig",
    "cache", "rewrite", "header", "dnssec", "autopath", "minimal", "template", "transfer", "hosts", "records",
    "route53", "azure", "clouddns", "k8s_external", "kubernetes", "file", "auto", "secondary", "etcd", "loop",
    "forward", "grpc", "erratic", "whoami", "on", "sign", "view", "nomad",
)
# fmt: on
"""The directives of CoreDNS 1.14, in its order, and the external rrl and records where they are as a rule built in."""

COREDNS_ONLY: Final = frozenset(COREDNS_ORDER) - BY_NAME.keys()
"""Those that kdns does not have. They are refused by name, so that nobody takes one for a typing error."""


def configure(
    blocks: Iterable[ServerBlock], *, dns_port: int = DEFAULT_PORTS["dns"]
) -> tuple[server_config.ServerConfig, ...]:
    """Returns the servers of these blocks, with the directives of kdns; raises CorefileError.

    See server_config.configure.
    """
    return server_config.configure(blocks, BY_NAME, dns_port=dns_port)
