"""From a Service and its EndpointSlices to the plans of its ports, and the plan of a node without Services."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from ipaddress import collapse_addresses
from typing import Final

from kdns.cluster.objects import EndpointSlice, Service, ServicePort
from kdns.net import (
    VERSION,
    Family,
    Network,
    canonical_address,
    family_of_text,
    may_be_special,
    parse_network,
    parse_unmapped_address,
    special_purpose,
)
from kdns.proxy.plan.branches import SourceNat, Verdict, cluster_ip_branches, external_branches
from kdns.proxy.plan.config import PRIMARY, NodeView, ProxyConfig
from kdns.proxy.plan.endpoints import EndpointLists, candidates, endpoint_lists, with_one_port
from kdns.proxy.plan.node_ports import node_port_addresses
from kdns.proxy.plan.plan import SPECIAL_ENDPOINT, FamilyPlan, FrontKey, FrontKind, Limit, PortName, PortPlan
from kdns.proxy.plan.semantics import Semantics
from kdns.spelling import listed

AFFINITY_DEFAULT_S: Final = 10800
AFFINITY_MAX_S: Final = 86400
"""The API's limit."""


def empty_plan(family: Family, config: ProxyConfig, node: NodeView) -> FamilyPlan:
    """Returns the plan of one family without Services: what configuration and node decide."""
    mode, nat = config.mode, source_nat(family, config)
    return FamilyPlan(
        family,
        mode,
        node,
        node_port_addresses(family, config, node),
        local_pods=config.local_pods.of(family) if config.local_pods else None,
        cluster_ip=cluster_ip_branches(Verdict.CLUSTER, nat),
        external_local=external_branches(Verdict.LOCAL, nat, is_local=True),
        unallocated=_routed(config.service_cidrs, family) if mode.drops_unallocated else (),
        chosen_by=config.chosen_by,
    )


def source_nat(family: Family, config: ProxyConfig) -> SourceNat:
    """Returns the configuration's part in masquerading."""
    mode, pods = config.mode, config.local_pods
    detects_pods = pods is not None and pods.of(family) is not None and not mode.treats_clients_alike
    return SourceNat(detects_pods, config.masquerade_all, mode.relays, mode.has_one_list, mode.treats_clients_alike)


def _of_family(networks: Iterable[Network], family: Family) -> tuple[Network, ...]:
    return tuple(network for network in networks if network.version == VERSION[family])


def _routed(networks: Iterable[Network], family: Family) -> tuple[Network, ...]:
    """Those of a family but loopback ones: no packet leaves from there, and relays listen at cluster IPs in them."""
    return _collapsed(network for network in _of_family(networks, family) if not network.is_loopback)


def _collapsed(networks: Iterable[Network]) -> tuple[Network, ...]:
    """Returns the same addresses in networks that do not overlap, as sets with intervals require.

    Networks that do not overlap or adjoin stay in their order, in which kube-proxy writes them.
    """
    given = tuple(networks)
    collapsed: tuple[Network, ...] = tuple(collapse_addresses(given))  # type: ignore[type-var]  # of one family
    return given if len(given) == len(collapsed) else collapsed


def is_proxied(service: Service) -> bool:
    labels = service.metadata.labels
    return bool(service.virtual_ips) and (labels is None or labels.proxy_name is None)


def cluster_ips(service: Service) -> dict[Family, str]:
    """Returns the cluster IP of each family that has one, in canonical form."""
    addresses: dict[Family, str] = {}
    for text in service.virtual_ips:
        if address := canonical_address(text):
            addresses.setdefault(family_of_text(address), address)
    return addresses


def plan_port(
    service: Service,
    port: ServicePort,
    address: str,
    slices: Collection[EndpointSlice],
    family: Family,
    config: ProxyConfig,
    node: NodeView,
    nat: SourceNat,
) -> PortPlan:
    """Returns the plan of one of the Service's ports in one family, where its cluster IP is `address`."""
    spec, mode = service.spec, config.mode
    is_external = spec.type in {"LoadBalancer", "NodePort"} or bool(spec.external_ips)
    is_local = is_external and spec.external_traffic_policy == "Local"
    internal_local = spec.internal_traffic_policy == "Local"
    known = candidates(slices, family, port.name or "", port.protocol, node.name)
    endpoints = endpoint_lists(
        known,
        node,
        internal_local=internal_local,
        external_local=is_local,
        is_external=is_external or bool(port.node_port or service.ingress),  # left from a former type, they work too
        node_hints=config.node_hints,
    )
    ranges = _source_ranges(service, family)
    affinity = spec.session_affinity_config.client_ip if spec.session_affinity_config else None
    timeout_s = min(max(affinity.timeout_seconds or 0, 0) if affinity else 0, AFFINITY_MAX_S) or AFFINITY_DEFAULT_S
    affinity_s = timeout_s if spec.session_affinity == "ClientIP" else 0
    limits = (
        *_limits(port, config, has_ranges=bool(ranges), affinity_s=affinity_s),
        *_endpoint_limits(endpoints, mode),
        *_special_endpoints(endpoints, config),
    )
    if mode.has_one_target_port:
        endpoints = with_one_port(endpoints)
    if not mode.restricts_sources:
        ranges = ()
    balancer_ips = _balancer_ips(service, family)
    if any(own in range_ for range_ in ranges for own in node.addresses if own.version == range_.version):
        # A packet of the node to such an address returns with that address as its source.
        ranges += tuple(own for balancer_ip in balancer_ips if (own := parse_network(balancer_ip)))
    is_guarded = bool(ranges) and (mode.guards_without_endpoints or endpoints.has_any)
    verdict = _verdict(endpoints, is_local=is_local)
    external = external_branches(verdict, nat, is_local=is_local)
    fronts = tuple(_fronts(port, address, _canonical(spec.external_ips or (), family), balancer_ips))
    return PortPlan(
        PortName(*service.key, port.name or "", port.protocol),
        cluster_ip_branches(_verdict(endpoints, is_local=internal_local), nat),
        external,
        external_branches(verdict, nat, is_local=is_local, is_guarded=True) if is_guarded else external,
        endpoints,
        fronts,
        _collapsed(ranges) if ranges else (),
        _hairpins(endpoints, config),
        affinity_s,
        health_check_port(service),
        tuple(candidate.endpoint for candidate in known if candidate.is_ready or candidate.is_serving)
        if port.protocol == "UDP"
        else (),
        service.metadata.creation_timestamp or "",
        limits,
    )


def _limits(port: ServicePort, config: ProxyConfig, *, has_ranges: bool, affinity_s: int) -> Iterator[Limit]:
    """Yields what the Service or nodePortAddresses requests and the mode does not do."""
    mode = config.mode
    if has_ranges and not mode.restricts_sources:
        text = f"loadBalancerSourceRanges has no effect in mode {mode.name}: every client is served"
        yield Limit(text, FrontKind.LOAD_BALANCER_IP)
    if (
        port.node_port
        and not mode.restricts_node_ports
        and any(
            node_port_address == PRIMARY or node_port_address.prefixlen > 0
            for node_port_address in config.node_port_addresses
        )
    ):
        text = f"nodePortAddresses has no effect in mode {mode.name}: node ports are at all addresses of the node"
        yield Limit(text, FrontKind.NODE_PORT)
    if affinity_s not in {0, AFFINITY_DEFAULT_S} and not mode.times_affinity:
        yield Limit(f"the timeoutSeconds of session affinity have no effect in mode {mode.name}")


def _endpoint_limits(endpoints: EndpointLists, mode: Semantics) -> Iterator[Limit]:
    ports = sorted({endpoint.port for endpoint in endpoints.reachable}) if mode.has_one_target_port else ()
    if len(ports) > 1:
        numbers = listed(map(str, ports))
        yield Limit(f"mode {mode.name} uses endpoints of one port only, and the endpoints have the ports {numbers}")
    count = max(len(endpoints.cluster), len(endpoints.local))
    if 0 < mode.supported_endpoints < count:
        yield Limit(f"mode {mode.name} supports {mode.supported_endpoints} endpoints of a Service, and it has {count}")


def _special_endpoints(endpoints: EndpointLists, config: ProxyConfig) -> Iterator[Limit]:
    """Yields what endpoints are that no Pod has: the API of another program may let any address in."""
    special = {each for each in (*endpoints.cluster, *endpoints.local) if may_be_special(each.address)}
    for endpoint in sorted(special):
        address = parse_unmapped_address(endpoint.address)
        purpose = special_purpose(address) if address else ""
        if address and address.is_loopback and not (config.mode.relays or config.is_whole_cluster):
            purpose = "a loopback address, which each machine has itself"
        if purpose:
            yield Limit(f"its endpoint {endpoint.address} is {purpose}", event=SPECIAL_ENDPOINT)


def _verdict(endpoints: EndpointLists, *, is_local: bool) -> Verdict:
    if not endpoints.has_any:
        return Verdict.REJECT
    if not is_local:
        return Verdict.CLUSTER
    return Verdict.LOCAL if endpoints.local else Verdict.DROP


def _hairpins(endpoints: EndpointLists, config: ProxyConfig) -> tuple[str, ...]:
    if config.mode.treats_clients_alike:
        return ()
    groups = (endpoints.cluster, endpoints.local)
    everywhere = config.mode.hairpins_everywhere
    return tuple({endpoint.address: None for group in groups for endpoint in group if endpoint.is_local or everywhere})


def health_check_port(service: Service) -> int:
    """Returns the node port where load balancers ask for local endpoints of the Service; 0 for none."""
    spec = service.spec
    is_local = spec.type == "LoadBalancer" and spec.external_traffic_policy == "Local"
    return spec.health_check_node_port if is_local and is_proxied(service) else 0


def _fronts(
    port: ServicePort, address: str, external_ips: Iterable[str], balancer_ips: Iterable[str]
) -> Iterator[tuple[FrontKey, FrontKind]]:
    yield FrontKey(address, port.protocol, port.port), FrontKind.CLUSTER_IP
    for external_ip in external_ips:
        yield FrontKey(external_ip, port.protocol, port.port), FrontKind.EXTERNAL_IP
    for balancer_ip in balancer_ips:
        yield FrontKey(balancer_ip, port.protocol, port.port), FrontKind.LOAD_BALANCER_IP
    if port.node_port:
        yield FrontKey("", port.protocol, port.node_port), FrontKind.NODE_PORT


def _canonical(texts: Iterable[str], family: Family) -> tuple[str, ...]:
    written = dict.fromkeys(map(canonical_address, texts))
    return tuple(address for address in written if address and family_of_text(address) == family)


def _balancer_ips(service: Service, family: Family) -> tuple[str, ...]:
    """Returns the load balancer's addresses that the node serves: those with ipMode VIP, which is the default.

    An address of the node itself is served too, since some load balancers assign it.
    """
    return _canonical((ingress.ip for ingress in service.ingress if ingress.ip_mode in {None, "VIP"}), family)


def _source_ranges(service: Service, family: Family) -> tuple[Network, ...]:
    """Returns loadBalancerSourceRanges of the family; empty: no restriction.

    A range of all addresses, or only ranges of the other family, restrict nothing.
    """
    texts = service.spec.load_balancer_source_ranges
    if not texts:
        return ()
    parsed = [network for text in texts if (network := parse_network(text))]
    own = tuple(dict.fromkeys(_of_family(parsed, family)))
    return () if any(network.prefixlen == 0 for network in own) else own
