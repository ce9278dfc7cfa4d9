"""The DNS Service itself: its address, its ports, and who may ask it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kdns.cluster.objects import Pod, ServicePort
from kdns.cluster.observed import NetworkPolicy, ObservedPod, SelectingPort, SelectingService
from kdns.cluster.readiness import and_
from kdns.diagnosis.network_policies import Destination, Traffic, governing
from kdns.diagnosis.problem import ERROR, Problem, of_service, pods_text
from kdns.diagnosis.view import ClusterView
from kdns.net import parse_address

DNS_PORT: Final = 53


def service(view: ClusterView) -> Iterator[Problem]:
    """The address that kubelets give Pods is not that of the DNS Service, or this has no port 53."""
    dns = view.dns_service
    addresses = [text for text in view.kubelet_dns if not _is_link_local(text)]  # there a node-local cache listens
    if dns is None:
        if addresses:
            text = f"kubelets give Pods {and_(addresses)}, which no Service has, and none is labelled k8s-app=kube-dns"
            remedy = "create a Service with this clusterIP for the DNS server"
            yield Problem("dns-missing", ERROR, "Service", ("kube-system", "kube-dns"), "spec.clusterIP", text, remedy)
        return
    if wrong := [text for text in addresses if not view.services_at(text)]:
        own = and_(dns.virtual_ips) or "none"
        text = f"kubelets give Pods {and_(wrong)} (clusterDNS), and its cluster IP is {own}: no name resolves in Pods"
        remedy = f"set clusterDNS of the kubelets to {own}, or create the Service again with clusterIP: {wrong[0]}"
        yield of_service(dns, "dns-address", ERROR, "spec.clusterIP", text, remedy)
    for protocol in ("UDP", "TCP"):
        if not any((port.port, port.protocol) == (DNS_PORT, protocol) for port in dns.ports):
            text = f"it has no port {DNS_PORT} of {protocol}, where resolvers ask"
            yield of_service(dns, "dns-port", ERROR, "spec.ports", text, f"add port {DNS_PORT} of {protocol}")


def _is_link_local(text: str) -> bool:
    address = parse_address(text)
    return address is not None and address.is_link_local


def shut(view: ClusterView) -> Iterator[Problem]:
    """Policies that keep Pods from asking the DNS Service, one problem for each set of policies."""
    dns = view.dns_service
    if not view.policies or not isinstance(dns, SelectingService) or not dns.spec.selector:
        return
    to = _destination(view, dns)
    if to is None:
        return
    by_namespace: dict[str, list[NetworkPolicy]] = {}
    for policy in view.policies:
        by_namespace.setdefault(policy.metadata.namespace, []).append(policy)
    traffic = Traffic(view.state)
    shut_in: dict[tuple[str, ...], list[str]] = {}
    own = governing(by_namespace.get(dns.key[0], ()), to.pods[0].metadata.labels or {}, "Ingress")
    shut_out: list[str] = []
    for namespace in sorted({space for space, _ in view.state.pods}):
        for labels, group in view.pods.groups(namespace).items():
            pods = [pod for pod in group if not _is_of_host(pod)]
            if not pods:
                continue
            egress = governing(by_namespace.get(namespace, ()), dict(labels), "Egress")
            names = ["/".join(pod.key) for pod in pods]
            if not traffic.may_send(egress, to):
                shut_in.setdefault((namespace, *(one.metadata.name for one in egress)), []).extend(names)
            if not traffic.may_receive(own, pods[0], to):
                shut_out += names
    yield from _egress(shut_in, to)
    if shut_out:
        policies = [one.metadata.name for one in own]
        text = f"the Pods of {'/'.join(dns.key)} do not get queries of {pods_text(shut_out)}: {_by(policies)}"
        remedy = f"allow ingress from all namespaces at {to.protocol} and TCP {to.port}"
        key = dns.key[0], policies[0]
        yield Problem("dns-shut", ERROR, "NetworkPolicy", key, "spec.ingress", text, remedy)


def _egress(shut_in: Mapping[tuple[str, ...], Sequence[str]], to: Destination) -> Iterator[Problem]:
    for (namespace, *policies), pods in shut_in.items():
        text = f"{pods_text(pods)} cannot ask the cluster's DNS: {_by(policies)}"
        remedy = f"allow egress to the DNS Pods in {to.pods[0].key[0]} at {to.protocol} and TCP {to.port}"
        yield Problem("dns-shut", ERROR, "NetworkPolicy", (namespace, policies[0]), "spec.egress", text, remedy)


def _by(policies: Sequence[str]) -> str:
    return f"NetworkPolic{'y' if len(policies) == 1 else 'ies'} {and_(policies)}"


def _is_of_host(pod: Pod) -> bool:
    """Policies do not reach these, and ended Pods ask nothing."""
    return (isinstance(pod, ObservedPod) and pod.spec.host_network) or not pod.addresses


def _destination(view: ClusterView, dns: SelectingService) -> Destination | None:
    """Returns where queries over UDP arrive: policies see the Pods' port, not that of the Service."""
    pods = view.specs(dns.key[0], dns.spec.selector or {})
    port = next(
        (service_port for service_port in dns.ports if (service_port.port, service_port.protocol) == (DNS_PORT, "UDP")),
        None,
    )
    return _port(pods, port) if pods and port else None


def _port(pods: Sequence[ObservedPod], port: ServicePort) -> Destination | None:
    target = (port.target_port if isinstance(port, SelectingPort) else None) or port.port
    named = _container_ports(pods, port.protocol)
    if isinstance(target, int):
        numbers = {number for _, number in named}
        if target not in numbers and DNS_PORT in numbers:  # `kdns up` answers in the Pods' place, at a port of its own
            target = DNS_PORT
        name = next((name for name, number in named if number == target), "")
        return Destination(pods, target, name, port.protocol)
    number = next((number for name, number in named if name == target), 0)
    return Destination(pods, number, target, port.protocol) if number else None


def _container_ports(pods: Iterable[ObservedPod], protocol: str) -> list[tuple[str, int]]:
    ports = (port for pod in pods for port in pod.spec.ports())
    return [(port.name, port.container_port) for port in ports if (port.protocol or "TCP") == protocol]
