"""KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1) as one frozen value, with kube-proxy's defaults.

Fields are the API's in snake case; a duration's name ends in _s. A field that a file leaves out, or sets to the zero
value of its type, has its default. A field marked by `pointer` is a pointer in Go: its zero value counts.

Differs: mode "" is nftables, the fastest of kdns's modes; kube-proxy's is iptables. Mode userspace, which kube-proxy
had up to 1.25, is one of the modes, and brings udpIdleTimeout along. protectedPorts is kdns's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

T = TypeVar("T")

API_VERSION: Final = "kubeproxy.config.k8s.io/v1alpha1"
KIND: Final = "KubeProxyConfiguration"

_UPPER: Final = {"ip": "IP", "ips": "IPs", "cidr": "CIDR", "cidrs": "CIDRs", "arp": "ARP", "dsr": "DSR"}

DEFAULT_MODE: Final = "nftables"
LOCAL_MODES: Final = ("ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix")
HEALTHZ_PORT: Final = 10256
METRICS_PORT: Final = 10249
SAME_TRAFFIC_DISTRIBUTION: Final = "PreferSameTrafficDistribution"
"""The feature gate of endpoint hints for nodes."""
EXTERNAL_IPS: Final = "AllowServiceExternalIPs"
"""The feature gate of external IPs."""
GATES: Final = (EXTERNAL_IPS, "ComponentFlagz", "ComponentStatusz", SAME_TRAFFIC_DISTRIBUTION)
"""The feature gates that there are; all of them are on by default."""


def pointer(default: T) -> T:
    """Returns a field whose zero value does not mean the default."""
    made: T = field(default=default, metadata={"pointer": True})
    return made


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """The connection to the API server."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = 5.0
    burst: int = 10


@dataclass(frozen=True, slots=True)
class IPTables:
    """Mode iptables; masquerade_bit counts in mode ipvs too, and localhost_node_ports for IPv4 only."""

    masquerade_bit: int = pointer(14)
    masquerade_all: bool = False
    localhost_node_ports: bool = pointer(default=True)
    sync_period_s: float = 30.0
    min_sync_period_s: float = 1.0


@dataclass(frozen=True, slots=True)
class IPVS:
    """Mode ipvs; a timeout of 0 leaves the kernel's."""

    sync_period_s: float = 30.0
    min_sync_period_s: float = 0.0
    scheduler: str = ""
    exclude_cidrs: tuple[str, ...] = ()
    strict_arp: bool = False
    tcp_timeout_s: float = 0.0
    tcp_fin_timeout_s: float = 0.0
    udp_timeout_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NFTables:
    """Mode nftables."""

    masquerade_bit: int = pointer(14)
    masquerade_all: bool = False
    sync_period_s: float = 30.0
    min_sync_period_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Winkernel:
    """Mode kernelspace; its periods and masquerade_all are those of iptables."""

    network_name: str = ""
    source_vip: str = ""
    enable_dsr: bool = False
    root_hns_endpoint_name: str = ""
    forward_health_check_vip: bool = False


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
class VModule:
    """logging.vmodule[]."""

    file_pattern: str = ""
    verbosity: int = 0


@dataclass(frozen=True, slots=True)
class OutputRouting:
    """logging.options.text and .json; a size is a quantity such as 4Mi."""

    split_stream: bool = False
    info_buffer_size: str = "0"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """logging.options."""

    text: OutputRouting = OutputRouting()
    json: OutputRouting = OutputRouting()


@dataclass(frozen=True, slots=True)
class Logging:
    """Log format and verbosity."""

    format: str = "text"
    flush_frequency_s: float = 5.0
    verbosity: int = 0
    vmodule: tuple[VModule, ...] = ()
    options: LogOptions = LogOptions()


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a node's dataplane, from its configuration file or flags.

    `bind_address` is the node's own address; nothing listens there. Empty `node_port_addresses` means all of the node's
    addresses, in mode nftables the primary ones. "" for `healthz_bind_address` or `metrics_bind_address` turns that
    server off; only flags can set that.
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
    iptables: IPTables = IPTables()
    ipvs: IPVS = IPVS()
    nftables: NFTables = NFTables()
    winkernel: Winkernel = Winkernel()
    detect_local_mode: str = "ClusterCIDR"
    detect_local: DetectLocal = DetectLocal()
    cluster_cidr: str = ""
    node_port_addresses: tuple[str, ...] = ()
    protected_ports: tuple[str, ...] = ()
    oom_score_adj: int = pointer(-999)
    conntrack: Conntrack = Conntrack()
    config_sync_period_s: float = 900.0
    udp_idle_timeout_s: float = 0.25
    port_range: str = ""
    windows_run_as_service: bool = False

    def in_mode(self, mode: str) -> Settings:
        """Returns the settings where another mode takes the place of the configured one.

        Where mode nftables comes instead of a mode that marks packets through iptables, and has no settings of its own,
        it gets those of iptables.
        """
        if mode == self.mode:
            return self
        nftables = self.nftables
        if self.mode in {"iptables", "ipvs"} and mode == "nftables" and nftables == NFTables():
            own = self.iptables
            nftables = NFTables(own.masquerade_bit, own.masquerade_all, own.sync_period_s, own.min_sync_period_s)
        return replace(self, mode=mode, nftables=nftables)

    @property
    def part(self) -> tuple[str, IPTables | IPVS | NFTables]:
        """The mode's own settings, with their field name.

        Mode userspace has those of nftables, whatever captures, and mode kernelspace those of iptables.
        """
        if self.mode in {"iptables", "kernelspace"}:
            return "iptables", self.iptables
        return (self.mode, self.ipvs) if self.mode == "ipvs" else ("nftables", self.nftables)

    @property
    def masquerade_all(self) -> bool:
        """Whether packets to all cluster IPs are masqueraded; in mode kernelspace they are without DSR."""
        is_translated = self.mode == "kernelspace" and not self.winkernel.enable_dsr
        return is_translated or self._masquerading.masquerade_all

    @property
    def mark(self) -> int:
        """The bit of the packet mark that asks for masquerade."""
        return 1 << self._masquerading.masquerade_bit

    @property
    def _masquerading(self) -> IPTables | NFTables:
        """Mode ipvs marks packets through iptables, and mode kernelspace has the settings of iptables."""
        return self.iptables if self.mode in {"iptables", "ipvs", "kernelspace"} else self.nftables

    @property
    def node_name(self) -> str:
        """The node's name, "" for the host's name."""
        return self.hostname_override.strip().lower()

    @property
    def cluster_cidrs(self) -> tuple[str, ...]:
        return tuple(self.cluster_cidr.split(",")) if self.cluster_cidr else ()

    @property
    def relay_ports(self) -> range:
        """The ports of portRange: 300-2000, 300+1700, or a single one; empty for "" and 0, the kernel's choice."""
        for separator in "-+":
            first, found, last = self.port_range.partition(separator)
            if found:
                return range(int(first), int(last) + 1 + (int(first) if separator == "+" else 0))
        port = int(self.port_range or 0)
        return range(port, port + 1) if port else range(0)

    @property
    def external_ips(self) -> bool:
        return self.feature_gates.get(EXTERNAL_IPS, True)

    @property
    def node_hints(self) -> bool:
        return self.feature_gates.get(SAME_TRAFFIC_DISTRIBUTION, True)


def api_name(name: str) -> str:
    """Returns the API's spelling of a field: cluster_cidr is clusterCIDR, sync_period_s is syncPeriod."""
    first, *rest = name.removesuffix("_s").split("_")
    return first + "".join(_UPPER.get(word, word.capitalize()) for word in rest)
