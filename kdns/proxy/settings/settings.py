"""KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1) as one frozen value, with kube-proxy's defaults.

Fields are the API's in snake case; a duration's name ends in _s. A field that a file leaves out, or sets to the zero
value of its type, has its default. A field marked by `pointer` is a pointer in Go: its zero value counts. Fields that
belong to modes are in their sections.

Differs: mode "" is nftables, the fastest of kdns's modes; kube-proxy's is iptables. protectedPorts is kdns's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from kdns.proxy.settings.section import Section, pointer

S = TypeVar("S", bound=Section)

API_VERSION: Final = "kubeproxy.config.k8s.io/v1alpha1"
KIND: Final = "KubeProxyConfiguration"

DEFAULT_MODE: Final = "nftables"
LOCAL_MODES: Final = ("ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix")
HEALTHZ_PORT: Final = 10256
METRICS_PORT: Final = 10249
SAME_TRAFFIC_DISTRIBUTION: Final = "PreferSameTrafficDistribution"
"""The feature gate of endpoint hints for nodes."""
EXTERNAL_IPS: Final = "AllowServiceExternalIPs"
"""The feature gate of external IPs."""
SHADOWING: Final = "AllowAddressShadowing"
"""The feature gate of external and load balancer IPs at addresses of other Services and of Pods; kdns's own."""
GATES: Final = (SHADOWING, EXTERNAL_IPS, "ComponentFlagz", "ComponentStatusz", SAME_TRAFFIC_DISTRIBUTION)
"""The feature gates that there are; all of them are on by default."""


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """The connection to the API server."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = 5.0
    burst: int = 10


@dataclass(frozen=True, slots=True)
class Conntrack:
    """Limits of the kernel's connection tracking; 0 leaves the kernel's."""

    max_per_core: int = pointer(32768)
    min: int = pointer(131072)
    tcp_established_timeout_s: float = pointer(86400.0)
    tcp_close_wait_timeout_s: float = pointer(3600.0)
    tcp_be_liberal: bool = False
    udp_timeout_s: float = 0.0
    udp_stream_timeout_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DetectLocal:
    """The interfaces of this node's Pods, for the modes of detect_local_mode that go by interface."""

    bridge_interface: str = ""
    interface_name_prefix: str = ""


@dataclass(frozen=True, slots=True)
class Logging:
    """Log format and verbosity."""

    format: str = "text"
    verbosity: int = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a node's dataplane, from its configuration file or flags.

    `bind_address` is the node's own address; nothing listens there. Empty `node_port_addresses` means all of the node's
    addresses, or in some modes the primary ones. "" for `healthz_bind_address` or `metrics_bind_address` turns that
    server off; only flags can set that. `sections` has those that differ from their defaults.
    """

    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    client_connection: ClientConnection = ClientConnection()
    logging: Logging = Logging()
    hostname_override: str = ""
    bind_address: str = "0.0.0.0"
    healthz_bind_address: str = f"0.0.0.0:{HEALTHZ_PORT}"
    metrics_bind_address: str = f"127.0.0.1:{METRICS_PORT}"
    bind_address_hard_fail: bool = False
    enable_profiling: bool = False
    show_hidden_metrics_for_version: str = ""
    mode: str = DEFAULT_MODE
    detect_local_mode: str = "ClusterCIDR"
    detect_local: DetectLocal = DetectLocal()
    cluster_cidr: str = ""
    node_port_addresses: tuple[str, ...] = ()
    protected_ports: tuple[str, ...] = ()
    oom_score_adj: int = pointer(-999)
    conntrack: Conntrack = Conntrack()
    config_sync_period_s: float = 900.0
    sections: Mapping[type[Section], Section] = field(default_factory=dict)

    def section(self, section: type[S]) -> S:
        found = self.sections.get(section)
        return found if isinstance(found, section) else section()

    def with_section(self, section: Section) -> Settings:
        others = {kind: other for kind, other in self.sections.items() if kind is not type(section)}
        own = {} if section == type(section)() else {type(section): section}
        return replace(self, sections=others | own)

    @property
    def node_name(self) -> str:
        """The node's name, "" for the host's name."""
        return self.hostname_override.strip().lower()

    @property
    def cluster_cidrs(self) -> tuple[str, ...]:
        return tuple(self.cluster_cidr.split(",")) if self.cluster_cidr else ()

    def is_on(self, gate: str) -> bool:
        return self.feature_gates.get(gate, True)
