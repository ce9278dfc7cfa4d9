"""The followed clusters: one API, one State, and the zones that show it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from kdns.aio.follow import FollowStats, Scope
from kdns.aio.source import ClientTLS, Source
from kdns.cluster.objects import EndpointSlice, Namespace, Object, Pod, Service
from kdns.cluster.state import AnyChange, State
from kdns.metrics import Histogram
from kdns.plugins.cluster_zones import ClusterZones
from kdns.plugins.kubernetes import KubernetesConfig
from kdns.records.options import Options, PodMode

PROGRAMMING_BUCKETS_S: Final = tuple(0.001 * 2**k for k in range(20))


@dataclass(slots=True)
class Cluster:
    """One followed API and the zones that show it; `programming` is the SLI "DNS programming latency" by kind."""

    source: Source
    scope: Scope
    state: State = field(default_factory=State)
    stats: FollowStats = field(default_factory=FollowStats)
    zones: list[ClusterZones] = field(default_factory=list)
    programming: dict[str, Histogram] = field(default_factory=dict)

    @property
    def is_synced(self) -> bool:
        """Whether everything has been listed once."""
        return set(self.scope.kinds) <= self.state.synced

    def changed(self, changes: list[AnyChange]) -> None:
        """Make every zone forget what the changes touch."""
        now_s = time.time()
        for zones in self.zones:
            zones.changed(changes, now_s)
        for change in changes:
            if isinstance(change.new, EndpointSlice):
                self._observe(change.new, now_s)

    def _observe(self, endpoint_slice: EndpointSlice, now_s: float) -> None:
        """Count the time since the change that led to this slice."""
        annotations = endpoint_slice.metadata.annotations
        service = self.state.services.get(endpoint_slice.service_key or ("", ""))
        if annotations and annotations.trigger_time and service and self.is_synced:
            try:
                took_s = now_s - datetime.fromisoformat(annotations.trigger_time).timestamp()
            except ValueError:
                return
            kind = "headless_with_selector" if service.is_headless else "cluster_ip"
            self.programming.setdefault(kind, Histogram(PROGRAMMING_BUCKETS_S)).add(max(took_s, 0.0))


def source_of(config: KubernetesConfig) -> Source:
    """Where the directive says that the API is."""
    tls = ClientTLS(config.tls.cert_path, config.tls.key_path, config.tls.ca_path) if config.tls else ClientTLS()
    return Source(
        kubeconfig=config.kubeconfig_path,
        context=config.kubeconfig_context,
        endpoint=config.endpoints[0] if config.endpoints else "",
        tls=tls,
        qps=config.apiserver_qps,
        burst=config.apiserver_burst,
        max_inflight=config.apiserver_max_inflight,
    )


def scope_of(config: KubernetesConfig) -> Scope:
    """What of it must be followed."""
    kinds: list[type[Object]] = [Namespace, Service]
    if config.serve_endpoints:
        kinds.append(EndpointSlice)
    if config.pods == "verified":
        kinds.append(Pod)
    return Scope(tuple(kinds), config.labels, config.namespace_labels)


def options_of(config: KubernetesConfig, own_addresses: tuple[bytes, ...]) -> Options:
    """How the directive's zones show it."""
    return Options(
        zones=config.zones,
        ttl_s=config.ttl_s,
        pods=PodMode(config.pods),
        endpoint_pod_names=config.endpoint_pod_names,
        endpoints=config.serve_endpoints,
        ignore_empty_service=config.ignore_empty_service,
        namespaces=frozenset(config.namespaces) or None,
        own_addresses=own_addresses,
    )
