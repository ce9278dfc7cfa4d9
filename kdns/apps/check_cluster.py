"""`kdns check` on a running cluster: one list per kind, and the problems that the rules detect."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kdns.apps.check import COREFILE_KEY, Mistake, configuration_mistakes
from kdns.apps.sources.snapshot import api_connection
from kdns.apps.sources.source import ObjectSource
from kdns.cluster.io.connection import Connection
from kdns.cluster.io.pager import list_objects
from kdns.cluster.objects import EndpointSlice, Namespace, Node, Pod, Service, ServiceCIDR
from kdns.cluster.observed import ConfigMap, NetworkPolicy, ObservedNamespace, ObservedPod, SelectingService, Workload
from kdns.cluster.watch import RESOURCES, DecodeFailure, Resource
from kdns.diagnosis.dns import DNS_PORT
from kdns.diagnosis.problem import ERROR, WARNING, Problem, Severity
from kdns.diagnosis.rules import problems
from kdns.diagnosis.view import ClusterView
from kdns.dnsserver.io.corefile import Corefile
from kdns.errors import ApiServerError, CorefileError
from kdns.plugins.sources.forward.plugin import DIRECTIVE as FORWARD
from kdns.plugins.sources.forward.targets import Target
from kdns.runtime.files.yaml import parse
from kdns.runtime.process import gc_paused
from kdns.values import evolve

SYSTEM: Final = "kube-system"
COREDNS: Final = "coredns"
"""The ConfigMap of the cluster's own DNS; that of node-local-dns may forward to its Service."""
KUBELETS: Final = "kubelet"
"""The key of kubeadm's ConfigMap kubelet-config with a KubeletConfiguration."""
LISTED: Final = (
    RESOURCES[Namespace].decoded_as(ObservedNamespace),
    RESOURCES[Service].decoded_as(SelectingService),
    RESOURCES[EndpointSlice],
    RESOURCES[Pod].decoded_as(ObservedPod),
    RESOURCES[Node],
    RESOURCES[ServiceCIDR],
    Resource(NetworkPolicy, "networking.k8s.io", "networkpolicies", is_optional=True),
    Resource(Workload, "apps", "deployments", is_optional=True, name="Deployment"),
    Resource(Workload, "apps", "statefulsets", is_optional=True, name="StatefulSet"),
)
CONFIG_MAPS: Final = Resource(ConfigMap, "", "configmaps", is_optional=True)
_FORBIDDEN: Final = 403
_ABSENT: Final = 404


@dataclass(frozen=True, slots=True)
class Report:
    """The problems, the number of objects per kind, and what could not be checked, in words."""

    problems: Sequence[Problem]
    looked_at: Mapping[str, int]
    not_looked_at: Sequence[str]


NOTHING: Final = Report((), {}, ())


async def cluster_report(source: ObjectSource, *, dns_port: int) -> Report:
    """Raises InputError, KubeconfigError and ApiServerError."""
    with gc_paused():
        async with api_connection(source) as connection:
            lists = [_List(connection, resource) for resource in LISTED]
            configuration = _List(connection, CONFIG_MAPS, SYSTEM)
            await asyncio.gather(*(listed.read() for listed in (*lists, configuration)))
        return _report(lists, configuration, dns_port)


def _report(lists: Sequence[_List], configuration: _List, dns_port: int) -> Report:
    known = {listed.resource.kind for listed in lists if listed.is_known}
    kubelets = [*_kubelets(configuration.objects)]
    addresses = [str(address) for kubelet in kubelets for address in kubelet.get("clusterDNS") or ()]
    domains = (str(kubelet["clusterDomain"]) for kubelet in kubelets if kubelet.get("clusterDomain"))
    objects = (obj for listed in lists for obj in listed.objects)
    view = ClusterView.holding(objects, known, kubelet_dns=tuple(addresses), domain=next(domains, "cluster.local"))
    detected = [*problems(view), *_of_configuration(configuration.objects, dns_port, view.dns_service)]
    return Report(
        sorted(detected, key=lambda problem: problem.rank),
        {listed.resource.plural: len(listed.objects) for listed in lists if listed.is_known},
        [listed.remark for listed in (*lists, configuration) if listed.remark],
    )


class _List:
    """The objects of one kind, or the reason why they are unknown."""

    def __init__(self, connection: Connection, resource: Resource, namespace: str = "") -> None:
        self.connection, self.resource, self.namespace = connection, resource, namespace
        self.objects: list[Any] = []
        self.is_known = False
        self.remark = ""

    async def read(self) -> None:
        left_out: list[DecodeFailure] = []
        plural = self.resource.plural
        try:
            objects = await list_objects(self.connection, self.resource, left_out.append, namespace=self.namespace)
        except ApiServerError as error:
            if error.status != _FORBIDDEN and not (self.resource.is_optional and error.status == _ABSENT):
                raise
            self.remark = f"{plural} (forbidden)" if error.status == _FORBIDDEN else ""
            return
        self.is_known = not left_out
        self.objects = [*objects]
        if self.resource.kind is Workload:
            self.objects = [evolve(obj, kind=self.resource.name) for obj in self.objects]
        if left_out:
            self.remark = f"{plural} {'/'.join(left_out[0].key or ('?',))} ({left_out[0].reason})"


def _kubelets(config_maps: Iterable[ConfigMap]) -> Iterator[Mapping[str, Any]]:
    for config_map in config_maps:
        if text := (config_map.data or {}).get(KUBELETS):
            values = (document.value for document in parse(KUBELETS, text).documents)
            yield from (value for value in values if isinstance(value, dict))


def _of_configuration(config_maps: Iterable[ConfigMap], dns_port: int, dns: Service | None) -> Iterator[Problem]:
    for config_map in config_maps:
        for part in configuration_mistakes(config_map.data or {}, config_map.metadata.name, dns_port):
            if part.corefile and dns and config_map.metadata.name == COREDNS:
                yield from _forwarded_back(config_map, part.corefile, dns)
            cause = "corefile" if part.corefile else "proxy-config"
            for severity, mistakes in ((ERROR, part.mistakes), (WARNING, part.warnings)):
                for mistake in mistakes:
                    yield _of_text(config_map, part.key, cause, severity, mistake)


def _forwarded_back(config_map: ConfigMap, corefile: Corefile, dns: Service) -> Iterator[Problem]:
    """Upstreams of CoreDNS that are the cluster IP of its own Service; in a node-local cache they are right."""
    servers = (*corefile.servers, *corefile.others)
    for config in (config for server in servers for config in server.configs(FORWARD)):
        for target in config.targets:
            if isinstance(target, Target) and target.host in dns.virtual_ips and target.port == DNS_PORT:
                reason = f"forward: {target.host} is the DNS Service itself: queries come back until they time out"
                line = target.token.line if target.token else 0
                mistake = CorefileError(config_map.metadata.name, line, "", reason)
                yield _of_text(config_map, COREFILE_KEY, "corefile", ERROR, mistake)
                break


def _of_text(config_map: ConfigMap, key: str, cause: str, severity: Severity, mistake: Mistake) -> Problem:
    namespace, name = config_map.key
    field = f"data.{key}:{mistake.line}" if mistake.line else f"data.{key}"
    reason = str(mistake).removeprefix(f"{mistake.path}:{mistake.line}" if mistake.line else mistake.path)
    evidence = f"{field}: {reason.removeprefix(': ')}"
    return Problem(
        cause, severity, "ConfigMap", config_map.key, field, evidence, f"kubectl edit configmap -n {namespace} {name}"
    )
