"""Mode kernelspace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, ClassVar, Final

from kdns.net import parse_unmapped_address
from kdns.proxy.mode import Mode
from kdns.proxy.plan.semantics import TCP_UDP, Semantics
from kdns.proxy.settings.section import Flag, Problem, Section, invalid
from kdns.proxy.xtables.settings import IptablesSettings

if TYPE_CHECKING:
    from kdns.proxy.plan.plan import Plan
    from kdns.proxy.settings.settings import Settings

KERNELSPACE: Final = Semantics(
    "kernelspace",
    protocols=TCP_UDP,
    has_one_list=True,
    refuses=False,
    treats_clients_alike=True,
    restricts_sources=False,
    restricts_node_ports=False,
    times_affinity=False,
    has_one_target_port=True,
    supported_endpoints=64,
)


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


def _text(plan: Plan, settings: Settings) -> str:
    """Returns the requests that create the endpoints and load balancers of both families."""
    from kdns.proxy.kernelspace.text import requests_text  # noqa: PLC0415 - nothing else is imported for the mode's row

    del settings
    return requests_text(plan)


def _masquerades_all(mode: Mode, settings: Settings) -> bool:
    """Without DSR every packet is translated."""
    has_dsr = settings.section(KernelspaceSettings).enable_dsr
    return not has_dsr or settings.section(mode.masquerading).masquerade_all


MODE: Final = Mode(
    KERNELSPACE,
    "kdns.proxy.kernelspace",
    _text,
    IptablesSettings,
    own=(KernelspaceSettings,),
    sync_failures="kdns_proxy_kernelspace_sync_failures",
    cleanup_failures="kdns_proxy_kernelspace_cleanup_failures",
    is_of_windows=True,
    masquerades_all=_masquerades_all,
)
