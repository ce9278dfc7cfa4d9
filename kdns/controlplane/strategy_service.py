"""What happens to a Service between the request and the store: carried over, allocated, wiped.

The order is kube-apiserver's: values the client left out are carried over, clusterIP and clusterIPs brought in step,
families filled in, numbers allocated; only then validation looks. So an allocation error hides a validation error.
"""

from __future__ import annotations

from collections.abc import Callable

from kdns.controlplane.allocate import Addresses, AllocationError, Choose, Ports, RangeFullError, Transaction
from kdns.controlplane.causes import invalid_value
from kdns.controlplane.clusterconfig import ClusterConfig, family_of
from kdns.controlplane.families import fill_families
from kdns.controlplane.kinds import SERVICE, Json
from kdns.controlplane.services import (
    EXTERNAL_NAME,
    LOAD_BALANCER,
    NODE_PORT,
    NONE,
    address_family,
    cluster_ips,
    ip_families,
    is_external,
    is_headless,
    needs_cluster_ip,
    needs_health_check,
    node_ports,
    owned_node_ports,
    ports_of,
    same,
    spec_of,
    takes_node_ports,
    type_of,
)
from kdns.controlplane.status import internal, invalid


class ServiceAllocator:
    """The numbers of all Services: one address range per family and the node ports."""

    def __init__(self, config: ClusterConfig, choose: Choose) -> None:
        self.addresses = {family_of(network): Addresses(network, choose) for network in config.service_cidrs}
        self.ports = Ports(config.node_port_range, choose)
        self.families = config.families

    def create(self, service: Json, txn: Transaction, *, dry_run: bool = False) -> None:
        """Fill in and allocate what a new Service needs; `service` is changed, `txn` says how to undo it."""
        spec = spec_of(service)
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        fill_families(service, None, self.families)
        self._all_addresses(service, txn, dry_run=dry_run)
        if type_of(service) in {NODE_PORT, LOAD_BALANCER}:
            self._first_node_ports(service, txn)
        if needs_health_check(service):
            self._health_check_port(service, txn)

    def update(self, service: Json, old: Json, txn: Transaction, *, dry_run: bool = False) -> None:
        """Carry over, fill in, allocate what is new, and let go at commit what is no longer used."""
        _carry_over(service, old)
        _bring_in_step(service, old)
        fill_families(service, old, self.families)
        self._changed_addresses(service, old, txn, dry_run=dry_run)
        if type_of(service) in {NODE_PORT, LOAD_BALANCER}:
            self._changed_node_ports(service, old, txn)
        elif type_of(old) in {NODE_PORT, LOAD_BALANCER}:
            for port in owned_node_ports(old):
                self.ports.release(port, txn)
        if needs_health_check(service) and not needs_health_check(old):
            self._health_check_port(service, txn)
        elif needs_health_check(old) and not needs_health_check(service):
            self.ports.release(spec_of(old).get("healthCheckNodePort") or 0, txn)

    def delete(self, service: Json, txn: Transaction) -> None:
        """Let go of everything the Service has."""
        if needs_cluster_ip(service) and not is_headless(service):
            self._release(cluster_ips(service), txn)
        for port in _numbers(service):
            self.ports.release(port, txn)

    def restore(self, service: Json) -> list[str]:
        """Take again what a stored Service has; what another has already, or no range holds, is returned as text."""
        lost = []
        if needs_cluster_ip(service) and not is_headless(service):
            for address in cluster_ips(service):
                pool = self.addresses.get(address_family(address))
                if pool is None or not pool.remember(address):
                    lost.append(f"clusterIP {address}")
        return lost + [f"nodePort {port}" for port in _numbers(service) if not self.ports.remember(port)]

    # Addresses

    def _all_addresses(self, service: Json, txn: Transaction, *, dry_run: bool) -> None:
        if not needs_cluster_ip(service) or is_headless(service):
            return
        given = cluster_ips(service)
        taken = []
        for index, family in enumerate(ip_families(service)):
            wanted = given[index] if index < len(given) else ""
            taken.append(self._address(service, family, wanted, txn, dry_run=dry_run))
        spec_of(service).update(clusterIP=taken[0], clusterIPs=taken)

    def _address(self, service: Json, family: str, wanted: str, txn: Transaction, *, dry_run: bool) -> str:
        pool = self.addresses[family]
        try:
            if not wanted:
                return pool.allocate_next(txn, dry_run=dry_run)
            pool.allocate(wanted, txn, dry_run=dry_run)
        except RangeFullError as error:
            raise internal(f"failed to allocate a serviceIP: {error}") from error
        except AllocationError as error:
            detail = f"failed to allocate IP {wanted}: {error}"
            causes = [invalid_value("spec.clusterIPs", cluster_ips(service), detail)]
            raise invalid(SERVICE, _name(service), causes) from error
        return wanted

    def _changed_addresses(self, service: Json, old: Json, txn: Transaction, *, dry_run: bool) -> None:
        if type_of(old) == EXTERNAL_NAME and type_of(service) != EXTERNAL_NAME:
            self._all_addresses(service, txn, dry_run=dry_run)
        elif cluster_ips(old) == [NONE] or type_of(old) == EXTERNAL_NAME:
            return
        elif type_of(service) == EXTERNAL_NAME:
            self._release(cluster_ips(old), txn)
        elif len(ip_families(old)) == 1 and len(ip_families(service)) == 2:
            given = cluster_ips(service)
            wanted = given[1] if len(given) > 1 else ""
            second = self._address(service, ip_families(service)[1], wanted, txn, dry_run=dry_run)
            spec_of(service)["clusterIPs"] = [*given[:1], second]
        elif len(ip_families(old)) == 2 and len(ip_families(service)) == 1:
            self._release(cluster_ips(old)[1:], txn)

    def _release(self, addresses: list[str], txn: Transaction) -> None:
        for address in addresses:
            pool = self.addresses.get(address_family(address))
            if pool:
                pool.release(address, txn)

    # Node ports

    def _port(self, service: Json, index: int, number: int, txn: Transaction) -> int:
        try:
            if not number:
                return self.ports.allocate_next(txn)
            self.ports.allocate(number, txn)
        except RangeFullError as error:
            raise internal(f"failed to allocate a nodePort: {error}") from error
        except AllocationError as error:
            causes = [invalid_value(f"spec.ports[{index}].nodePort", number, str(error))]
            raise invalid(SERVICE, _name(service), causes) from error
        return number

    def _first_node_ports(self, service: Json, txn: Transaction) -> None:
        """One node port per port number: TCP and UDP of one port share theirs, and an explicit one comes first."""
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
        for number in had - set(node_ports(service)):
            self.ports.release(number, txn)

    def _health_check_port(self, service: Json, txn: Transaction) -> None:
        spec = spec_of(service)
        wanted = spec.get("healthCheckNodePort") or 0
        try:
            if wanted:
                self.ports.allocate(wanted, txn)
            else:
                spec["healthCheckNodePort"] = self.ports.allocate_next(txn)
        except RangeFullError as error:
            raise internal(f"failed to allocate a HealthCheck NodePort : {error}") from error
        except AllocationError as error:
            raise internal(f"failed to allocate requested HealthCheck NodePort {wanted}: {error}") from error


def _numbers(service: Json) -> list[int]:
    health = spec_of(service).get("healthCheckNodePort") if needs_health_check(service) else None
    return [*owned_node_ports(service), *([health] if health else [])]


def _name(service: Json) -> str:
    name: str = (service.get("metadata") or {}).get("name") or ""
    return name


def _carry_over(service: Json, old: Json) -> None:
    """Allocated values that the client left out are those of the stored object."""
    spec, stored = spec_of(service), spec_of(old)
    if needs_cluster_ip(old) and needs_cluster_ip(service):
        if not spec.get("clusterIP") and stored.get("clusterIP"):
            spec["clusterIP"] = stored["clusterIP"]
        if not spec.get("clusterIPs") and spec.get("clusterIP") == stored.get("clusterIP") and cluster_ips(old):
            spec["clusterIPs"] = list(cluster_ips(old))
    if takes_node_ports(old) and takes_node_ports(service):
        used = set(node_ports(old)) & set(node_ports(service))
        by_name = {port.get("name") or "": port.get("nodePort") or 0 for port in ports_of(old)}
        for port in ports_of(service):
            number = by_name.get(port.get("name") or "", 0)
            if not port.get("nodePort") and number and number not in used:
                port["nodePort"] = number
    if needs_health_check(old) and needs_health_check(service) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = stored.get("healthCheckNodePort")


def _bring_in_step(service: Json, old: Json) -> None:
    """Clients that know only clusterIP, or only cleared it, mean clusterIPs too."""
    spec, stored = spec_of(service), spec_of(old)
    unchanged = same(old, service, "clusterIPs")
    if spec.get("clusterIP") == stored.get("clusterIP"):
        if cluster_ips(old) and not cluster_ips(service):
            spec["clusterIPs"] = list(cluster_ips(old))
    elif spec.get("clusterIP") and (unchanged or not cluster_ips(service)):
        spec["clusterIPs"] = [spec["clusterIP"]]
    elif unchanged:
        spec.pop("clusterIPs", None)


def drop_unneeded(service: Json, old: Json) -> None:
    """Clear what the new type has no use for where the client left it as it was; validation refuses what it changed."""
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
    if takes_node_ports(old) and not takes_node_ports(service) and set(node_ports(old)) == set(node_ports(service)):
        for port in ports_of(service):
            port.pop("nodePort", None)
    if type_of(service) != LOAD_BALANCER:
        service["status"] = {"loadBalancer": {}}
