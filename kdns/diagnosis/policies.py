"""Traffic policies, hints and other fields whose effect depends on nodes and endpoints."""

from __future__ import annotations

from collections.abc import Iterator

from kdns.cluster.objects import Node, Service
from kdns.cluster.observed import SelectingService
from kdns.cluster.readiness import SHOWN, and_, count
from kdns.diagnosis.problem import NOTE, WARNING, Problem, of_service, patch_command
from kdns.diagnosis.view import ClusterView
from kdns.spelling import listed


def local(view: ClusterView) -> Iterator[Problem]:
    """Services with policy Local, and nodes without an endpoint of theirs: packets there are dropped."""
    nodes = [node.metadata.name for node in view.state.nodes.values() if _runs_pods(node)]
    for service in view.state.services.values():
        spec, endpoints = service.spec, view.endpoints(service.key)
        is_internal = spec.internal_traffic_policy == "Local" and bool(service.virtual_ips)
        # a load balancer asks the health check node port, and sends nothing to nodes without endpoints
        is_external = spec.external_traffic_policy == "Local" and (spec.type == "NodePort" or bool(spec.external_ips))
        if not endpoints.ready or not (is_internal or is_external):
            continue
        if without := [name for name in nodes if name not in endpoints.nodes]:
            field = "spec.internalTrafficPolicy" if is_internal else "spec.externalTrafficPolicy"
            what = "cluster IP" if is_internal else "node ports and external IPs"
            text = (
                f"{count(len(without), 'node')} of {len(nodes)} {'has' if len(without) == 1 else 'have'} no endpoint "
                f"({listed(without, SHOWN)}): packets there to its {what} are dropped"
            )
            remedy = patch_command(service, {"spec": {field.removeprefix("spec."): "Cluster"}})
            yield of_service(service, "local-policy", WARNING, field, text, remedy)


def _runs_pods(node: Node) -> bool:
    return not node.spec.taints and not node.metadata.deletion_timestamp


def without_effect(view: ClusterView) -> Iterator[Problem]:
    """Fields that nothing reads in a Service of this type."""
    for service in view.state.services.values():
        if fields := [*_ignored(service)]:
            what = "is headless" if service.is_headless else f"has type {service.spec.type}"
            text = f"{and_(fields)} {'has' if len(fields) == 1 else 'have'} no effect: it {what}"
            yield of_service(service, "no-effect", NOTE, f"spec.{fields[0]}", text, "leave the field out")


def _ignored(service: Service) -> Iterator[str]:
    spec = service.spec
    if not service.virtual_ips and (service.is_headless or service.is_external_name):
        if spec.internal_traffic_policy == "Local":
            yield "internalTrafficPolicy"
        if spec.session_affinity == "ClientIP":
            yield "sessionAffinity"
        if spec.external_ips:
            yield "externalIPs"
        if isinstance(service, SelectingService) and service.spec.traffic_distribution:
            yield "trafficDistribution"
    if spec.load_balancer_source_ranges and spec.type != "LoadBalancer":
        yield "loadBalancerSourceRanges"
    if (
        spec.external_traffic_policy == "Local"
        and spec.type not in {"NodePort", "LoadBalancer"}
        and not spec.external_ips
    ):
        yield "externalTrafficPolicy"


def hints(view: ClusterView) -> Iterator[Problem]:
    """Hints that every proxy ignores, and topology that no node can have."""
    zones = {node.zone for node in view.state.nodes.values()} - {""}
    for service in view.state.services.values():
        if service.is_external_name or service.is_headless:
            continue
        endpoints, asked = view.endpoints(service.key), _topology(service)
        if 0 < endpoints.hinted < endpoints.ready:
            without = endpoints.ready - endpoints.hinted
            text = f"{without} of {endpoints.ready} ready endpoints have no hint: all hints are ignored"
            yield of_service(service, "hints-unused", NOTE, "", text)
        elif unknown := endpoints.zones - zones:
            text = f"hints name the zone {and_(sorted(unknown)[:SHOWN])}, and no node has it"
            yield of_service(service, "hints-unused", NOTE, "", text)
        elif asked and not zones and view.state.nodes:
            field = f"{asked} has no effect: no node has the label topology.kubernetes.io/zone"
            yield of_service(service, "hints-unused", NOTE, asked, field)


def _topology(service: Service) -> str:
    if not isinstance(service, SelectingService):
        return ""
    if service.spec.traffic_distribution in {"PreferClose", "PreferSameZone"}:
        return "spec.trafficDistribution"
    annotations = service.metadata.annotations
    is_auto = annotations is not None and annotations.mode.lower() == "auto"
    return "metadata.annotations[service.kubernetes.io/topology-mode]" if is_auto else ""
