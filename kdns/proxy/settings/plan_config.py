"""Settings and the Node object to the inputs of the plan: the node's view, and the configuration."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final, Literal, TypeAlias

from kdns.cluster.objects import Node
from kdns.net import Address, Network, parse_network, parse_port, parse_unmapped_address, split_host_port
from kdns.proxy.modes import MODES
from kdns.proxy.plan.config import (
    EVERYWHERE,
    LOOPBACK,
    OF_THE_NODE,
    PRIMARY,
    LocalPods,
    NodeView,
    ProtectedPort,
    ProxyConfig,
)
from kdns.proxy.settings.settings import EXTERNAL_IPS, SAME_TRAFFIC_DISTRIBUTION, SHADOWING, Settings

ADDRESS_KEYWORDS: Final = (PRIMARY, "localhost", "all")
"""Words of nodePortAddresses, in any combination with CIDRs (kube-proxy 1.37; 1.36 has `primary` alone)."""

SocketAddress: TypeAlias = tuple[Address, int]
"""An address and a port."""

_PROTECTED_PORT: Final = re.compile(
    r"(?:(?:\[(?P<ipv6>[^\]]*)\]|(?P<ipv4>[0-9./]+)):)?(?P<port>[0-9]{1,5})(?:/(?P<protocol>tcp|udp|sctp))?",
    re.IGNORECASE,
)


def node_view(
    node: Node | None,
    name: str,
    *,
    bind_address: str = "",
    addresses: Collection[Address] | None = None,
    defaults: Iterable[Address] = (),
) -> NodeView:
    """Returns the node as the plan sees it. `node` is None if the object does not exist.

    `addresses` are the kernel's local addresses; None: those of the Node object are used. `defaults` take the place of
    the object's where the kernel has none of these. A `bind_address` other than 0.0.0.0 and :: is the primary address
    of its family, whatever the object has.
    """
    reported = _reported_addresses(node)
    if addresses and not {*addresses} & {*reported}:
        reported = tuple(defaults)
    primary = {address.version: address for address in reversed(reported)}
    bound = parse_unmapped_address(bind_address)
    if bound and not bound.is_unspecified:
        primary[bound.version] = bound
    local = dict.fromkeys((*primary.values(), *(reported if addresses is None else addresses)))
    return NodeView(
        name,
        node.zone if node else "",
        tuple(address for _, address in sorted(primary.items())),
        tuple(address for address in local if not address.is_loopback),
    )


def _reported_addresses(node: Node | None) -> tuple[Address, ...]:
    rows = (node.status.addresses or ()) if node else ()
    by_type = [row.address for wanted in ("InternalIP", "ExternalIP") for row in rows if row.type == wanted]
    return tuple(dict.fromkeys(address for text in by_type if (address := parse_unmapped_address(text))))


def proxy_config(
    settings: Settings,
    node: Node | None,
    service_cidrs: Iterable[str] = (),
    api_servers: Iterable[SocketAddress] = (),
) -> ProxyConfig:
    """The plan's configuration from the settings; with detectLocalMode NodeCIDR it depends on the node's podCIDRs.

    `api_servers` are where the node's client reaches the API.
    """
    mode = MODES[settings.mode]
    switch = mode.loopback_switch
    return ProxyConfig(
        mode.semantics,
        masquerade_all=mode.masquerades_all(mode, settings),
        local_pods=_local_pods(settings, node),
        node_port_addresses=_node_port_addresses(settings),
        localhost_node_ports=switch is None or switch.is_on(settings),
        service_cidrs=_networks(service_cidrs),
        node_hints=settings.is_on(SAME_TRAFFIC_DISTRIBUTION),
        external_ips=settings.is_on(EXTERNAL_IPS),
        shadowing=settings.is_on(SHADOWING),
        protected_ports=(*OF_THE_NODE, *_protected_ports(settings, api_servers)),
        chosen_by=mode.chosen_by(settings),
    )


def _protected_ports(settings: Settings, api_servers: Iterable[SocketAddress]) -> Iterator[ProtectedPort]:
    _, text = split_host_port(settings.healthz_bind_address) or ("", "")
    if port := parse_port(text):
        yield ProtectedPort("where this node's kdns serves /healthz", port, "TCP")
    for address, port in api_servers:
        yield ProtectedPort("the API server", port, "TCP", parse_network(str(address)))
    for text in settings.protected_ports:
        if each := protected_port(text):
            yield each


def protected_port(text: str) -> ProtectedPort | None:
    """Returns a row of protectedPorts: 22, 22/tcp, 8.8.8.8:53, 192.0.2.0/24:10250, [2001:db8::/32]:22/tcp.

    None for others.
    """
    match = _PROTECTED_PORT.fullmatch(text.strip())
    port, network = parse_port(match["port"]) if match else None, None
    if not match or not port:
        return None
    for wanted, cidr in ((4, match["ipv4"]), (6, match["ipv6"])):
        if cidr is not None and ((network := parse_network(cidr)) is None or network.version != wanted):
            return None
    return ProtectedPort("named by protectedPorts", port, (match["protocol"] or "").upper(), network)


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
    if not settings.node_port_addresses and MODES[settings.mode].semantics.primary_node_ports:
        return (PRIMARY,)
    return tuple(
        node_port_network for text in settings.node_port_addresses for node_port_network in node_port_networks(text)
    )


def node_port_networks(text: str) -> tuple[Network | Literal["primary"], ...]:
    """Returns what one item of nodePortAddresses stands for; nothing for text that is neither keyword nor CIDR."""
    match text:
        case "primary":
            return (PRIMARY,)
        case "localhost":
            return tuple(LOOPBACK.values())
        case "all":
            return tuple(EVERYWHERE.values())
        case _:
            return _networks((text,))


def _networks(texts: Iterable[str]) -> tuple[Network, ...]:
    return tuple(network for text in texts if (network := parse_network(text)))
