"""The endpoints that the EndpointSlices of a Service should have, in one group per set of ports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.annotations import ZONE
from kdns.controlplane.apimachinery.conditions import is_ready
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.endpoints.pod_endpoints import (
    addresses_in,
    families_of,
    has_endpoint,
    hostname_in,
    publishes_not_ready,
    target_ports,
    target_ref,
)
from kdns.controlplane.kinds.service.spec import spec_of
from kdns.controlplane.storage.object_meta import is_terminating

PortKey: TypeAlias = tuple[tuple[str, str, int, str], ...]


def identity(endpoint: Json) -> str:
    """Equal for two states of one endpoint, whatever their conditions (endpointset.go)."""
    ref = endpoint.get("targetRef") or {}
    addresses = endpoint.get("addresses") or []
    at = addresses[0] if len(addresses) == 1 else ",".join(sorted(addresses))
    return f"{at} {endpoint.get('hostname') or ''} {ref.get('namespace') or ''} {ref.get('name') or ''}"


def port_key(ports: Iterable[Json] | None) -> PortKey:
    """Equal for equal sets of ports, whatever their order."""
    rows = (
        (port.get("name") or "", port.get("protocol") or "TCP", port.get("port") or 0, port.get("appProtocol") or "")
        for port in ports or []
    )
    return tuple(sorted(rows))


@dataclass(slots=True)
class StoredEndpoints:
    """The endpoints of one stored slice, and the `identity` of each."""

    name: str
    identities: tuple[str, ...]
    endpoints: list[Json]


@dataclass(slots=True)
class Group:
    """Endpoints with one set of ports, by family and identity; `pods` also counts Pods without an address."""

    ports: list[Json]
    pods: int = 0
    endpoints: dict[str, dict[str, Json]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Row:
    ports: PortKey
    endpoints: tuple[tuple[str, str, Json], ...]


class DesiredEndpoints:
    """The endpoints of one Service: a `PodView`.

    `skipped` has a message for each Pod whose Node does not exist or is not chosen yet. `stored` caches the contents of
    stored slices.
    """

    def __init__(self, service: Json, nodes: Mapping[str, Json]) -> None:
        self.families = families_of(service)
        self.groups: dict[PortKey, Group] = {}
        self.skipped: dict[Key, str] = {}
        self._service, self._nodes = service, nodes
        self._hints = hint_fields(service)
        self._rows: dict[Key, _Row] = {}
        self._stored: dict[str, tuple[Json, PortKey, StoredEndpoints]] = {}

    def put(self, key: Key, pod: Json | None) -> None:
        self.skipped.pop(key, None)
        old = self._rows.pop(key, None)
        if pod and has_endpoint(pod, terminating=True):
            ports = target_ports(pod, self._service)
            new = self._rows[key] = _Row(port_key(ports), self._endpoints(key, pod))
            group = self.groups.setdefault(new.ports, Group(ports))
            group.pods += 1
            self._remove(old)
            for family, name, endpoint in new.endpoints:
                group.endpoints.setdefault(family, {})[name] = endpoint
        else:
            self._remove(old)

    def stored(self, endpoint_slice: Json) -> tuple[PortKey, StoredEndpoints]:
        name = endpoint_slice["metadata"]["name"]
        cached = self._stored.get(name)
        if cached is None or cached[0] is not endpoint_slice:
            endpoints: list[Json] = endpoint_slice.get("endpoints") or []
            stored = StoredEndpoints(name, tuple(map(identity, endpoints)), endpoints)
            cached = self._stored[name] = (endpoint_slice, port_key(endpoint_slice.get("ports")), stored)
        return cached[1:]

    def forget_slices(self, names: Iterable[str]) -> None:
        for name in self._stored.keys() - set(names):
            del self._stored[name]

    def _remove(self, row: _Row | None) -> None:
        if row is None:
            return
        group = self.groups[row.ports]
        group.pods -= 1
        for family, name, _ in row.endpoints:
            del group.endpoints[family][name]
        if not group.pods:
            del self.groups[row.ports]

    def _endpoints(self, key: Key, pod: Json) -> tuple[tuple[str, str, Json], ...]:
        """Family, identity and endpoint of the Pod, for each family; empty for a Pod without a node."""
        service = self._service
        node_name = (pod.get("spec") or {}).get("nodeName") or ""
        if node_name not in self._nodes and not publishes_not_ready(service):
            where = f"{service['metadata'].get('namespace', '')}/{service['metadata']['name']}"
            name = pod["metadata"]["name"]
            self.skipped[key] = f"skipping Pod {name} for Service {where}: Node {node_name} Not Found"
            return ()
        endpoints = [(family, self._endpoint(pod, node_name, family)) for family in self.families]
        return tuple((family, identity(endpoint), endpoint) for family, endpoint in endpoints if endpoint["addresses"])

    def _endpoint(self, pod: Json, node_name: str, family: str) -> Json:
        serving, terminating = is_ready(pod), is_terminating(pod)
        ready = publishes_not_ready(self._service) or (serving and not terminating)
        zone = ((self._nodes.get(node_name) or {}).get("metadata") or {}).get("labels", {}).get(ZONE)
        rows = {"hostname": hostname_in(pod, self._service), "nodeName": node_name, "zone": zone}
        endpoint: Json = {
            "addresses": addresses_in(pod, family),
            "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
            "targetRef": target_ref(pod),
            **{key: value for key, value in rows.items() if value},
        }
        hint_field = {"zone": "forZones", "nodeName": "forNodes"}
        hints = {hint_field[name]: [{"name": rows[name]}] for name in self._hints if ready and rows[name]}
        return {**endpoint, "hints": hints} if hints else endpoint


def hint_fields(service: Json) -> tuple[str, ...]:
    """The fields that become hints by spec.trafficDistribution.

    Differs: the annotation service.kubernetes.io/topology-mode, which would override it, has no effect.
    """
    fields = {"PreferClose": ("zone",), "PreferSameZone": ("zone",), "PreferSameNode": ("zone", "nodeName")}
    return fields.get(spec_of(service).get("trafficDistribution") or "", ())
