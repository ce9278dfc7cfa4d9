"""The section `winkernel` of the settings, and the network that follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, ClassVar, Final

from kdns.net import parse_port, parse_unmapped_address, split_host_port
from kdns.proxy.settings.section import Flag, Problem, Section, invalid

if TYPE_CHECKING:
    from kdns.proxy.settings.settings import Settings

DEFAULT_ROOT_ENDPOINT: Final = "cbr0"
"""kube-proxy's default of --root-hnsendpoint-name."""


@dataclass(frozen=True, slots=True)
class KernelspaceSettings(Section):
    """The section `winkernel`."""

    PATH: ClassVar[str] = "winkernel"
    FLAGS: ClassVar[tuple[Flag, ...]] = (
        Flag("network-name", "string", "network_name", "Mode kernelspace: the Pods' network; or $KUBE_NETWORK."),
        Flag("source-vip", "string", "source_vip", "Mode kernelspace: the source address on an overlay network."),
        Flag(
            "enable-dsr",
            "bool",
            "enable_dsr",
            "Mode kernelspace: endpoints answer clients directly (DSR).",
            is_of_plan=True,
        ),
        Flag(
            "root-hnsendpoint-name",
            "string",
            "root_hns_endpoint_name",
            "Mode kernelspace: the endpoint for health checks of load balancers; cbr0 without one.",
        ),
        Flag(
            "forward-healthcheck-vip",
            "bool",
            "forward_health_check_vip",
            "Mode kernelspace: forward health checks at load balancer IPs to the node.",
        ),
    )

    network_name: str = ""
    source_vip: str = ""
    enable_dsr: bool = False
    root_hns_endpoint_name: str = ""
    forward_health_check_vip: bool = False

    def problems(self, *, is_used: bool) -> Iterator[Problem]:
        del is_used
        if self.source_vip and not isinstance(parse_unmapped_address(self.source_vip), IPv4Address):
            yield invalid("winkernel.sourceVip", self.source_vip, "must be an IPv4 address")
        if self.root_hns_endpoint_name and not self.forward_health_check_vip:
            reason = "has no effect without winkernel.forwardHealthCheckVip"
            yield invalid("winkernel.rootHnsEndpointName", self.root_hns_endpoint_name, reason)


@dataclass(frozen=True, slots=True)
class WindowsNetwork:
    """The network of Pods, and what is served there beside Services.

    `name` is that of the Pods' network, `source_vip` the source of translated packets on an overlay network.
    `gateway_endpoint` is the name of the endpoint that gets the health checks of load balancers, "" for none, and
    `healthz_port` its port for Services without a health check node port, 0 for none.
    """

    name: str = ""
    source_vip: str = ""
    gateway_endpoint: str = ""
    healthz_port: int = 0


def windows_network(settings: Settings) -> WindowsNetwork:
    own = settings.section(KernelspaceSettings)
    if not own.forward_health_check_vip:
        return WindowsNetwork(own.network_name, own.source_vip)
    _, port = split_host_port(settings.healthz_bind_address) or ("", "")
    endpoint = own.root_hns_endpoint_name or DEFAULT_ROOT_ENDPOINT
    return WindowsNetwork(own.network_name, own.source_vip, endpoint, parse_port(port) or 0)
