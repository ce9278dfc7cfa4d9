"""Virtual IPs and ports: what the plan refuses or shadows, whose rules these are, and what it takes as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_network
from typing import Final

from kdns.cluster.objects import Service
from kdns.cluster.readiness import SHOWN, and_
from kdns.cluster.state import State
from kdns.diagnosis.problem import ERROR, NOTE, WARNING, Problem, of_service, patch_command
from kdns.diagnosis.view import ClusterView
from kdns.net import FAMILIES, Network, family_of_text, packed, parse_address, parse_network
from kdns.proxy.plan.claims import API_SERVICE
from kdns.proxy.plan.config import NodeView, ProxyConfig
from kdns.proxy.plan.plan import SPECIAL_ENDPOINT, FrontKind
from kdns.proxy.plan.planner import plan
from kdns.proxy.plan.semantics import Semantics

ANY_MODE: Final = Semantics("any")
_SPECIAL: Final = tuple(
    (ip_network(text)[0].packed, ip_network(text)[-1].packed)
    for text in ("0.0.0.0/32", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/127", "fe80::/10", "ff00::/8")
)
"""The first and last addresses of networks that no Pod has an address of; the plan decides."""
_PORT_FIELD: Final = "spec.ports"
_FIELDS: Final = {
    FrontKind.CLUSTER_IP: "spec.clusterIP",
    FrontKind.EXTERNAL_IP: "spec.externalIPs",
    FrontKind.LOAD_BALANCER_IP: "status.loadBalancer.ingress",
    FrontKind.NODE_PORT: _PORT_FIELD,
}


def planned(view: ClusterView) -> Iterator[Problem]:
    """Fronts that a Service does not get or that shadow others, and endpoints that no Pod has."""
    services = view.state.services
    decided = plan(_contested(view), NodeView(), ProxyConfig(replace(ANY_MODE, relays=_is_one_machine(view))))
    for family in FAMILIES:
        family_plan = decided.of(family)
        for key, refusals in family_plan.refused.items():
            winner = family_plan.fronts.get(key)
            for refusal in refusals:
                if winner and refusal.kind is winner.kind is FrontKind.CLUSTER_IP:
                    continue  # `cluster_ips` has these, and those with other ports
                is_twice = winner and refusal.kind is winner.kind is FrontKind.NODE_PORT
                cause = "node-port-twice" if is_twice else "address-refused"
                text = f"it does not get {refusal.kind.value} {key}: {refusal.reason}"
                service = services[refusal.name[:2]]
                yield of_service(service, cause, ERROR, _FIELDS[refusal.kind], text, _another(refusal.kind))
        for key, what in family_plan.shadows.items():
            if front := family_plan.fronts.get(key):
                text = f"{front.kind.value} {key} shadows {what}: its packets come here"
                service = services[front.port.name[:2]]
                yield of_service(service, "address-shadowed", WARNING, _FIELDS[front.kind], text, _another(front.kind))
        special = {
            (name[:2], limit.text): None
            for name, port in family_plan.limited.items()
            for limit in port.limits
            if limit.event == SPECIAL_ENDPOINT
        }
        for owner, text in special:
            yield of_service(services[owner], "special-endpoint", ERROR, "", f"{text}: no other machine reaches it")


def _contested(view: ClusterView) -> State:
    """Returns the Services that a plan may refuse something: a whole plan takes seconds for 10,000 Services.

    These have a number that another has too, an external address, something at one, or an endpoint that no Pod has.
    """
    state, services = view.state, view.state.services
    numbers = Counter(number for service in services.values() for number in _numbers(service))
    chosen = {key for key, service in services.items() if any(numbers[number] > 1 for number in _numbers(service))}
    endpoints = [packed(address) for service in services.values() for address in service.external_ips]
    chosen.update(key for key, service in services.items() if service.external_ips)
    chosen.update(key for address in endpoints for key in state.services_by_ip[address])
    endpoints += [address for first, last in _SPECIAL for address in state.slices_by_ip.between(first, last)]
    slices = [state.slices[key] for address in endpoints for key in state.slices_by_ip[address]]
    chosen.update(endpoint_slice.service_key for endpoint_slice in slices if endpoint_slice.service_key)
    chosen &= services.keys()
    return State(
        services={key: services[key] for key in services if key in chosen},
        slices_by_service={
            key: {endpoint_slice.key: endpoint_slice for endpoint_slice in state.slices_of(key)}
            for key in (*chosen, API_SERVICE)
        },
    )


def _numbers(service: Service) -> Iterator[tuple[str, object]]:
    yield from (("address", address) for address in service.virtual_ips)
    yield from ((port.protocol, port.node_port) for port in service.ports if port.node_port)
    if service.spec.health_check_node_port:
        yield "TCP", service.spec.health_check_node_port


def _is_one_machine(view: ClusterView) -> bool:
    """Whether the API server is at a loopback address, so that endpoints there are right: with `kdns up`."""
    slices = view.state.slices_of(API_SERVICE)
    addresses = (
        address
        for endpoint_slice in slices
        for endpoint in endpoint_slice.endpoints or ()
        for address in endpoint.addresses
    )
    return any(address.is_loopback for address in map(parse_address, addresses) if address)


def _another(kind: FrontKind) -> str:
    if kind is FrontKind.NODE_PORT:
        return "give one of them another nodePort, or leave the field out"
    return "give it an address that nothing else has"


def cluster_ips(view: ClusterView) -> Iterator[Problem]:
    """Cluster IPs that are missing, that several Services have at different ports, or that no ServiceCIDR has."""
    cidrs = (text for service_cidr in view.state.service_cidrs.values() for text in service_cidr.spec.cidrs or ())
    ranges = [network for network in map(parse_network, cidrs) if network]
    for service in view.state.services.values():
        spec = service.spec
        if not service.is_external_name and not spec.cluster_ip:
            text = "the API server has not given it a cluster IP: the ServiceCIDRs may be exhausted"
            remedy = f"kubectl describe service -n {' '.join(service.key)}"
            yield of_service(service, "cluster-ip-missing", ERROR, "spec.clusterIP", text, remedy)
        for address in service.virtual_ips:
            others = [key for key in view.services_at(address) if key != service.key]
            first = min(service.key, *others) if others else service.key
            if others and service.key != first:
                text = f"{address} is also the cluster IP of Service {and_(map('/'.join, sorted(others)[:SHOWN]))}"
                remedy = "delete it and create it again without clusterIP"
                yield of_service(service, "cluster-ip-twice", ERROR, "spec.clusterIP", text, remedy)
            if not _is_within(address, ranges):
                text = f"{address} is in no ServiceCIDR, which are {and_(map(str, ranges[:SHOWN]))}"
                yield of_service(service, "outside-ranges", WARNING, "spec.clusterIP", text)
        if spec.type == "LoadBalancer" and not service.ingress:
            text = "no controller has given it an address: it is reachable by its cluster IP and node ports"
            remedy = f"kubectl describe service -n {' '.join(service.key)}"
            yield of_service(service, "load-balancer-pending", NOTE, "status.loadBalancer", text, remedy)


def _is_within(address: str, ranges: list[Network]) -> bool:
    """Whether a range has the address; where no range of its family is known, that is not known."""
    parsed = parse_address(address)
    own = [network for network in ranges if parsed and network.version == parsed.version]
    return not own or any(parsed in network for network in own if parsed)


def of_services(view: ClusterView) -> Iterator[Problem]:
    """EndpointSlices with the cluster IP of a Service: no proxy translates a packet's destination twice."""
    for service in view.state.services.values():
        for address in service.virtual_ips:
            for key in view.state.slices_by_ip[packed(address)]:
                text = f"{address} is the cluster IP of Service {'/'.join(service.key)}: proxies do not follow it"
                remedy = "use the addresses of its Pods, or a Service of type ExternalName"
                yield Problem("endpoint-address", WARNING, "EndpointSlice", key, "endpoints", text, remedy)


def families(view: ClusterView) -> Iterator[Problem]:
    """Services with cluster IPs of two families whose ready endpoints have one."""
    for service in view.state.services.values():
        wanted = {family_of_text(address) for address in service.virtual_ips}
        have = view.endpoints(service.key).families & {*FAMILIES}
        if have and (missing := wanted - have):
            yield _one_family(service, sorted(missing), sorted(have))


def _one_family(service: Service, missing: list[str], have: list[str]) -> Problem:
    text = f"its ready endpoints have {and_(have)} addresses only: its {and_(missing)} cluster IP leads nowhere"
    remedy = patch_command(service, {"spec": {"ipFamilyPolicy": "SingleStack"}})
    first = family_of_text(service.virtual_ips[0])
    if first in missing:
        remedy = "give its Pods addresses of both families"
    return of_service(service, "one-family", WARNING, "spec.ipFamilies", text, remedy)
