"""ServiceCIDR objects: the ranges that cluster IPs come from, and the two controllers that look after them."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_network

from kdns.cluster.objects import Key
from kdns.controlplane.clusterconfig import ClusterConfig, Network
from kdns.controlplane.controller import Action, Notice, Outcome, Subject
from kdns.controlplane.formats import parse_ip
from kdns.controlplane.ipaddresses import is_managed
from kdns.controlplane.kinds import IP_ADDRESS, SERVICE_CIDR, Json, Kind
from kdns.controlplane.metadata import timestamp
from kdns.controlplane.status import StatusError

DEFAULT = "kubernetes"
"""The ServiceCIDR of the ranges that the server was started with."""

FINALIZER = "networking.k8s.io/service-cidr-finalizer"
BLOCKED = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"


def networks_of(obj: Json) -> tuple[Network, ...]:
    """The ranges of a ServiceCIDR."""
    return tuple(ip_network(cidr) for cidr in (obj.get("spec") or {}).get("cidrs") or ())


def gives_addresses(obj: Json) -> bool:
    """Whether addresses are taken from its ranges: not while it is going, and not when it is known to be unready."""
    return not obj["metadata"].get("deletionTimestamp") and _ready(obj).get("status") != "False"


def default_service_cidr(config: ClusterConfig) -> Json:
    """The object that the configured ranges make."""
    return {"metadata": {"name": DEFAULT}, "spec": {"cidrs": [str(network) for network in config.service_cidrs]}}


def upgraded(stored: Json, default: Json) -> Json | None:
    """The default ServiceCIDR with a second range, where the server got one since; else None."""
    wanted, found = default["spec"], stored["spec"]
    if len(found["cidrs"]) == 1 and len(wanted["cidrs"]) > 1 and wanted["cidrs"][0] == found["cidrs"][0]:
        return {**stored, "spec": wanted}
    return None


def _ready(obj: Json) -> Json:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == "Ready"), {})


class ServiceCidrs:
    """Marks ServiceCIDRs as ready, and lets one go when no address depends on it alone.

    Differs: kube-controller-manager waits another 10 s for the allocators of other servers to hear of the deletion.
    """

    name = "service-cidr-controller"
    follows = (SERVICE_CIDR, IP_ADDRESS)
    settled: frozenset[Kind] = frozenset()

    def __init__(self) -> None:
        self._cidrs: dict[str, Json] = {}
        self._networks: dict[str, tuple[Network, ...]] = {}
        self._leaving: set[str] = set()
        self._addresses: dict[str, tuple[int, int]] = {}

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """A ServiceCIDR concerns itself and those that are going; an address those that are going."""
        _ = revision
        name = key[1]
        if kind == IP_ADDRESS:
            self._addresses.pop(name, None)
            parsed = parse_ip(name)
            if obj is not None and parsed and is_managed(obj):
                self._addresses[name] = parsed.version, int(parsed)
            return [(each,) for each in self._leaving]
        self._leaving.discard(name)
        self._cidrs.pop(name, None)
        if obj is not None:
            self._cidrs[name], self._networks[name] = obj, networks_of(obj)
            if obj["metadata"].get("deletionTimestamp"):
                self._leaving.add(name)
        else:
            self._networks.pop(name, None)
        return [(each,) for each in {name, *self._leaving}]

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """Finalizer and Ready condition; of one that is going, the reason why it stays or its release."""
        _ = since_s
        obj = self._cidrs.get(subject[0])
        if obj is None:
            return Outcome()
        finalizers = obj["metadata"].get("finalizers") or []
        if not obj["metadata"].get("deletionTimestamp"):
            if FINALIZER not in finalizers:
                return _update(obj, metadata={**obj["metadata"], "finalizers": [*finalizers, FINALIZER]})
            return _condition(obj, now_s, "True", "", "Kubernetes Service CIDR is ready")
        if not self._may_go(subject[0]):
            return _condition(obj, now_s, "False", "Terminating", BLOCKED)
        if FINALIZER in finalizers:
            rest = [each for each in finalizers if each != FINALIZER]
            return _update(obj, metadata={**obj["metadata"], "finalizers": rest})
        return Outcome()

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """Warn when the status cannot be written; that somebody else wrote meanwhile is no trouble."""
        obj = self._cidrs.get(subject[0])
        if obj is None or _is_outdated(error):
            return None
        message = "The ServiceCIDR Status can not be set to Ready=True"
        return Notice(SERVICE_CIDR, obj, "Warning", "KubernetesServiceCIDRError", message)

    def _may_go(self, name: str) -> bool:
        """Whether other ServiceCIDRs cover all its ranges, or all addresses that Services have of them."""
        others = [network for other, found in self._networks.items() if other != name for network in found]
        alone = [
            network
            for network in self._networks[name]
            if not any(other.version == network.version and _covers(other, network) for other in others)
        ]
        return not any(
            holds(network, *address) and not any(holds(other, *address) for other in others)
            for address in self._addresses.values()
            for network in alone
        )


def _covers(one: Network, other: Network) -> bool:
    return one.network_address <= other.network_address and one.broadcast_address >= other.broadcast_address  # type: ignore[operator]


def holds(network: Network, version: int, number: int) -> bool:
    """Whether a Service could have this address of the network."""
    last = int(network.broadcast_address) - (1 if version == 4 else 0)
    return network.version == version and int(network.network_address) < number <= last


def _is_outdated(error: Exception) -> bool:
    return isinstance(error, StatusError) and error.code == 409


def _update(obj: Json, **changes: Json) -> Outcome:
    return Outcome((Action("update", SERVICE_CIDR, {**obj, **changes}),))


def _condition(obj: Json, now_s: float, status: str, reason: str, message: str) -> Outcome:
    """The status with this Ready condition; nothing where it has it already."""
    old = _ready(obj)
    said = {"type": "Ready", "status": status, "reason": reason, "message": message}
    since = old.get("lastTransitionTime") if old.get("status") == status else None
    new = {**said, "lastTransitionTime": since or timestamp(now_s)}
    if new == old:
        return Outcome()
    others = [each for each in (obj.get("status") or {}).get("conditions") or () if each.get("type") != "Ready"]
    changed = {**obj, "status": {"conditions": [*others, new]}}
    return Outcome((Action("update", SERVICE_CIDR, changed, "status"),))


class DefaultServiceCidr:
    """Makes the default ServiceCIDR again when it is gone; warns when it is not what the server was started with."""

    name = "kubernetes-service-cidr-controller"
    follows = (SERVICE_CIDR,)
    settled: frozenset[Kind] = frozenset()

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._stored: Json | None = None
        self._is_told = False

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """Only the default one counts."""
        _ = kind, revision
        if key[1] != DEFAULT:
            return ()
        self._stored = obj
        return ((DEFAULT,),)

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """Create, extend to a second family, or warn once."""
        _ = subject, since_s, now_s
        wanted = default_service_cidr(self._config)
        if self._stored is None:
            return Outcome((Action("create", SERVICE_CIDR, wanted),))
        if more := upgraded(self._stored, wanted):
            return Outcome((Action("update", SERVICE_CIDR, more),))
        found, flags = self._stored["spec"]["cidrs"], wanted["spec"]["cidrs"]
        if found == flags or self._is_told or self._stored["metadata"].get("deletionTimestamp"):
            return Outcome()
        self._is_told = True
        message = (
            f"The default ServiceCIDR [{' '.join(found)}] does not match "
            f"the controller flag configurations [{' '.join(flags)}]"
        )
        notice = Notice(SERVICE_CIDR, self._stored, "Warning", "KubernetesDefaultServiceCIDRInconsistent", message)
        return Outcome(notices=(notice,))

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """Warn that the object cannot be written; that somebody else wrote meanwhile is no trouble."""
        _ = subject
        if _is_outdated(error):
            return None
        if self._stored is None:
            about = default_service_cidr(self._config)
            said = "The default ServiceCIDR can not be created"
        else:
            about = self._stored
            flags = [str(network) for network in self._config.service_cidrs]
            both = f"[{' '.join(flags)}]"
            said = f"The default ServiceCIDR can not be upgraded from {flags[0]} to dual stack {both} : {error}"
        return Notice(SERVICE_CIDR, about, "Warning", "KubernetesDefaultServiceCIDRError", said)
