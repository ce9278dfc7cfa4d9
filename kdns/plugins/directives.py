"""All directives of kdns: a name each, in the order of the chain.

A name, and the directive's own file or folder, page and tests are all that a directive is. It is imported when it is
looked up: a Corefile has a few of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Final

from kdns.corefile.address import DEFAULT_PORTS
from kdns.corefile.parse import ServerBlock
from kdns.dnsserver import config as server_config
from kdns.dnsserver.directive import Row

# fmt: off
NAMES: Final = (
    "root", "metadata", "cancel", "tls", "quic", "https", "timeouts", "multisocket", "reload", "nsid", "bufsize",
    "bind", "debug", "ready", "health", "pprof", "prometheus", "status", "errors", "log", "dnstap", "local", "dns64",
    "rrl", "acl", "any", "chaos", "loadbalance", "tsig", "cache", "rewrite", "header", "dnssec", "autopath", "minimal",
    "template", "transfer", "hosts", "records", "k8s_external", "kubernetes", "file", "auto", "secondary", "loop",
    "forward", "whoami", "view",
)
# fmt: on
"""In CoreDNS's order of execution. The order in which they stand in a Corefile means nothing."""


class _Directives(Mapping[str, Row]):
    def __getitem__(self, name: str) -> Row:
        if name not in NAMES:
            raise KeyError(name)
        module = import_module(f"kdns.plugins.{name}")
        row: Row = getattr(module, "DIRECTIVE", None) or import_module(f"{module.__name__}.plugin").DIRECTIVE
        return row

    def __contains__(self, name: object) -> bool:
        return name in NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


BY_NAME: Final = _Directives()

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

COREDNS_ONLY: Final = frozenset(COREDNS_ORDER).difference(NAMES)
"""Those that kdns does not have. They are refused by name, so that nobody takes one for a typing error."""


def configure(
    blocks: Iterable[ServerBlock], *, dns_port: int = DEFAULT_PORTS["dns"]
) -> tuple[server_config.ServerConfig, ...]:
    """Returns the servers of these blocks, with the directives of kdns; raises CorefileError.

    See server_config.configure.
    """
    return server_config.configure(blocks, BY_NAME, dns_port=dns_port)
