"""What an update of a Service means for the values that the server chose: kept, brought in step, or cleared."""

from __future__ import annotations

from collections.abc import Callable

from kdns.controlplane.kinds import Json
from kdns.controlplane.services import (
    LOAD_BALANCER,
    cluster_ips,
    has_node_ports,
    is_external,
    needs_cluster_ip,
    needs_health_check,
    node_ports,
    ports_of,
    same,
    spec_of,
    takes_node_ports,
    type_of,
)


def carry_over(service: Json, old: Json) -> None:
    """Allocated values that the client left out are those of the stored object."""
    spec, stored = spec_of(service), spec_of(old)
    if needs_cluster_ip(old) and needs_cluster_ip(service):
        if not spec.get("clusterIP") and stored.get("clusterIP"):
            spec["clusterIP"] = stored["clusterIP"]
        if not spec.get("clusterIPs") and spec.get("clusterIP") == stored.get("clusterIP") and cluster_ips(old):
            spec["clusterIPs"] = list(cluster_ips(old))
    if has_node_ports(old) and takes_node_ports(service):
        used = set(node_ports(old)) & set(node_ports(service))
        by_name = {port.get("name") or "": port.get("nodePort") or 0 for port in ports_of(old)}
        for port in ports_of(service):
            number = by_name.get(port.get("name") or "", 0)
            if not port.get("nodePort") and number and number not in used:
                port["nodePort"] = number
    if needs_health_check(old) and needs_health_check(service) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = stored.get("healthCheckNodePort")


def bring_in_step(service: Json, old: Json) -> None:
    """Clients that know only clusterIP, or only cleared it, mean clusterIPs too."""
    spec, stored = spec_of(service), spec_of(old)
    unchanged = same(old, service, "clusterIPs")
    if spec.get("clusterIP") == stored.get("clusterIP"):
        if cluster_ips(old) and not cluster_ips(service):
            spec["clusterIPs"] = list(cluster_ips(old))
    elif spec.get("clusterIP") and (unchanged or not cluster_ips(service)):
        spec["clusterIPs"] = [spec["clusterIP"]]
    elif unchanged:
        spec.pop("clusterIPs", None)


def drop_unneeded(service: Json, old: Json) -> None:
    """Clear what the new type has no use for where the client left it as it was; validation refuses what it changed."""
    spec = spec_of(service)
    rules: tuple[tuple[Callable[[Json], bool], tuple[str, ...]], ...] = (
        (needs_cluster_ip, ("clusterIPs", "ipFamilies", "ipFamilyPolicy")),
        (needs_health_check, ("healthCheckNodePort",)),
        (lambda each: type_of(each) == LOAD_BALANCER, ("allocateLoadBalancerNodePorts", "loadBalancerClass")),
        (is_external, ("externalTrafficPolicy",)),
    )
    for needed, fields in rules:
        if needed(old) and not needed(service):
            for field in fields:
                if same(old, service, field):
                    spec.pop(field, None)
                    if field == "clusterIPs":
                        spec.pop("clusterIP", None)
    if has_node_ports(old) and not has_node_ports(service) and set(node_ports(old)) >= set(node_ports(service)):
        for port in ports_of(service):
            port.pop("nodePort", None)
    if type_of(service) != LOAD_BALANCER:
        service["status"] = {"loadBalancer": {}}
