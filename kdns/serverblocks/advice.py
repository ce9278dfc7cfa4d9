"""Words of CoreDNS that kdns does not have: directives and their replacements, and options that CoreDNS removed.

The releases are those of CoreDNS's notes and of the parsers in its history.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

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
        "alternate": "`forward` with `next RCODE` leads to the next `forward` of the block",
        "fallback": "`forward` with `next RCODE` leads to the next `forward` of the block",
        "ratelimit": "`rrl` with `requests-per-second` limits the queries of a client, `max_concurrent` of `forward` "
        "those to upstreams",
        "split": "`view` chooses the server block by the client's network",
        "filter": "`template` with `rcode NXDOMAIN` and `hosts` choose names, `acl` chooses clients",
        "finalize": "`rewrite cname` changes targets of CNAMEs, and `file` has addresses for an apex",
        "ipecho": "`template` answers with an address in the name: `match` with groups",
        "kubenodes": "`hosts` reads a file of Nodes again when it changes",
        "lighthouse": "`kubernetes` with `multicluster` serves ServiceImports",
        "forwardcrd": "`import` and `reload` read files with `forward` again when they change",
        "tailscale": "`forward` to 100.100.100.100, which answers for the tailnet",
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
        "mdns": "`forward` and `hosts`; multicast DNS is for a local resolver",
        "ipset": "nothing: answers are not written into the kernel's sets",
    }
)
"""Well-known external plugins of CoreDNS → their replacements."""


class Removal(NamedTuple):
    """The release of CoreDNS that refuses a word for the first time, and what to write in its place."""

    release: str
    instead: str


GONE: Final = "the line can go"
_TRANSFER: Final = "the directive `transfer` sends zones, with `to ADDRESS...` in its block"

REMOVED: Final[Mapping[str, Removal]] = MappingProxyType(
    {
        "federation": Removal("1.7.0", "`kubernetes` with `multicluster` serves ServiceImports"),
        "httpproxy": Removal("005", "`forward` to an upstream of https://"),
        "proxy": Removal("1.5.0", "`forward` took its place"),
        "reverse": Removal("1.2.0", "`template` answers for addresses in names: `match` with groups"),
        "shutdown": Removal("1.1.0", "the lifecycle hooks of a Pod run commands around the process"),
        "startup": Removal("1.1.0", "an init container runs commands before the process"),
    }
)
"""Directives."""

REMOVED_OPTIONS: Final[Mapping[tuple[str, str], Removal]] = MappingProxyType(
    {
        ("auto", "no_reload"): Removal("1.5.0", "`reload 0` means the same"),
        ("auto", "transfer"): Removal("1.8.0", _TRANSFER),
        ("file", "no_reload"): Removal("1.5.0", "`reload 0` means the same"),
        ("file", "transfer"): Removal("1.8.0", _TRANSFER),
        ("forward", "fail_timeout"): Removal("1.5.0", f"`health_check` tries failed upstreams again; {GONE}"),
        ("forward", "protocol"): Removal("1.5.0", "write the scheme before the upstream, as in tls://9.9.9.9"),
        ("forward", "spray"): Removal("1.5.0", f"upstreams are always tried if all have failed; {GONE}"),
        ("header", "clear"): Removal("1.12.4", "write `response` before it, as in `response clear ra`"),
        ("header", "set"): Removal("1.12.4", "write `response` before it, as in `response set ra`"),
        ("kubernetes", "autopath"): Removal("011", "the directive `autopath @kubernetes` follows the search path"),
        ("kubernetes", "cidrs"): Removal("011", "networks are zones, as in `kubernetes cluster.local 10.0.0.0/8`"),
        ("kubernetes", "federation"): Removal("011", "`multicluster` serves ServiceImports"),
        ("kubernetes", "resyncperiod"): Removal("1.7.0", f"objects are watched, not listed again; {GONE}"),
        ("kubernetes", "transfer"): Removal("1.8.0", _TRANSFER),
        ("kubernetes", "upstream"): Removal("1.7.0", f"targets of CNAMEs are resolved by the server itself; {GONE}"),
        ("secondary", "upstream"): Removal("1.8.0", f"targets of CNAMEs are resolved by the server itself; {GONE}"),
    }
)
"""(directive, option); those of `forward` were its predecessor's, `proxy`."""
