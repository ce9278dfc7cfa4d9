"""The cluster IPs and node ports of Services: allocated, carried over from the stored object, released.

The order is kube-apiserver's (registry/core/service/storage/alloc.go): values that the client omitted are carried
over, clusterIP and clusterIPs are synchronised, families are filled in, numbers are allocated; validation comes last.
So an allocation error hides a validation error.
"""

from __future__ import annotations

from collections.abc import Callable

from kdns.controlplane.apimachinery.errors import internal, invalid
from kdns.controlplane.apimachinery.field_errors import invalid_value
from kdns.controlplane.apimachinery.kinds import SERVICE, Json
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.kinds.service.allocator import (
    AllocationError,
    AllocatorMetrics,
    Choose,
    Ports,
    RangeFullError,
    Transaction,
)
from kdns.controlplane.kinds.service.cluster_ips import Addresses
from kdns.controlplane.kinds.service.ip_families import fill_families
from kdns.controlplane.kinds.service.service_cidr import DEFAULT, gives_addresses, networks_of
from kdns.controlplane.kinds.service.spec import (
    EXTERNAL_NAME,
    LOAD_BALANCER,
    NONE,
    address_family,
    addresses_of,
    cluster_ips,
    has_node_ports,
    ip_families,
    is_external,
    is_headless,
    needs_cluster_ip,
    needs_health_check,
    node_ports,
    owned_node_ports,
    ports_held,
    ports_of,
    same,
    spec_of,
    takes_node_ports,
    type_of,
)
from kdns.controlplane.storage.object_meta import key_of
from kdns.net import Network, family_of


class ServiceAllocator:
    """The cluster IPs of each family and the node ports of all Services.

    Until the default ServiceCIDR object exists, the configured ranges are used.
    """

    def __init__(self, config: ClusterConfig, choose: Choose, metrics: AllocatorMetrics) -> None:
        self.metrics = metrics
        self.addresses = {family: Addresses(choose, metrics) for family in ("IPv4", "IPv6")}
        self.ports = Ports(config.node_port_range, choose, metrics)
        self.families = config.families
        self._ranges: dict[str, tuple[tuple[Network, ...], bool]] = {DEFAULT: (config.service_cidrs, True)}
        self._set_ranges()

    def allocate(self, service: Json, old: Json | None, txn: Transaction, /, *, dry_run: bool) -> None:
        """Allocates addresses and ports of a Service: on create if `old` is None, else on update."""
        if old is None:
            self._create(service, txn, dry_run=dry_run)
        else:
            self._update(service, old, txn, dry_run=dry_run)

    def _create(self, service: Json, txn: Transaction, *, dry_run: bool) -> None:
        """Fills in and allocates the addresses and ports of a new Service; changes `service`, and `txn` reverts it."""
        spec = spec_of(service)
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        fill_families(service, None, self.families)
        self._all_addresses(service, txn, dry_run=dry_run)
        if has_node_ports(service):
            self._first_node_ports(service, txn)
        if needs_health_check(service):
            self._health_check_port(service, txn)

    def _update(self, service: Json, old: Json, txn: Transaction, *, dry_run: bool) -> None:
        """Carries over and fills in fields, allocates new numbers, and releases unused ones at commit."""
        _carry_over(service, old)
        _synchronise(service, old)
        fill_families(service, old, self.families)
        self._changed_addresses(service, old, txn, dry_run=dry_run)
        if has_node_ports(service):
            self._changed_node_ports(service, old, txn)
        elif has_node_ports(old):
            self.ports.release(owned_node_ports(old), key_of(old), txn)
        if needs_health_check(service) and not needs_health_check(old):
            self._health_check_port(service, txn)
        elif needs_health_check(old) and not needs_health_check(service):
            self.ports.release([spec_of(old).get("healthCheckNodePort") or 0], key_of(old), txn)
        _clear_unused(service, old)

    def release(self, service: Json) -> None:
        """Releases everything that a deleted Service has."""
        txn = Transaction()
        self._release(addresses_of(service), service, txn)
        self.ports.release(ports_held(service), key_of(service), txn)
        txn.commit()

    def restore(self, service: Json) -> list[str]:
        """Restores the allocations of a stored Service; returns unavailable ones, as texts."""
        owner = key_of(service)
        lost = [
            f"clusterIP {address}"
            for address in addresses_of(service)
            if address_family(address) and not self.addresses[address_family(address)].remember(address, owner)
        ]
        return lost + [f"nodePort {port}" for port in ports_held(service) if not self.ports.remember(port, owner)]

    def reserve(self, address: str) -> None:
        """Marks the address as taken: an IPAddress object of this name exists."""
        self.addresses[address_family(address)].reserve(address)

    def unreserve(self, address: str) -> None:
        """Frees the address unless a Service has it: its IPAddress object is deleted."""
        self.addresses[address_family(address)].unreserve(address)

    def service_cidr(self, name: str, obj: Json | None) -> None:
        """Sets the ranges of a ServiceCIDR; None: it is gone."""
        self._ranges.pop(name, None)
        if obj is not None:
            self._ranges[name] = networks_of(obj), gives_addresses(obj)
        self._set_ranges()

    def _set_ranges(self) -> None:
        for family, addresses in self.addresses.items():
            wanted: dict[Network, bool] = {}
            for networks, ready in self._ranges.values():
                for network in networks:
                    if family_of(network) == family:
                        wanted[network] = wanted.get(network, False) or ready
            addresses.set_ranges(wanted)

    # Addresses

    def _all_addresses(self, service: Json, txn: Transaction, *, dry_run: bool) -> None:
        if not needs_cluster_ip(service) or is_headless(service):
            return
        taken = [self._address(service, index, txn, dry_run=dry_run) for index in range(len(ip_families(service)))]
        spec_of(service).update(clusterIP=taken[0], clusterIPs=taken)

    def _address(self, service: Json, index: int, txn: Transaction, *, dry_run: bool) -> str:
        """Returns the cluster IP of the family at `index`.

        The 422 for an unavailable address shows "" for absent ones.
        """
        families, given = ip_families(service), cluster_ips(service)
        given = [*given, *[""] * (len(families) - len(given))]
        wanted, pool = given[index], self.addresses[families[index]]
        try:
            if not wanted:
                return pool.allocate_next(key_of(service), txn, dry_run=dry_run)
            pool.allocate(wanted, key_of(service), txn, dry_run=dry_run)
        except RangeFullError as error:
            raise internal(f"failed to allocate a serviceIP: {error}") from error
        except AllocationError as error:
            detail = f"failed to allocate IP {wanted}: {error}"
            causes = [invalid_value("spec.clusterIPs", given, detail)]
            raise invalid(SERVICE, _name(service), causes) from error
        return wanted

    def _changed_addresses(self, service: Json, old: Json, txn: Transaction, *, dry_run: bool) -> None:
        if type_of(old) == EXTERNAL_NAME and type_of(service) != EXTERNAL_NAME:
            self._all_addresses(service, txn, dry_run=dry_run)
        elif cluster_ips(old) == [NONE] or type_of(old) == EXTERNAL_NAME:
            return
        elif type_of(service) == EXTERNAL_NAME:
            self._release(addresses_of(old), old, txn)
        elif len(ip_families(old)) == 1 and len(ip_families(service)) == 2:
            second = self._address(service, 1, txn, dry_run=dry_run)
            spec_of(service)["clusterIPs"] = [*cluster_ips(service)[:1], second]
        elif len(ip_families(old)) == 2 and len(ip_families(service)) == 1:
            self._release(addresses_of(old)[1:], old, txn)

    def _release(self, addresses: list[str], service: Json, txn: Transaction) -> None:
        for address in addresses:
            if family := address_family(address):
                self.addresses[family].release(address, key_of(service), txn)

    # Node ports

    def _port(self, service: Json, index: int, number: int, txn: Transaction) -> int:
        try:
            if not number:
                return self.ports.allocate_next(key_of(service), txn)
            self.ports.allocate(number, key_of(service), txn)
        except RangeFullError as error:
            raise internal(f"failed to allocate a nodePort: {error}") from error
        except AllocationError as error:
            causes = [invalid_value(f"spec.ports[{index}].nodePort", number, str(error))]
            raise invalid(SERVICE, _name(service), causes) from error
        return number

    def _first_node_ports(self, service: Json, txn: Transaction) -> None:
        """Allocates one node port per port number: TCP and UDP share it, and an explicit one takes precedence."""
        by_port: dict[int, int] = {}
        for index, port in enumerate(ports_of(service)):
            number = port.get("nodePort") or 0
            if not number and not takes_node_ports(service):
                continue
            shared = by_port.get(port.get("port") or 0)
            if shared is None:
                asked = (p.get("nodePort") for p in ports_of(service) if p.get("port") == port.get("port"))
                number = self._port(service, index, next(filter(None, asked), 0), txn)
                by_port[port.get("port") or 0] = port["nodePort"] = number
            elif not number:
                port["nodePort"] = shared
            elif number != shared:
                self._port(service, index, number, txn)

    def _changed_node_ports(self, service: Json, old: Json, txn: Transaction) -> None:
        had = set(owned_node_ports(old))
        mine = set(had)
        for index, port in enumerate(ports_of(service)):
            number = port.get("nodePort") or 0
            if number not in mine and (number or takes_node_ports(service)):
                port["nodePort"] = self._port(service, index, number, txn)
                mine.add(port["nodePort"])
        self.ports.release(had - set(node_ports(service)), key_of(old), txn)

    def _health_check_port(self, service: Json, txn: Transaction) -> None:
        spec = spec_of(service)
        wanted = spec.get("healthCheckNodePort") or 0
        try:
            if wanted:
                self.ports.allocate(wanted, key_of(service), txn)
            else:
                spec["healthCheckNodePort"] = self.ports.allocate_next(key_of(service), txn)
        except RangeFullError as error:
            raise internal(f"failed to allocate a HealthCheck NodePort : {error}") from error
        except AllocationError as error:
            raise internal(f"failed to allocate requested HealthCheck NodePort {wanted}: {error}") from error


def _name(service: Json) -> str:
    name: str = (service.get("metadata") or {}).get("name") or ""
    return name


def _carry_over(service: Json, old: Json) -> None:
    """Sets the allocated values that the client omitted to those of the stored object."""
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


def _synchronise(service: Json, old: Json) -> None:
    """Changes clusterIPs too if a client sets or clears clusterIP alone."""
    spec, stored = spec_of(service), spec_of(old)
    unchanged = same(old, service, "clusterIPs")
    if spec.get("clusterIP") == stored.get("clusterIP"):
        if cluster_ips(old) and not cluster_ips(service):
            spec["clusterIPs"] = list(cluster_ips(old))
    elif spec.get("clusterIP") and (unchanged or not cluster_ips(service)):
        spec["clusterIPs"] = [spec["clusterIP"]]
    elif unchanged:
        spec.pop("clusterIPs", None)


def _clear_unused(service: Json, old: Json) -> None:
    """Clears fields of the old type that the client left unchanged; validation refuses those that it changed."""
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
        service["status"] = {**(service.get("status") or {}), "loadBalancer": {}}
