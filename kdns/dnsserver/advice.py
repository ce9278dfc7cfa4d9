"""Directives of CoreDNS that kdns does not have, and their replacements."""

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
"""Directive → its replacement."""

EXTERNAL: Final[Mapping[str, str]] = MappingProxyType(
    {
        "fanout": "`forward` with several upstreams asks one after the other; `policy` and `failover` choose",
        "alias": "an apex has no CNAME: `file` has its addresses, `rewrite name exact` asks for another name",
        "unbound": "`forward` to a resolver such as Unbound, on this machine or behind tls://",
        "recursor": "`forward` to a resolver such as Unbound, on this machine or behind tls://",
        "wasm": "`template` and `rewrite` answer by rules; `forward` to a server of your own for code",
        "k8s_gateway": "`k8s_external` answers for Services of type LoadBalancer, not for Ingresses and Gateways",
        "kubernetai": "several `kubernetes` in one server block, each with its `kubeconfig` or `endpoint`",
        "k8s_crd": "`file` and `auto` read zone files again when they change",
        "k8s_event": "`errors` and `log` write to standard output",
        "blocklist": "`template` with `rcode NXDOMAIN` and `hosts` choose names, `acl` chooses clients",
        "block": "`template` with `rcode NXDOMAIN` and `hosts` choose names",
        "ads": "`template` with `rcode NXDOMAIN` and `hosts` choose names",
        "pdsql": "`secondary` transfers the zones of a PowerDNS server",
        "mysql": "`secondary` transfers zones; `auto` reads zone files again when they change",
        "redis": "`secondary` transfers zones; `auto` reads zone files again when they change",
        "redisc": "`cache` keeps answers in the process",
        "git": "a sidecar such as git-sync writes zone files that `auto` reads again",
        "gslb": "`loadbalance weighted` and `view` choose among addresses, `forward` has health checks",
        "netbox": "`secondary` and `auto` serve zones that are exported",
        "docker": "`hosts` reads a file again when it changes",
        "consul": "`forward` to Consul's DNS",
        "dump": "`log` and `dnstap` tell of single queries",
        "dnsredir": "`forward` with a zone before its upstreams leads names elsewhere",
        "proxy": "`forward`, which took its place in CoreDNS 1.5",
        "federation": "`kubernetes` with `multicluster` serves ServiceImports",
        "mdns": "`forward` and `hosts`; multicast DNS is for a local resolver",
        "ipset": "nothing: answers are not written into the kernel's sets",
    }
)
"""Well-known external plugins of CoreDNS → their replacements."""
