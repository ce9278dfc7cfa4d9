"""The cluster IPs and node ports of a Service that is written: chosen, or carried over from the stored object.

The order is kube-apiserver's (registry/core/service/storage/alloc.go): values that the client omitted are carried over,
clusterIP and clusterIPs are synchronised, families are filled in, numbers are chosen. Validation is last, so an
allocation error hides a validation error.
"""

from __future__ import annotations

from collections.abc import Callable

from kdns.controlplane.apimachinery.errors import internal, invalid
from kdns.controlplane.apimachinery.field_errors import invalid_value
from kdns.controlplane.apimachinery.kinds import SERVICE, Json
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.kinds.service.allocator import (
    Addresses,
    AllocationError,
    AllocatorMetrics,
    Choose,
    Ports,
    RangeFullError,
)
from kdns.controlplane.kinds.service.ip_families import fill_families
from kdns.controlplane.kinds.service.service_cidr import DEFAULT, gives_addresses, networks_of
from kdns.controlplane.kinds.service.spec import (
    EXTERNAL_NAME,
    LOAD_BALANCER,
    NODE_PORT_TYPES,
    NONE,
    held_addresses,
    is_external,
    is_headless,
    needs_health_check,
    node_ports,
    ports_held,
    same,
    spec_of,
    takes_node_ports,
)
from kdns.controlplane.storage.object_meta import key_of
from kdns.net import Network, family_of, parse_address


class ServiceAllocator:
    """The cluster IPs of each family and the node ports of all Services.

    Before the default ServiceCIDR object exists, the configured ranges are used.
    """

    def __init__(self, config: ClusterConfig, choose: Choose) -> None:
        self.metrics = metrics = AllocatorMetrics()
        self.addresses = {family: Addresses(choose, metrics) for family in ("IPv4", "IPv6")}
        self.ports = Ports(config.node_port_range, choose, metrics)
        self.families = config.families
        self._ranges: dict[str, tuple[tuple[Network, ...], bool]] = {DEFAULT: (config.service_cidrs, True)}
        self._set_ranges()

    def allocate(self, service: Json, old: Json | None, /, *, dry_run: bool) -> None:
        """Sets the addresses and ports of a Service that replaces `old` (None: a new one). They belong to it once it is
        stored.

        Raises 422 for a value that is not available, 500 for a full range.
        """
        allocation = _Allocation(self, service, dry_run=dry_run)
        if old is None:
            allocation.create()
        else:
            allocation.update(old)

    def follow(self, old: Json | None, new: Json | None) -> None:
        if old:
            for address in held_addresses(spec_of(old)):
                self.addresses[family_of(address)].free(int(address), key_of(old))
            for port in ports_held(spec_of(old)):
                self.ports.free(port, key_of(old))
        if new:
            self.restore(new)

    def restore(self, service: Json) -> list[str]:
        """Restores the allocations of a stored Service; returns unavailable ones as text."""
        owner, spec = key_of(service), spec_of(service)
        lost = [
            f"clusterIP {address}"
            for address in held_addresses(spec)
            if not self.addresses[family_of(address)].hold(int(address), owner)
        ]
        return lost + [f"nodePort {port}" for port in ports_held(spec) if not self.ports.hold(port, owner)]

    def follow_address(self, old: Json | None, new: Json | None) -> None:
        if new:
            self.reserve(new["metadata"]["name"])
        elif old and (address := parse_address(old["metadata"]["name"])):
            self.addresses[family_of(address)].unreserve(int(address))

    def reserve(self, name: str) -> None:
        """Marks the address as taken, since an IPAddress object of this name exists."""
        if address := parse_address(name):
            self.addresses[family_of(address)].reserve(int(address))

    def follow_range(self, old: Json | None, new: Json | None) -> None:
        """Sets the ranges of a ServiceCIDR, or drops those of a deleted one."""
        name = (new or old or {})["metadata"]["name"]
        self._ranges.pop(name, None)
        if new is not None:
            self._ranges[name] = networks_of(new), gives_addresses(new)
        self._set_ranges()

    def _set_ranges(self) -> None:
        for family, addresses in self.addresses.items():
            is_ready: dict[Network, bool] = {}
            for networks, ready in self._ranges.values():
                for network in networks:
                    if family_of(network) == family:
                        is_ready[network] = is_ready.get(network, False) or ready
            addresses.set_ranges(is_ready)


class _Allocation:
    """One write of a Service, whose spec it changes."""

    def __init__(self, numbers: ServiceAllocator, service: Json, *, dry_run: bool) -> None:
        self.numbers, self.service, self.dry_run = numbers, service, dry_run
        self.spec: Json = service["spec"]
        self.ports: set[int] = set()
        """The node ports of this write."""

    def create(self) -> None:
        spec = self.spec
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        fill_families(self.service, None, self.numbers.families)
        self._all_addresses()
        if spec["type"] in NODE_PORT_TYPES:
            self._first_node_ports()
        if needs_health_check(spec):
            self._health_check_port()

    def update(self, stored: Json) -> None:
        spec, old = self.spec, spec_of(stored)
        _carry_over(spec, old)
        _synchronise(spec, old)
        fill_families(self.service, stored, self.numbers.families)
        self._changed_addresses(old)
        if spec["type"] in NODE_PORT_TYPES:
            self._changed_node_ports(old)
        if needs_health_check(spec) and not needs_health_check(old):
            self._health_check_port()
        _clear_unused(self.service, spec, old)

    # Addresses

    def _all_addresses(self) -> None:
        spec = self.spec
        if spec["type"] == EXTERNAL_NAME or is_headless(spec):
            return
        taken = [self._address(index) for index in range(len(spec["ipFamilies"]))]
        spec.update(clusterIP=taken[0], clusterIPs=taken)

    def _address(self, index: int) -> str:
        """The cluster IP of the family at `index`.

        The 422 for an unavailable address shows "" for absent ones.
        """
        families, sent = self.spec["ipFamilies"], self.spec.get("clusterIPs") or []
        sent = [*sent, *[""] * (len(families) - len(sent))]
        requested, pool = sent[index], self.numbers.addresses[families[index]]
        try:
            if not requested:
                return pool.find(dry_run=self.dry_run)
            pool.check(requested, dry_run=self.dry_run)
        except RangeFullError as error:
            raise internal(f"failed to allocate a serviceIP: {error}") from error
        except AllocationError as error:
            detail = f"failed to allocate IP {requested}: {error}"
            causes = [invalid_value("spec.clusterIPs", sent, detail)]
            raise invalid(SERVICE, self._name, causes) from error
        return str(requested)

    def _changed_addresses(self, old: Json) -> None:
        spec = self.spec
        if old.get("type") == EXTERNAL_NAME and spec["type"] != EXTERNAL_NAME:
            self._all_addresses()
        elif old.get("clusterIPs") == [NONE] or EXTERNAL_NAME in {old.get("type"), spec["type"]}:
            return
        elif len(old.get("ipFamilies") or ()) == 1 and len(spec.get("ipFamilies") or ()) == 2:
            second = self._address(1)
            spec["clusterIPs"] = [*(spec.get("clusterIPs") or ())[:1], second]

    # Node ports

    def _port(self, index: int, number: int) -> int:
        try:
            port = self.numbers.ports.find(number, self.ports)
        except RangeFullError as error:
            raise internal(f"failed to allocate a nodePort: {error}") from error
        except AllocationError as error:
            causes = [invalid_value(f"spec.ports[{index}].nodePort", number, str(error))]
            raise invalid(SERVICE, self._name, causes) from error
        self.ports.add(port)
        return port

    def _first_node_ports(self) -> None:
        """One node port per port number: TCP and UDP share it, and an explicit one wins."""
        by_port: dict[int, int] = {}
        ports = self.spec.get("ports") or []
        for index, port in enumerate(ports):
            number = port.get("nodePort") or 0
            if not number and not takes_node_ports(self.spec):
                continue
            shared = by_port.get(port.get("port") or 0)
            if shared is None:
                requested = (p.get("nodePort") for p in ports if p.get("port") == port.get("port"))
                number = self._port(index, next(filter(None, requested), 0))
                by_port[port.get("port") or 0] = port["nodePort"] = number
            elif not number:
                port["nodePort"] = shared
            elif number != shared:
                self._port(index, number)

    def _changed_node_ports(self, old: Json) -> None:
        mine = set(node_ports(old)) if old.get("type") in NODE_PORT_TYPES else set()
        for index, port in enumerate(self.spec.get("ports") or ()):
            number = port.get("nodePort") or 0
            if number not in mine | self.ports and (number or takes_node_ports(self.spec)):
                port["nodePort"] = self._port(index, number)

    def _health_check_port(self) -> None:
        requested = self.spec.get("healthCheckNodePort") or 0
        try:
            self.spec["healthCheckNodePort"] = self.numbers.ports.find(requested, self.ports)
        except RangeFullError as error:
            raise internal(f"failed to allocate a HealthCheck NodePort : {error}") from error
        except AllocationError as error:
            raise internal(f"failed to allocate requested HealthCheck NodePort {requested}: {error}") from error

    @property
    def _name(self) -> str:
        name: str = self.service["metadata"].get("name") or ""
        return name


def _carry_over(spec: Json, old: Json) -> None:
    """Allocated values that the client omitted stay as stored."""
    if EXTERNAL_NAME not in {old.get("type"), spec["type"]}:
        if not spec.get("clusterIP") and old.get("clusterIP"):
            spec["clusterIP"] = old["clusterIP"]
        if not spec.get("clusterIPs") and spec.get("clusterIP") == old.get("clusterIP") and old.get("clusterIPs"):
            spec["clusterIPs"] = list(old["clusterIPs"])
    if old.get("type") in NODE_PORT_TYPES and takes_node_ports(spec):
        used = set(node_ports(old)) & set(node_ports(spec))
        by_name = {port.get("name") or "": port.get("nodePort") or 0 for port in old.get("ports") or ()}
        for port in spec.get("ports") or ():
            number = by_name.get(port.get("name") or "", 0)
            if not port.get("nodePort") and number and number not in used:
                port["nodePort"] = number
    if needs_health_check(old) and needs_health_check(spec) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = old.get("healthCheckNodePort")


def _synchronise(spec: Json, old: Json) -> None:
    """A client may set or clear clusterIP alone; clusterIPs follows."""
    unchanged = same(old, spec, "clusterIPs")
    if spec.get("clusterIP") == old.get("clusterIP"):
        if old.get("clusterIPs") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = list(old["clusterIPs"])
    elif spec.get("clusterIP") and (unchanged or not spec.get("clusterIPs")):
        spec["clusterIPs"] = [spec["clusterIP"]]
    elif unchanged:
        spec.pop("clusterIPs", None)


_FIELDS_OF_TYPES: tuple[tuple[Callable[[Json], bool], tuple[str, ...]], ...] = (
    (lambda spec: spec.get("type") != EXTERNAL_NAME, ("clusterIPs", "ipFamilies", "ipFamilyPolicy")),
    (needs_health_check, ("healthCheckNodePort",)),
    (lambda spec: spec.get("type") == LOAD_BALANCER, ("allocateLoadBalancerNodePorts", "loadBalancerClass")),
    (is_external, ("externalTrafficPolicy",)),
)
"""Whether a spec has the fields, and the fields."""


def _clear_unused(service: Json, spec: Json, old: Json) -> None:
    """Clears fields of the old type that the client left unchanged; validation refuses those that it changed."""
    for needed, fields in _FIELDS_OF_TYPES:
        if needed(old) and not needed(spec):
            for field in fields:
                if same(old, spec, field):
                    spec.pop(field, None)
                    if field == "clusterIPs":
                        spec.pop("clusterIP", None)
    had_ports, has_ports = old.get("type") in NODE_PORT_TYPES, spec["type"] in NODE_PORT_TYPES
    if had_ports and not has_ports and set(node_ports(old)) >= set(node_ports(spec)):
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)
    if spec["type"] != LOAD_BALANCER:
        service["status"] = {**(service.get("status") or {}), "loadBalancer": {}}
