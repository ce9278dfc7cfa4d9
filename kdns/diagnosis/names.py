"""Names: aliases that lead nowhere, headless names that clash, and names of environment variables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kdns.cluster.aliases import MAX_ALIASES, followed, short_name_of
from kdns.cluster.objects import Key, Service
from kdns.cluster.observed import Workload
from kdns.cluster.readiness import SHOWN, and_
from kdns.diagnosis.problem import ERROR, NOTE, WARNING, Problem, Severity, of_service, patch_command
from kdns.diagnosis.view import ClusterView
from kdns.env import MASTER_SERVICE, has_cluster_ip, is_shell_name, variable_name, variables_of
from kdns.net import parse_address
from kdns.spelling import closest, listed

_FIELD: Final = "spec.externalName"


def aliases(view: ClusterView) -> Iterator[Problem]:
    """ExternalNames that are addresses, lead in a circle, to nothing, or are no full names."""
    services = view.state.services
    for service in services.values():
        if not service.is_external_name:
            continue
        target = service.spec.external_name
        if parse_address(target):
            text = "is an address: DNS answers with a CNAME to a name of these digits"
            remedy = "use a Service without a selector and an EndpointSlice"
            yield of_service(service, "external-name-address", ERROR, _FIELD, text, remedy)
            continue
        alias = followed(services, service, view.domain)
        if alias.loop:
            if service.key == alias.loop[0]:
                if service.key > min(alias.loop):
                    continue  # the first of the circle shows all of it
                way = " → ".join(map("/".join, alias.loop))
                text = f"leads back to itself: {way}"
                remedy = "let one of them lead to a Service with endpoints, or out of the cluster"
                yield of_service(service, "external-name-loop", ERROR, _FIELD, text, remedy)
            else:
                text = f"leads to ExternalName {'/'.join(alias.loop[0])}, which leads back to itself"
                yield of_service(service, "external-name-loop", ERROR, _FIELD, text)
        elif len(alias.way) > MAX_ALIASES:
            text = f"leads over more than {MAX_ALIASES} ExternalName Services: resolvers give up before"
            yield of_service(service, "external-name-loop", ERROR, _FIELD, text)
        elif alias.end and alias.end not in services and len(alias.way) == 1 and view.is_running:
            yield _missing(view, service, alias.end)
        elif alias.end is None and len(alias.way) == 1:
            meant = short_name_of(services, service)
            if meant is None or meant == service.key:
                continue
            full = f"{meant[1]}.{meant[0]}.svc.{view.domain}"
            yield of_service(
                service,
                "external-name-short",
                ERROR,
                _FIELD,
                f"{target} is taken as a full name; that of Service {'/'.join(meant)} is {full}",
                patch_command(service, {"spec": {"externalName": full}}),
            )


def _missing(view: ClusterView, service: Service, end: Key) -> Problem:
    namespace, name = end
    text = f"there is no Service {'/'.join(end)}"
    near = closest(name, (other for space, other in view.state.services if space == namespace))
    spaces = sorted(space for space, other in view.state.services if other == name and (space, other) != service.key)
    if near:
        text = f'{text}; there is "{near}"'
    elif spaces:
        text = f"{text}; {and_(spaces[:SHOWN])} {'has' if len(spaces) == 1 else 'have'} one"
    other = (namespace, near) if near else (spaces[0], name) if spaces else None
    remedy = ""
    if other:
        remedy = patch_command(service, {"spec": {"externalName": f"{other[1]}.{other[0]}.svc.{view.domain}"}})
    return of_service(service, "external-name-missing", ERROR, _FIELD, text, remedy)


def stateful_sets(view: ClusterView) -> Iterator[Problem]:
    """StatefulSets whose serviceName gives their Pods no names: no headless Service has it.

    One that no headless Service selects may have a serviceName only because the field was mandatory.
    """
    for workload in view.workloads:
        namespace, name = workload.metadata.namespace, workload.spec.service_name
        if workload.kind != "StatefulSet" or not name:
            continue
        first = f"{workload.metadata.name}-0"
        service = view.state.services.get((namespace, name))
        if service is None:
            labels = workload.labels.items()
            headless = (
                known.key[1]
                for known, selector in view.selecting()
                if known.is_headless and known.key[0] == namespace and labels >= selector.items()
            )
            if other := next(headless, ""):
                text = f"its serviceName is {name}, which does not exist: {first}.{other} has no address"
                yield _of_stateful_set(workload, WARNING, text, f"create it again with serviceName: {other}")
        elif not service.is_headless:
            text = f"its serviceName is {name}, which is not headless: {first}.{name} has no address"
            yield _of_stateful_set(
                workload, NOTE, text, "give it a headless Service (clusterIP: None) if names are used"
            )


def _of_stateful_set(one: Workload, severity: Severity, text: str, remedy: str) -> Problem:
    return Problem("pod-names", severity, one.kind, one.key, "spec.serviceName", text, remedy)


def hostnames(view: ClusterView) -> Iterator[Problem]:
    """Hostnames that several Pods of a headless Service have: their name has the addresses of all."""
    for service in view.state.services.values():
        if service.is_headless:
            for hostname, pods in view.endpoints(service.key).hosts.items():
                if len(pods) > 1:
                    text = f"{hostname}.{service.key[1]}.{service.key[0]} is the name of {listed(sorted(pods), SHOWN)}"
                    remedy = "give each Pod a spec.hostname of its own, or none"
                    yield of_service(service, "hostname-twice", WARNING, "", text, remedy)


def variables(view: ClusterView) -> Iterator[Problem]:
    """Services of one namespace with the same variables, and names that no shell has."""
    owners: dict[tuple[str, str], tuple[Service, str]] = {}
    clashes: dict[tuple[Key, Key], list[str]] = {}
    for service in view.state.services.values():
        if not has_cluster_ip(service):
            continue
        namespace, name = service.key
        if name == MASTER_SERVICE[1] and service.key != MASTER_SERVICE:
            text = (
                f"Pods in {namespace} get its address as KUBERNETES_SERVICE_HOST, by which clients find the API server"
            )
            remedy = "give the Service another name, or set enableServiceLinks: false in its namespace's Pods"
            yield of_service(service, "api-variables", WARNING, "metadata.name", text, remedy)
        if not is_shell_name(variable_name(name)):
            text = f"{variable_name(name)}_SERVICE_HOST is no name of a shell's variable: only its DNS name can be used"
            yield of_service(service, "variables-unusable", NOTE, "metadata.name", text)
        for variable, value in variables_of(service):
            other, known = owners.setdefault((namespace, variable), (service, value))
            if other is not service and known != value:
                clashes.setdefault((other.key, service.key), []).append(variable)
    for (first, second), names in clashes.items():
        text = f"it and Service {second[1]} both set {and_(names[:SHOWN])}; the last one is set"
        remedy = "use DNS names, and set enableServiceLinks: false in the Pods"
        yield of_service(view.state.services[first], "variables-clash", NOTE, "metadata.name", text, remedy)
