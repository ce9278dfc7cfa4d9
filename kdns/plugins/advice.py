"""Directives of CoreDNS that kdns will not have, and what does their work instead."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

ADVICE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "geoip": "`view` and `acl` choose by the client's network, without a database",
        "proxyproto": "a load balancer can keep the client's address, as `externalTrafficPolicy: Local` does",
        "grpc_server": "tls://, https:// and quic:// are what clients of encrypted DNS speak",
        "https3": "https:// is HTTP/2 and HTTP/1.1, quic:// is DNS over QUIC",
        "shed": "nothing is needed: queries that a client has too many of are always dropped, and counted",
        "trace": "`log` and `dnstap` tell of single queries, `prometheus` has their durations",
        "route53": "`forward` to the resolver of the VPC, which answers for private zones, or `secondary`",
        "azure": "`forward` to 168.63.129.16, which answers for private zones, or `secondary`",
        "clouddns": "`forward` to the metadata server 169.254.169.254, which answers for private zones, or `secondary`",
        "etcd": "`hosts`, `file` and `auto` read files again when they change",
        "grpc": "`forward` with tls:// encrypts queries to an upstream",
        "erratic": "`template` answers with a fixed rcode, to test clients",
        "on": "an init container or the lifecycle hooks of a Pod run commands around the process",
        "sign": "`dnssec` signs answers when they are made; dnssec-signzone and ldns-signzone sign files for `file`",
        "nomad": "`forward` to Consul's DNS, where Nomad registers its services",
    }
)
"""Directive → what to use in its place."""
