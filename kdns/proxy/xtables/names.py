"""Names of chains. All are kube-proxy's, so that runbooks, kube-proxy's --cleanup and its next start find them."""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from kdns.proxy.plan.plan import PortName

NAT: Final = "nat"
FILTER: Final = "filter"
MANGLE: Final = "mangle"

SERVICES: Final = "KUBE-SERVICES"
EXTERNAL_SERVICES: Final = "KUBE-EXTERNAL-SERVICES"
NODE_PORTS: Final = "KUBE-NODEPORTS"
FORWARD: Final = "KUBE-FORWARD"
FIREWALL: Final = "KUBE-FIREWALL"
PROXY_FIREWALL: Final = "KUBE-PROXY-FIREWALL"
POSTROUTING: Final = "KUBE-POSTROUTING"
MARK_MASQUERADE: Final = "KUBE-MARK-MASQ"
CANARY: Final = "KUBE-PROXY-CANARY"

FIXED: Final[Mapping[str, tuple[str, ...]]] = {
    MANGLE: (CANARY,),
    FILTER: (NODE_PORTS, EXTERNAL_SERVICES, SERVICES, PROXY_FIREWALL, FORWARD, FIREWALL, CANARY),
    NAT: (SERVICES, NODE_PORTS, POSTROUTING, MARK_MASQUERADE, CANARY),
}
"""The chains that are there whatever the Services, by table."""

NODE_PORT: Final = "KUBE-NODE-PORT"
LOAD_BALANCER_CHAIN: Final = "KUBE-LOAD-BALANCER"
SOURCE_RANGES: Final = "KUBE-SOURCE-RANGES-FIREWALL"
FILTER_CHAIN: Final = "KUBE-IPVS-FILTER"
OUT_FILTER: Final = "KUBE-IPVS-OUT-FILTER"

IPVS_CHAINS: Final = {
    NAT: (SERVICES, POSTROUTING, NODE_PORT, LOAD_BALANCER_CHAIN, MARK_MASQUERADE),
    FILTER: (FORWARD, NODE_PORT, PROXY_FIREWALL, SOURCE_RANGES, FILTER_CHAIN, OUT_FILTER),
    MANGLE: (CANARY,),
}
"""The chains of mode ipvs, by table."""


_HASH_BYTES: Final = 10
"""16 characters in base32."""
_CLUSTER, _LOCAL, _EXTERNAL, _RANGES, _ENDPOINT = "KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"
SERVICE_PREFIXES: Final = (_RANGES, _EXTERNAL, _CLUSTER, _LOCAL, _ENDPOINT)
"""Prefixes of the chains of Service ports in table nat; rules lead from one to a later one."""


class PortChains(NamedTuple):
    """The names of a Service port's chains.

    They are for policy Cluster, for policy Local, for fronts other than the cluster IP, and for source ranges.
    """

    cluster: str
    local: str
    external: str
    firewall: str


def port_chains(name: PortName) -> PortChains:
    suffix = _hash(f"{name}{name.protocol.lower()}")
    return PortChains(*(f"{prefix}{suffix}" for prefix in (_CLUSTER, _LOCAL, _EXTERNAL, _RANGES)))


def endpoint_chain(name: PortName, endpoint: str) -> str:
    """`endpoint` is the value of --to-destination."""
    return f"{_ENDPOINT}{_hash(f'{name}{name.protocol.lower()}{endpoint}')}"


def _hash(text: str) -> str:
    return b32encode(sha256(text.encode(errors="surrogatepass")).digest()[:_HASH_BYTES]).decode()


def is_service_chain(name: str) -> bool:
    return name.startswith(SERVICE_PREFIXES)


def is_iptables_chain(table: str, chain: str) -> bool:
    """Whether a chain is one of mode iptables. The kubelet makes KUBE-FIREWALL as well."""
    return chain in FIXED.get(table, ()) or (table == NAT and is_service_chain(chain))


def is_ipvs_chain(table: str, chain: str) -> bool:
    return chain in IPVS_CHAINS.get(table, ())


def rank(name: str) -> int:
    """Service chains in this order stand before what their rules lead to; other chains stand before all of them."""
    return next((rank for rank, prefix in enumerate(SERVICE_PREFIXES) if name.startswith(prefix)), -1)
