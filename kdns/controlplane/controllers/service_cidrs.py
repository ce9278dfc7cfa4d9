"""The ServiceCIDR controller, and the controller of the default ServiceCIDR (kube-apiserver)."""

from __future__ import annotations

from collections.abc import Iterable

from kdns.controlplane.apimachinery.conditions import set_condition
from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import IP_ADDRESS, SERVICE_CIDR, Json
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.controllers.reconciler import (
    Action,
    Change,
    Event,
    Name,
    Reconciler,
    Request,
    Result,
    status_update,
)
from kdns.controlplane.kinds.service.service_cidr import (
    DEFAULT,
    default_service_cidr,
    is_managed,
    networks_of,
)
from kdns.controlplane.storage.object_meta import is_terminating, timestamp
from kdns.net import Network, parse_address

FINALIZER = "networking.k8s.io/service-cidr-finalizer"
BLOCKED = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"


class ServiceCidrs(Reconciler):
    """Sets ServiceCIDRs Ready, and removes the finalizer of a terminating one when no address depends on it alone.

    Differs: kube-controller-manager waits another 10 s, so that allocators of other servers see the deletion.
    """

    name = "service-cidr-controller"
    watches = (SERVICE_CIDR, IP_ADDRESS)

    def __init__(self) -> None:
        self._cidrs: dict[str, Json] = {}
        self._networks: dict[str, tuple[Network, ...]] = {}
        self._terminating: set[str] = set()
        self._addresses: dict[str, tuple[int, int]] = {}

    def observe(self, change: Change) -> Iterable[Name]:
        kind, key, obj, _ = change
        name = key[1]
        if kind == IP_ADDRESS:
            self._addresses.pop(name, None)
            parsed = parse_address(name)
            if obj is not None and parsed and is_managed(obj):
                self._addresses[name] = parsed.version, int(parsed)
            return [(terminating,) for terminating in self._terminating]
        self._terminating.discard(name)
        self._cidrs.pop(name, None)
        if obj is not None:
            self._cidrs[name], self._networks[name] = obj, networks_of(obj)
            if is_terminating(obj):
                self._terminating.add(name)
        else:
            self._networks.pop(name, None)
        return [(changed,) for changed in {name, *self._terminating}]

    def reconcile(self, request: Request) -> Result:
        """Writes the finalizer and the Ready condition, which says why a terminating ServiceCIDR is not released."""
        obj = self._cidrs.get(request.name[0])
        if obj is None:
            return Result()
        finalizers = obj["metadata"].get("finalizers") or []
        if not is_terminating(obj):
            if FINALIZER not in finalizers:
                return _update(obj, metadata={**obj["metadata"], "finalizers": [*finalizers, FINALIZER]})
            return _condition(obj, request.now_s, "True", "", "Kubernetes Service CIDR is ready")
        if not self._is_unused(request.name[0]):
            return _condition(obj, request.now_s, "False", "Terminating", BLOCKED)
        if FINALIZER in finalizers:
            others = [finalizer for finalizer in finalizers if finalizer != FINALIZER]
            return _update(obj, metadata={**obj["metadata"], "finalizers": others})
        return Result()

    def failed(self, request: Request, action: Action, error: StatusError) -> Event | None:
        del action, error
        obj = self._cidrs.get(request.name[0])
        if obj is None:
            return None
        message = "The ServiceCIDR Status can not be set to Ready=True"
        return Event(SERVICE_CIDR, obj, "Warning", "KubernetesServiceCIDRError", message)

    def _is_unused(self, name: str) -> bool:
        """Whether other ServiceCIDRs contain all its ranges, or all their addresses that are in use."""
        others = [network for other, networks in self._networks.items() if other != name for network in networks]
        alone = [
            network
            for network in self._networks[name]
            if not any(other.version == network.version and _covers(other, network) for other in others)
        ]
        return not any(
            _holds(network, *address) and not any(_holds(other, *address) for other in others)
            for address in self._addresses.values()
            for network in alone
        )


def _covers(one: Network, other: Network) -> bool:
    return one.network_address <= other.network_address and one.broadcast_address >= other.broadcast_address  # type: ignore[operator]


def _holds(network: Network, version: int, number: int) -> bool:
    last = int(network.broadcast_address) - (1 if version == 4 else 0)
    return network.version == version and int(network.network_address) < number <= last


def _update(obj: Json, **changes: Json) -> Result:
    return Result((Action("update", SERVICE_CIDR, {**obj, **changes}),))


def _condition(obj: Json, now_s: float, status: str, reason: str, message: str) -> Result:
    """Sets the Ready condition; no write when it is unchanged."""
    old = (obj.get("status") or {}).get("conditions") or []
    new = {"type": "Ready", "status": status, "reason": reason, "message": message}
    conditions = set_condition(old, new, timestamp(now_s))
    return Result() if conditions == old else Result(status_update(SERVICE_CIDR, obj, {"conditions": conditions}))


class DefaultServiceCidr(Reconciler):
    """Creates the default ServiceCIDR when it is missing; an Event says when it differs from --service-cidr.

    Differs: a second IP family is added when kdns starts (bootstrap), not here.
    """

    name = "kubernetes-service-cidr-controller"
    watches = (SERVICE_CIDR,)

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._stored: Json | None = None
        self._is_reported = False

    def observe(self, change: Change) -> Iterable[Name]:
        _, key, obj, _ = change
        if key[1] != DEFAULT:
            return ()
        self._stored = obj
        return ((DEFAULT,),)

    def reconcile(self, _request: Request) -> Result:
        default = default_service_cidr(self._config)
        if self._stored is None:
            return Result((Action("create", SERVICE_CIDR, default),))
        stored, flags = self._stored["spec"]["cidrs"], default["spec"]["cidrs"]
        if stored == flags or self._is_reported or is_terminating(self._stored):
            return Result()
        self._is_reported = True
        message = (
            f"The default ServiceCIDR [{' '.join(stored)}] does not match "
            f"the controller flag configurations [{' '.join(flags)}]"
        )
        event = Event(SERVICE_CIDR, self._stored, "Warning", "KubernetesDefaultServiceCIDRInconsistent", message)
        return Result(events=(event,))

    def failed(self, request: Request, action: Action, error: StatusError) -> Event | None:
        del request, action, error
        about, message = default_service_cidr(self._config), "The default ServiceCIDR can not be created"
        return Event(SERVICE_CIDR, about, "Warning", "KubernetesDefaultServiceCIDRError", message)
