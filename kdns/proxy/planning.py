"""What a Service means on this node: its ports' plans, and what configuration and node decide without any Service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kdns.cluster.objects import EndpointSlice, Service, ServicePort
from kdns.proxy.backends import Backends, Policies, candidates, chosen
from kdns.proxy.config import (
    PRIMARY,
    VERSION,
    Family,
    Network,
    NodeView,
    ProxyConfig,
    canonical,
    family_of_text,
    parsed_address,
    parsed_network,
)
from kdns.proxy.plan import FamilyPlan, FrontKey, FrontKind, Masquerade, PortName, PortPlan, Route, Verdict

AFFINITY_DEFAULT_S: Final = 10800


def empty_plan(family: Family, config: ProxyConfig, node: NodeView) -> FamilyPlan:
    """A half without Services: what configuration and node decide by themselves."""
    networks = tuple(_node_port_networks(family, config, node))
    return FamilyPlan(
        family,
        config.mode,
        node,
        cluster_ip_masquerade=_cluster_ip_masquerade(family, config),
        local_pods=config.local_pods.of(family) if config.local_pods else None,
        node_port_networks=networks,
        localhost_node_ports=config.mode.localhost_node_ports
        and config.localhost_node_ports
        and (family == "IPv4" or config.mode.relays),
        service_cidrs=tuple(each for each in config.service_cidrs if each.version == VERSION[family]),
    )


def _cluster_ip_masquerade(family: Family, config: ProxyConfig) -> Masquerade:
    """Packets that are not of this node's Pods may have come from outside, and the answers have to go back there."""
    if config.mode.relays:
        return Masquerade.NONE  # the node's address is the relay's own
    if config.masquerade_all:
        return Masquerade.ALL
    can_tell = config.local_pods is not None and config.local_pods.of(family) is not None
    return Masquerade.NOT_LOCAL_PODS if can_tell else Masquerade.NONE


def _node_port_networks(family: Family, config: ProxyConfig, node: NodeView) -> Iterator[Network]:
    if PRIMARY in config.node_port_addresses:
        for address in node.primary:
            if address.version == VERSION[family] and (network := parsed_network(str(address))):
                yield network
        return
    mine = [each for each in config.node_port_addresses if not isinstance(each, str)]
    mine = [each for each in mine if each.version == VERSION[family]]
    everywhere = parsed_network("0.0.0.0/0" if family == "IPv4" else "::/0")
    if everywhere and (not mine or everywhere in mine):
        mine = [everywhere]
    yield from mine


def is_proxied(service: Service) -> bool:
    """Whether the Service has virtual IPs that are this proxy's business."""
    labels = service.metadata.labels
    return bool(service.virtual_ips) and (labels is None or labels.proxy_name is None)


def cluster_ip(service: Service, family: Family) -> str:
    """The cluster IP of a family in canonical spelling, or ""."""
    return next(iter(_canonical(service.virtual_ips, family)), "")


def plan_service(
    service: Service, slices: Iterable[EndpointSlice], family: Family, config: ProxyConfig, node: NodeView
) -> tuple[PortPlan, ...]:
    """The plans of the Service's ports in one family; none where it has no cluster IP of that family."""
    address = cluster_ip(service, family) if is_proxied(service) else ""
    if not address:
        return ()
    slices = tuple(slices)
    return tuple(_port_plan(service, port, address, slices, family, config, node) for port in service.ports)


def _port_plan(
    service: Service,
    port: ServicePort,
    address: str,
    slices: tuple[EndpointSlice, ...],
    family: Family,
    config: ProxyConfig,
    node: NodeView,
) -> PortPlan:
    spec = service.spec
    policies = _policies(service, port)
    found = candidates(slices, family, port.name or "", port.protocol, node.name)
    backends = chosen(found, policies, node, node_hints=config.node_hints)
    guarded, ranges = _source_ranges(service, family)
    affinity = spec.session_affinity_config.client_ip if spec.session_affinity_config else None
    timeout_s = (affinity.timeout_seconds if affinity else None) or AFFINITY_DEFAULT_S
    local_balancer = spec.type == "LoadBalancer" and policies.external_local
    balancer_ips = _balancer_ips(service, family, config)
    if guarded and any(own in each for each in ranges for own in node.addresses if own.version == each.version):
        # A packet of the node to such an address comes back with that address as its source.
        ranges += tuple(own for each in balancer_ips if (own := parsed_network(each)))
    fronts = tuple(_fronts(port, address, _canonical(spec.external_ips or (), family), balancer_ips))
    if config.mode.relays and port.protocol == "SCTP":
        fronts = ()
    return PortPlan(
        PortName(*service.key, port.name or "", port.protocol),
        _internal(policies, backends, _cluster_ip_masquerade(family, config)),
        _external(policies, backends, Masquerade.NONE if config.mode.relays else Masquerade.ALL),
        backends,
        fronts,
        ranges,
        timeout_s if spec.session_affinity == "ClientIP" else 0,
        spec.health_check_node_port if local_balancer else 0,
        service.metadata.annotations.proxy_protocol if service.metadata.annotations and config.mode.relays else "",
        tuple(each.backend for each in found if each.is_ready or each.is_serving) if port.protocol == "UDP" else (),
    )


def _policies(service: Service, port: ServicePort) -> Policies:
    """The policies. What is left of a former type, a node port or a load balancer's address, works like any other."""
    spec = service.spec
    is_external = spec.type in {"LoadBalancer", "NodePort"} or bool(spec.external_ips)
    is_left = bool(port.node_port or (service.status and service.status.load_balancer.ingress))
    return Policies(
        internal_local=spec.internal_traffic_policy == "Local",
        external_local=spec.external_traffic_policy == "Local" and is_external,
        is_external=is_external or is_left,
    )


def _internal(policies: Policies, backends: Backends, masquerade: Masquerade) -> Route:
    if not backends.has_any:
        return Route(Verdict.REJECT, masquerade)
    if not policies.internal_local:
        return Route(Verdict.CLUSTER, masquerade)
    return Route(Verdict.LOCAL if backends.local else Verdict.DROP, masquerade)


def _external(policies: Policies, backends: Backends, masquerade: Masquerade) -> Route:
    if not backends.has_any:
        return Route(Verdict.REJECT)
    if not policies.external_local:
        return Route(Verdict.CLUSTER, masquerade)
    return Route(Verdict.LOCAL if backends.local else Verdict.DROP, short_circuit=True)


def _fronts(
    port: ServicePort, address: str, external_ips: Iterable[str], balancer_ips: Iterable[str]
) -> Iterator[tuple[FrontKey, FrontKind]]:
    yield FrontKey(address, port.protocol, port.port), FrontKind.CLUSTER_IP
    for each in external_ips:
        yield FrontKey(each, port.protocol, port.port), FrontKind.EXTERNAL_IP
    for each in balancer_ips:
        yield FrontKey(each, port.protocol, port.port), FrontKind.LOAD_BALANCER_IP
    if port.node_port:
        yield FrontKey("", port.protocol, port.node_port), FrontKind.NODE_PORT


def _canonical(texts: Iterable[str], family: Family) -> tuple[str, ...]:
    """Those addresses that are of the family, each once, in their canonical spelling."""
    written = dict.fromkeys(canonical(text) for text in texts)
    return tuple(each for each in written if each and family_of_text(each) == family)


def _balancer_ips(service: Service, family: Family, config: ProxyConfig) -> tuple[str, ...]:
    """The load balancer's addresses that the node answers itself: not those it shall leave to the load balancer.

    An address of the node is one like any other: some load balancers give it out.

    Differs: a loopback address is not captured. kube-proxy takes what programs of every node say to themselves there,
    whatever the Service's author had in mind. Relays listen there, if nobody else does.
    """
    if service.status is None:
        return ()
    ingress = service.status.load_balancer.ingress or ()
    found = _canonical((each.ip for each in ingress if each.ip_mode in {None, "VIP"}), family)
    return found if config.mode.relays else tuple(each for each in found if not _is_loopback(each))


def _is_loopback(text: str) -> bool:
    address = parsed_address(text)
    return address is not None and address.is_loopback


def _source_ranges(service: Service, family: Family) -> tuple[bool, tuple[Network, ...]]:
    """Whether load balancer addresses are guarded, and the networks that may pass.

    A range of everything, or only ranges of the other family, guard nothing.
    """
    parsed = [network for text in service.spec.load_balancer_source_ranges or () if (network := parsed_network(text))]
    mine = tuple(dict.fromkeys(network for network in parsed if network.version == VERSION[family]))
    if any(network.prefixlen == 0 for network in mine):
        return False, ()
    return bool(mine), mine
