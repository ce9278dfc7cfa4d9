"""Pods as endpoints of EndpointSlices: one group for each set of ports, in it one endpoint for each Pod and family."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kdns.cluster.objects import Key
from kdns.controlplane.endpointpods import (
    addresses_in,
    families_of,
    has_endpoint,
    hostname_in,
    is_ready,
    is_terminating,
    publishes_not_ready,
    target_ports,
    target_ref,
)
from kdns.controlplane.kinds import Json
from kdns.controlplane.services import spec_of
from kdns.controlplane.slicepacking import Laid, identity
from kdns.controlplane.topology import ZONE, is_auto

PortKey: TypeAlias = tuple[tuple[str, str, int, str], ...]


def port_key(ports: Iterable[Json] | None) -> PortKey:
    """A value that is equal for equal sets of ports."""
    rows = (
        (port.get("name") or "", port.get("protocol") or "TCP", port.get("port") or 0, port.get("appProtocol") or "")
        for port in ports or []
    )
    return tuple(sorted(rows))


@dataclass(frozen=True, slots=True)
class Rules:
    """What flags and feature gates of kube-controller-manager decide.

    `same_node` is the gate PreferSameTrafficDistribution, `auto_hints` the gate TopologyAwareHints.
    """

    per_slice: int = 100
    same_node: bool = True
    auto_hints: bool = True


@dataclass(slots=True)
class Group:
    """Endpoints behind one set of ports, by family and identity; `pods` counts those without an address too."""

    ports: list[Json]
    pods: int = 0
    endpoints: dict[str, dict[str, Json]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Row:
    ports: PortKey
    endpoints: tuple[tuple[str, str, Json], ...]


class SliceEndpoints:
    """The endpoints of one Service; a Pod's change costs that Pod (rosters).

    `skipped` says which Pods are left out because their node is unknown. `laid` remembers what stored slices hold.
    """

    def __init__(self, service: Json, nodes: Mapping[str, Json], rules: Rules) -> None:
        self.families = families_of(service)
        self.groups: dict[PortKey, Group] = {}
        self.skipped: dict[Key, str] = {}
        self.auto = rules.auto_hints and is_auto(service)
        self._service, self._nodes = service, nodes
        self._hints = () if self.auto else hint_fields(service, rules)
        self._rows: dict[Key, _Row] = {}
        self._laid: dict[str, tuple[Json, PortKey, Laid]] = {}

    def put(self, key: Key, pod: Json | None) -> None:
        """Note a Pod's state; None when it is none of the Service's."""
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

    def laid(self, each: Json) -> tuple[PortKey, Laid]:
        """The ports and endpoints of a stored slice, read once."""
        name = each["metadata"]["name"]
        known = self._laid.get(name)
        if known is None or known[0] is not each:
            endpoints: list[Json] = each.get("endpoints") or []
            if self.auto:
                endpoints = [{key: value for key, value in one.items() if key != "hints"} for one in endpoints]
            laid = Laid(name, tuple(map(identity, endpoints)), endpoints)
            known = self._laid[name] = (each, port_key(each.get("ports")), laid)
        return known[1:]

    def forget_slices(self, names: Iterable[str]) -> None:
        """Drop what was read of slices other than `names`."""
        for gone in self._laid.keys() - set(names):
            del self._laid[gone]

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
        """Family, identity and endpoint, by family.

        Differs: a Pod on no node counts; without a simulation, whoever writes its status is the whole kubelet.
        """
        service = self._service
        node_name = (pod.get("spec") or {}).get("nodeName") or ""
        if node_name and node_name not in self._nodes and not publishes_not_ready(service):
            where = f"{service['metadata'].get('namespace', '')}/{service['metadata']['name']}"
            name = pod["metadata"]["name"]
            self.skipped[key] = f"skipping Pod {name} for Service {where}: Node {node_name} Not Found"
            return ()
        found = [(family, self._endpoint(pod, node_name, family)) for family in self.families]
        return tuple((family, identity(each), each) for family, each in found if each["addresses"])

    def _endpoint(self, pod: Json, node_name: str, family: str) -> Json:
        serving, going = is_ready(pod), is_terminating(pod)
        ready = publishes_not_ready(self._service) or (serving and not going)
        zone = ((self._nodes.get(node_name) or {}).get("metadata") or {}).get("labels", {}).get(ZONE)
        rows = {"hostname": hostname_in(pod, self._service), "nodeName": node_name, "zone": zone}
        endpoint: Json = {
            "addresses": addresses_in(pod, family),
            "conditions": {"ready": ready, "serving": serving, "terminating": going},
            "targetRef": target_ref(pod),
            **{key: value for key, value in rows.items() if value},
        }
        spelled = {"zone": "forZones", "nodeName": "forNodes"}
        hints = {spelled[name]: [{"name": rows[name]}] for name in self._hints if ready and rows[name]}
        return {**endpoint, "hints": hints} if hints else endpoint


def hint_fields(service: Json, rules: Rules) -> tuple[str, ...]:
    """Which hints spec.trafficDistribution asks for; the older topology annotation overrides it."""
    if is_auto(service):
        return ()
    fields = {"PreferClose": ("zone",), "PreferSameZone": ("zone",), "PreferSameNode": ("zone", "nodeName")}
    wanted = spec_of(service).get("trafficDistribution") or ""
    return fields.get(wanted, ()) if rules.same_node or wanted == "PreferClose" else ()
