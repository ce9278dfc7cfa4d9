"""What settings and the Node object make of a node: its addresses and zone, and the plan's configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from kdns.cluster.objects import Node
from kdns.errors import InputError
from kdns.proxy.config import (
    IPTABLES,
    NFTABLES,
    PRIMARY,
    USERSPACE,
    Address,
    LocalPods,
    Mode,
    Network,
    NodeView,
    ProxyConfig,
    parsed_address,
    parsed_network,
)
from kdns.proxy.settings import Settings

MODES: Final[Mapping[str, Mode]] = {mode.name: mode for mode in (NFTABLES, IPTABLES, USERSPACE)}
"""The modes that there are plans for."""


def node_view(
    node: Node | None, name: str, *, bind_address: str = "", addresses: Iterable[Address] | None = None
) -> NodeView:
    """The node of this name; without its object only what is told here.

    `addresses` are those that the kernel calls local; where nobody has asked it, the Node object's count. A
    `bind_address` other than 0.0.0.0 and :: is the primary address of its family, whatever the object says.
    """
    told = _told(node)
    primary = {address.version: address for address in reversed(told)}
    bound = parsed_address(bind_address)
    if bound and not bound.is_unspecified:
        primary[bound.version] = bound
    local = dict.fromkeys((*primary.values(), *(told if addresses is None else addresses)))
    return NodeView(
        name,
        node.zone if node else "",
        tuple(address for _, address in sorted(primary.items())),
        tuple(address for address in local if not address.is_loopback),
    )


def _told(node: Node | None) -> tuple[Address, ...]:
    """The addresses of the Node object, those for inside of the cluster first."""
    rows = (node.status.addresses or ()) if node else ()
    by_type = [row.address for wanted in ("InternalIP", "ExternalIP") for row in rows if row.type == wanted]
    return tuple(dict.fromkeys(address for text in by_type if (address := parsed_address(text))))


def proxy_config(settings: Settings, node: Node | None, service_cidrs: Iterable[str] = ()) -> ProxyConfig:
    """What the plan needs of the settings; with detectLocalMode NodeCIDR it depends on the node's podCIDRs.

    InputError for a mode without a plan.
    """
    if settings.mode not in MODES:
        raise InputError(f"mode {settings.mode} is not built yet; there are {', '.join(MODES)}")
    return ProxyConfig(
        MODES[settings.mode],
        masquerade_all=settings.masquerade_all,
        local_pods=_local_pods(settings, node),
        node_port_addresses=_node_port_addresses(settings),
        localhost_node_ports=settings.iptables.localhost_node_ports,
        service_cidrs=_networks(service_cidrs),
        node_hints=settings.node_hints,
    )


def _local_pods(settings: Settings, node: Node | None) -> LocalPods | None:
    match settings.detect_local_mode:
        case "BridgeInterface":
            return LocalPods(bridge=settings.detect_local.bridge_interface)
        case "InterfaceNamePrefix":
            return LocalPods(interface_prefix=settings.detect_local.interface_name_prefix)
        case "NodeCIDR":
            networks = _networks(node.pod_cidrs if node else ())
        case _:
            networks = _networks(settings.cluster_cidrs)
    return LocalPods(networks) if networks else None


def _node_port_addresses(settings: Settings) -> tuple[Network | Literal["primary"], ...]:
    if PRIMARY in settings.node_port_addresses or (settings.mode == "nftables" and not settings.node_port_addresses):
        return (PRIMARY,)
    return _networks(settings.node_port_addresses)


def _networks(texts: Iterable[str]) -> tuple[Network, ...]:
    return tuple(network for text in texts if (network := parsed_network(text)))
