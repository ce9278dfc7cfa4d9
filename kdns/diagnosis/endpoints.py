"""Selectors, endpoints and EndpointSlices: who is behind a Service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kdns.cluster.objects import EndpointSlice, Key, Pod, Service
from kdns.cluster.observed import ObservedPod, SelectingPort, SelectingService, Workload
from kdns.cluster.readiness import SERVICE_LABEL, SHOWN, and_, count, mended_selector, nothing_ready, selector_text
from kdns.diagnosis.problem import ERROR, NOTE, WARNING, Problem, of_service, patch_command
from kdns.diagnosis.view import ClusterView, Endpoints
from kdns.spelling import closest, listed

DETAILED: Final = 50
"""The most Services of a cluster that are compared with all Pods of their namespaces for what was meant."""


def without_endpoints(view: ClusterView) -> Iterator[Problem]:
    """Services without a ready endpoint. Nothing runs yet: those that no Pod of the manifests is behind."""
    dns = view.dns_service
    for problem in _without_endpoints(view):
        is_dns = dns is not None and problem.key == dns.key and problem.severity is ERROR
        yield replace(problem, cause="dns-not-ready") if is_dns else problem


def _without_endpoints(view: ClusterView) -> Iterator[Problem]:
    compared = 0
    for service in view.state.services.values():
        if service.is_external_name:
            continue
        endpoints = view.endpoints(service.key)
        if endpoints.ready or (not view.is_running and view.state.slices_of(service.key)):
            continue
        selector = service.spec.selector if isinstance(service, SelectingService) else None
        if endpoints.total:
            yield _not_ready(view, service, endpoints)
        elif selector:
            if problem := _of_selector(view, service, selector, is_brief=compared >= DETAILED):
                compared += problem.field == "spec.selector"
                yield problem
        elif isinstance(service, SelectingService):
            yield from _without_selector(view, service)
        elif service.virtual_ips:
            cause = nothing_ready(view.state, service)
            yield of_service(service, "no-endpoints", WARNING, "", cause.text, cause.command)


def _of_selector(view: ClusterView, service: Service, selector: Mapping[str, str], *, is_brief: bool) -> Problem | None:
    """Why a Service with a selector has no endpoint at all; None for Pods and workloads that do not run yet."""
    if Pod not in view.known:
        text = f"it has no endpoints, and the Pods of its selector {selector_text(selector)} are not known"
        return of_service(service, "no-endpoints", WARNING, "", text)
    if view.pods.matching(service.key[0], selector):
        return _unlisted(view, service, selector) if view.is_running else None
    if makers := view.makers(service.key[0], selector):
        return _without_pods(service, makers) if view.is_running else None
    return _matches_nothing(view, service, selector, is_brief=is_brief)


def _not_ready(view: ClusterView, service: Service, endpoints: Endpoints) -> Problem:
    cause = nothing_ready(view.state, service, view.pods)
    pods = (view.state.pods.get((service.key[0], name)) for name in endpoints.pods)
    since = min((pod.status.unready_since for pod in pods if isinstance(pod, ObservedPod)), default="")
    text = cause.text + (f", since {since}" if since else "")
    if endpoints.serving:
        text = f"{text}; {endpoints.serving} of them terminate and still serve"
    severity = WARNING if endpoints.serving else ERROR
    remedy = cause.command
    if service.is_headless and service.key in view.governing:
        text = f"{text}; their names exist only while they are Ready"
        remedy = "set publishNotReadyAddresses: true if they have to find each other to become Ready; " + remedy
    return of_service(service, "endpoints-not-ready", severity, "", text, remedy)


def _unlisted(view: ClusterView, service: Service, selector: Mapping[str, str]) -> Problem:
    """The selector matches Pods, and no EndpointSlice has them."""
    namespace, name = service.key
    pods = view.pods.matching(namespace, selector)
    ready = [pod for pod in pods if isinstance(pod, ObservedPod) and pod.status.is_ready and pod.addresses]
    if ready:
        names = listed((pod.key[1] for pod in ready), SHOWN)
        return of_service(
            service,
            "slices-outdated",
            ERROR,
            "spec.selector",
            f"{count(len(ready), 'Pod')} that it selects {'is' if len(ready) == 1 else 'are'} Ready ({names}), and no "
            "EndpointSlice has them: the endpoint slice controller of kube-controller-manager does not work",
            f"kubectl get endpointslices -n {namespace} -l {SERVICE_LABEL}={name}",
        )
    cause = nothing_ready(view.state, service, view.pods)
    return of_service(service, "endpoints-not-ready", ERROR, "", cause.text, cause.command)


def _without_pods(service: Service, makers: Sequence[Workload]) -> Problem:
    namespace = service.key[0]
    idle = [
        workload
        for workload in makers
        if not workload.spec.replicas or workload.kind not in {"Deployment", "StatefulSet"}
    ]
    names = listed((f"{workload.kind} {workload.metadata.name}" for workload in makers), SHOWN)
    maker = makers[0]
    if len(idle) == len(makers):
        text = f"{names} {'has' if len(makers) == 1 else 'have'} no Pod now"
        scale = f"kubectl scale -n {namespace} {maker.kind.lower()} {maker.metadata.name} --replicas=1"
        remedy = scale if maker.kind in {"Deployment", "StatefulSet"} else ""
        return of_service(service, "scaled-to-zero", NOTE, "", text, remedy)
    maker = next(workload for workload in makers if workload not in idle)
    return of_service(
        service,
        "pods-missing",
        ERROR,
        "",
        f"{maker.kind} {maker.metadata.name} wants {count(maker.spec.replicas or 0, 'Pod')}, and there is none",
        f"kubectl describe -n {namespace} {maker.kind.lower()} {maker.metadata.name}",
    )


def _matches_nothing(view: ClusterView, service: Service, selector: Mapping[str, str], *, is_brief: bool) -> Problem:
    field, namespace = "spec.selector", service.key[0]
    if not view.is_running:
        text = "matches no Pod and no Pod template of these files"
        return of_service(service, "selector-matches-nothing", WARNING, field, text)
    spaces = view.pods.namespaces_of(selector)
    if is_brief and not spaces:
        pods = count(view.pods.count(namespace), "Pod")
        text = f'selector {selector_text(selector)} matches 0 of {pods} in "{namespace}"'
        return of_service(service, "selector-matches-nothing", ERROR, field, text)
    cause = nothing_ready(view.state, service, view.pods)
    if mended_selector(view.pods, service.key, selector):
        return of_service(service, "selector-misspelt", ERROR, field, cause.text, cause.command)
    if spaces:
        remedy = f"move the Service to {and_(spaces[:SHOWN])}, or the Pods to {namespace}"
        return of_service(service, "selector-elsewhere", ERROR, field, cause.text, remedy)
    return of_service(service, "selector-matches-nothing", ERROR, field, cause.text, cause.command)


def _without_selector(view: ClusterView, service: SelectingService) -> Iterator[Problem]:
    """Nobody but their authors makes slices for these, and some never have any: leader election, ExternalDNS."""
    if not view.is_running:
        if service.is_headless:
            text = "is headless, without a selector and without an EndpointSlice in these files: it has no address"
            yield of_service(service, "no-endpoints", WARNING, "spec.clusterIP", text)
        return
    cause = nothing_ready(view.state, service, view.pods)
    if cause.command.startswith("kubectl label"):
        yield of_service(service, "slice-label", ERROR, "", cause.text, cause.command)
    else:
        yield of_service(service, "no-endpoints", NOTE, "", cause.text, cause.command)


def ports(view: ClusterView) -> Iterator[Problem]:
    """Named target ports that selected Pods do not have, and Service ports that no EndpointSlice has."""
    for service in view.state.services.values():
        if service.is_external_name:
            continue
        if isinstance(service, SelectingService) and service.spec.selector:
            yield from _target_ports(view, service, service.spec.selector)
        elif service.virtual_ips and view.is_running:
            endpoints = view.endpoints(service.key)
            for number, port in enumerate(service.ports):
                if endpoints.ready and (port.name or "", port.protocol) not in endpoints.ports:
                    named = listed(sorted(f"{name or '(unnamed)'}/{protocol}" for name, protocol in endpoints.ports))
                    wanted = f"{port.name or '(unnamed)'}/{port.protocol}"
                    yield of_service(
                        service,
                        "port-without-endpoints",
                        ERROR,
                        f"spec.ports[{number}].name",
                        f"port {wanted} is not in its EndpointSlices, which have {named or 'no port'}",
                        "give the port the same name and protocol in the Service and in its EndpointSlices",
                    )


def _target_ports(view: ClusterView, service: SelectingService, selector: Mapping[str, str]) -> Iterator[Problem]:
    pods = view.specs(service.key[0], selector)
    for number, port in enumerate(service.spec.ports or ()):
        if not isinstance(port.target_port, str):
            if service is not view.dns_service:  # with `kdns up` its targetPort is that of kdns, beside any Pods
                yield from _undeclared(service, number, port, pods)
            continue
        have = [pod for pod in pods if (port.target_port, port.protocol) in pod.spec.named_ports]
        if pods and len(have) < len(pods):
            yield _target_port(service, number, port, pods, len(have))


def _undeclared(
    service: SelectingService, number: int, port: SelectingPort, pods: Sequence[ObservedPod]
) -> Iterator[Problem]:
    """Containers may listen at ports that they do not declare: only Pods that declare others are conspicuous."""
    wanted = port.target_port or port.port
    declared = [pod.spec.port_numbers(port.protocol) for pod in pods]
    lacking = [numbers for numbers in declared if wanted not in numbers]
    if not lacking or not all(declared):
        return
    shown = listed(sorted({other for numbers in lacking for other in numbers}), SHOWN)
    who = "its Pods declare" if len(lacking) == len(pods) else f"{len(lacking)} of its {len(pods)} Pods declare"
    text = f"its targetPort is {wanted}, and {who} {shown} only"
    remedy = "check where the containers listen, and whether the selector matches other Pods too"
    yield of_service(service, "port-undeclared", NOTE, f"spec.ports[{number}].targetPort", text, remedy)


def _target_port(
    service: SelectingService, number: int, port: SelectingPort, pods: Sequence[ObservedPod], having: int
) -> Problem:
    known = Counter(named for pod in pods for named in pod.spec.named_ports)
    of_protocol = [named for (named, protocol), _ in known.most_common() if protocol == port.protocol]
    everywhere = [named for named in of_protocol if known[named, port.protocol] == len(pods)]
    wanted = str(port.target_port)
    near = closest(wanted, everywhere) or (everywhere[0] if len(everywhere) == 1 else "")
    who = f"{len(pods) - having} of {count(len(pods), 'Pod')} of its selector" if having else "no container of its Pods"
    text = f'targetPort "{wanted}" is a port of {who}' if not having else f'{who} lack the port "{wanted}"'
    remedy = "give the containers a port of this name, or targetPort a number"
    if near:
        patch = [{"op": "replace", "path": f"/spec/ports/{number}/targetPort", "value": near}]
        remedy = patch_command(service, patch)
    shown = listed((named for named in of_protocol), SHOWN) or "no named port"
    if other := next((protocol for named, protocol in known if named == wanted and protocol != port.protocol), ""):
        text = (
            f'targetPort "{wanted}" is a port of {other} in its Pods, and the Service\'s port is one of {port.protocol}'
        )
        remedy = "give both the same protocol"
    severity = WARNING if having else ERROR
    return of_service(
        service, "target-port", severity, f"spec.ports[{number}].targetPort", f"{text}; they have {shown}", remedy
    )


def slices(view: ClusterView) -> Iterator[Problem]:
    """EndpointSlices that no Service reads: without the label, or with that of a Service that does not exist."""
    for key, endpoint_slice in view.state.slices.items():
        endpoints = endpoint_slice.endpoints
        if isinstance(endpoints, tuple) and (
            more := [text for endpoint in endpoints for text in endpoint.addresses[1:]]
        ):
            text = f"proxies use the first address of an endpoint only: {listed(more, SHOWN)} get no packets"
            remedy = "give each address an endpoint of its own"
            yield Problem("endpoint-address", WARNING, "EndpointSlice", key, "endpoints", text, remedy)
        owner = endpoint_slice.service_key
        if endpoint_slice.import_key or owner in view.state.services:
            continue
        namespace, name = key
        if owner:
            text = f"it is of Service {'/'.join(owner)}, which does not exist"
        else:
            text = f"it has no label {SERVICE_LABEL}, so it is of no Service"
        near = _service_meant(view, owner or key, endpoint_slice)
        remedy = f"kubectl delete endpointslice -n {namespace} {name}"
        if near:
            remedy = f"kubectl label endpointslice -n {namespace} {name} --overwrite {SERVICE_LABEL}={near}"
            if nothing_ready(view.state, view.state.services[namespace, near]).command == remedy:
                continue  # the Service has this problem
            text = f"{text}; Service {near} has no endpoints"
        yield Problem("slice-label", WARNING, "EndpointSlice", key, "metadata.labels", text, remedy)


def _service_meant(view: ClusterView, key: Key, endpoint_slice: EndpointSlice) -> str:
    """Returns the Service without a selector and without endpoints that an EndpointSlice was meant for, or "".

    It has such a name, or it is the only one of the namespace that waits for endpoints at these ports.
    """
    namespace, name = key
    waiting = [service for service in view.waiting if service.key[0] == namespace]
    alike = {name, name.rpartition("-")[0], f"{name}s", name.rstrip("s")}
    if near := next((service.key[1] for service in waiting if service.key[1] in alike), ""):
        return near
    ports = {port.name or "" for port in endpoint_slice.ports or ()}
    fit = [
        service.key[1] for service in waiting if service.ports and {port.name or "" for port in service.ports} <= ports
    ]
    return fit[0] if len(fit) == 1 else ""


def gone(view: ClusterView) -> Iterator[Problem]:
    """Services none of whose endpoints' Pods exist: nobody keeps their EndpointSlices up to date."""
    for service in view.state.services.values():
        endpoints = view.endpoints(service.key)
        pods, namespace = endpoints.pods, service.key[0]
        if len(pods) == endpoints.total > 0 and not any((namespace, name) in view.state.pods for name in pods):
            yield of_service(
                service,
                "slices-outdated",
                ERROR,
                "",
                f"none of its endpoints' Pods exists ({listed(pods, SHOWN)}): nobody updates its EndpointSlices",
                f"kubectl get endpointslices -n {namespace} -l {SERVICE_LABEL}={service.key[1]}",
            )
