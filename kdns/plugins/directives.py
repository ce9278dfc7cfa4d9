"""All directives, in the order of the chain.

A new directive is a name here, its file or folder, its page and its tests; those that only set up their block are rows
of `settings`. A directive is imported when it is looked up: a Corefile uses only a few.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Final

from kdns.corefile.address import DEFAULT_PORTS
from kdns.corefile.parse import ServerBlock
from kdns.plugins.settings import SETTINGS
from kdns.serverblocks.config import ServerConfig, server_configs
from kdns.serverblocks.directive import Row

FOLDERS: Final[Mapping[str, str]] = {
    "root": "settings",
    "metadata": "observers",
    "cancel": "guards",
    "quic": "settings",
    "https": "settings",
    "timeouts": "settings",
    "multisocket": "settings",
    "reload": "settings",
    "nsid": "changes",
    "bufsize": "changes",
    "bind": "settings",
    "debug": "settings",
    "ready": "settings",
    "health": "settings",
    "pprof": "settings",
    "prometheus": "settings",
    "status": "settings",
    "errors": "observers",
    "log": "observers",
    "dnstap": "observers",
    "local": "sources",
    "dns64": "changes",
    "rrl": "guards",
    "any": "guards",
    "chaos": "sources",
    "loadbalance": "changes",
    "tsig": "guards",
    "rewrite": "changes",
    "autopath": "changes",
    "acl": "guards",
    "cache": "changes",
    "header": "changes",
    "dnssec": "changes",
    "tls": "settings",
    "minimal": "changes",
    "template": "sources",
    "transfer": "sources",
    "hosts": "sources",
    "records": "sources",
    "k8s_external": "sources",
    "kubernetes": "sources",
    "file": "sources",
    "auto": "sources",
    "secondary": "sources",
    "loop": "guards",
    "forward": "sources",
    "whoami": "sources",
    "view": "guards",
}
"""Directive → its folder, or `settings`, in CoreDNS's order of execution, whatever the order of a Corefile."""


class _Directives(Mapping[str, Row]):
    def __getitem__(self, name: str) -> Row:
        if name in SETTINGS:
            return SETTINGS[name]
        module = import_module(f"kdns.plugins.{FOLDERS[name]}.{name}")
        row: Row = getattr(module, "DIRECTIVE", None) or import_module(f"{module.__name__}.plugin").DIRECTIVE
        return row

    def __contains__(self, name: object) -> bool:
        return name in FOLDERS

    def __iter__(self) -> Iterator[str]:
        return iter(FOLDERS)

    def __len__(self) -> int:
        return len(FOLDERS)


BY_NAME: Final = _Directives()

# fmt: off
COREDNS_ORDER: Final = (
    "root", "metadata", "geoip", "cancel", "proxyproto", "quic", "grpc_server", "https", "https3", "timeouts",
    "multisocket", "reload", "nsid", "bufsize", "bind", "debug", "trace", "ready", "health", "pprof", "shed",
    "prometheus", "errors", "log", "dnstap", "local", "dns64", "rrl", "any", "chaos", "loadbalance", "tsig",
    "rewrite", "autopath", "acl", "cache", "header", "dnssec", "tls", "minimal", "template", "transfer", "hosts",
    "records", "route53", "azure", "clouddns", "k8s_external", "kubernetes", "file", "auto", "secondary", "etcd",
    "loop", "forward", "grpc", "erratic", "whoami", "on", "sign", "view", "nomad",
)
# fmt: on
"""The directives of CoreDNS 1.14.7, in its order, with the external rrl and records."""

COREDNS_ONLY: Final = frozenset(COREDNS_ORDER).difference(FOLDERS)
"""They are refused by name, so that nobody takes one for a typo."""


def configure(blocks: Iterable[ServerBlock], *, dns_port: int = DEFAULT_PORTS["dns"]) -> tuple[ServerConfig, ...]:
    """Raises the first CorefileError of `server_configs`."""
    servers, _, errors = server_configs(blocks, BY_NAME, dns_port=dns_port)
    if errors:
        raise errors[0]
    return servers
