"""The way of an object into the store: defaults → allocation → what the server decides → validation.

`create` and `update` hold allocations until the caller commits or reverts; when they raise, nothing is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kdns.controlplane.allocate import Choose, Transaction
from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.controlplane.defaults import with_defaults
from kdns.controlplane.defaults_apps import counted_template
from kdns.controlplane.defaults_kept import with_job_selector
from kdns.controlplane.defaults_pod import admitted, qos_class
from kdns.controlplane.disruption import validate_disruption_budget
from kdns.controlplane.families import fill_on_read
from kdns.controlplane.kinds import (
    CLAIM,
    CONFIG_MAP,
    CONTROLLER_REVISION,
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    ENDPOINT_SLICE,
    ENDPOINTS,
    EVENT,
    INGRESS,
    INGRESS_CLASS,
    IP_ADDRESS,
    JOB,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    SERVICE_CIDR,
    STATEFUL_SET,
    VOLUME,
    Json,
    Kind,
)
from kdns.controlplane.status import Cause, invalid
from kdns.controlplane.strategy_service import ServiceAllocator
from kdns.controlplane.tally import Tally
from kdns.controlplane.transitions import drop_unneeded
from kdns.controlplane.validation import validate_meta, validate_meta_update
from kdns.controlplane.validation_apps import (
    validate_controller_revision,
    validate_daemon_set,
    validate_deployment,
    validate_replica_set,
    validate_replication_controller,
    validate_stateful_set,
)
from kdns.controlplane.validation_batch import validate_cron_job, validate_job
from kdns.controlplane.validation_config import (
    validate_config_map,
    validate_lease,
    validate_secret,
    validate_service_account,
)
from kdns.controlplane.validation_endpoints import validate_endpoint_slice, validate_endpoints
from kdns.controlplane.validation_ingress import validate_ingress, validate_ingress_class
from kdns.controlplane.validation_networking import validate_ip_address, validate_service_cidr
from kdns.controlplane.validation_node import validate_node
from kdns.controlplane.validation_pod import (
    validate_event,
    validate_namespace,
    validate_pod,
    validate_pod_status,
)
from kdns.controlplane.validation_service import (
    validate_load_balancer_status,
    validate_service,
    validate_service_update,
)
from kdns.controlplane.validation_storage import validate_claim, validate_volume
from kdns.controlplane.watch import Stored

_RULES: dict[Kind, Callable[[Json, Json | None], list[Cause]]] = {
    CLAIM: validate_claim,
    CONFIG_MAP: validate_config_map,
    CRON_JOB: validate_cron_job,
    ENDPOINTS: validate_endpoints,
    ENDPOINT_SLICE: validate_endpoint_slice,
    EVENT: validate_event,
    INGRESS: validate_ingress,
    INGRESS_CLASS: validate_ingress_class,
    IP_ADDRESS: validate_ip_address,
    JOB: validate_job,
    LEASE: validate_lease,
    DISRUPTION_BUDGET: validate_disruption_budget,
    NAMESPACE: validate_namespace,
    NODE: validate_node,
    POD: validate_pod,
    SECRET: validate_secret,
    SERVICE_ACCOUNT: validate_service_account,
    SERVICE_CIDR: validate_service_cidr,
    VOLUME: validate_volume,
    SERVICE: lambda new, old: validate_service_update(new, old) if old else validate_service(new),
    REPLICATION_CONTROLLER: validate_replication_controller,
    DEPLOYMENT: validate_deployment,
    REPLICA_SET: validate_replica_set,
    STATEFUL_SET: validate_stateful_set,
    DAEMON_SET: validate_daemon_set,
    CONTROLLER_REVISION: validate_controller_revision,
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """An object ready to be stored. Call one of `commit` and `revert`; a second call does nothing."""

    obj: Json
    commit: Callable[[], None]
    revert: Callable[[], None]


class Strategies:
    """All kinds' rules, and the allocations of one cluster.

    `choose(n)` returns a number from 0 to n - 1: dynamic addresses and ports start to look there.
    """

    def __init__(self, config: ClusterConfig, choose: Choose, tally: Tally | None = None) -> None:
        self.config = config
        self.services = ServiceAllocator(config, choose, tally or Tally())
        self.lost: list[str] = []
        self._trusting = False

    def create(self, kind: Kind, obj: Json, *, dry_run: bool = False) -> Prepared:
        """The object as it is to be stored for the first time; StatusError 422, or 500 for a full range."""
        new, txn = _counted(kind, with_defaults(kind, obj), None), Transaction()
        if kind == JOB:
            new = with_job_selector(new)
        if kind == POD:
            new = admitted(new)
        with_status = _FIRST_STATUS.get(kind)
        try:
            if kind == SERVICE:
                self.services.create(new, txn, dry_run=dry_run)
            if with_status:
                new = {**new, "status": with_status(new)}
            self._check(kind, new, _RULES[kind](new, None))
        except BaseException:
            txn.revert()
            raise
        return _prepared(new, txn, dry_run=dry_run)

    def update(self, kind: Kind, old: Json, new: Json, *, subresource: str = "", dry_run: bool = False) -> Prepared:
        """The object as it is to replace `old`; for the status subresource only its status counts."""
        txn = Transaction()
        new = with_defaults(kind, new)
        if subresource:
            marks = validate_meta(new, _any_name, namespaced=kind.namespaced)
            self._check(kind, new, validate_meta_update(old, new) + marks)
            if kind == SERVICE and subresource == "status":
                self._check(kind, new, validate_load_balancer_status(new, old))
            if kind == POD and subresource == "status":
                self._check(kind, new, validate_pod_status(new))
            return _prepared(new, txn, dry_run=dry_run)
        new = _counted(kind, new, old)
        try:
            if kind == SERVICE:
                self.services.update(new, old, txn, dry_run=dry_run)
                drop_unneeded(new, old)
            self._check(kind, new, _RULES[kind](new, old))
        except BaseException:
            txn.revert()
            raise
        return _prepared(new, txn, dry_run=dry_run)

    def deleted(self, kind: Kind, obj: Json) -> None:
        """Release what an object held that is gone for good."""
        if kind == SERVICE:
            txn = Transaction()
            self.services.delete(obj, txn)
            txn.commit()
        elif kind == IP_ADDRESS:
            self.services.unreserve(obj["metadata"]["name"])
        elif kind == SERVICE_CIDR:
            self.services.service_cidr(obj["metadata"]["name"], None)

    def stored(self, kind: Kind, obj: Json) -> None:
        """Learn of a version that was just stored, by whatever way: addresses are reserved, ranges come and go."""
        if kind == IP_ADDRESS:
            self.services.reserve(obj["metadata"]["name"])
        elif kind == SERVICE_CIDR:
            self.services.service_cidr(obj["metadata"]["name"], obj)

    @property
    def restored(self) -> frozenset[Kind]:
        """The kinds that `restore` wants to hear of."""
        return frozenset({SERVICE, SERVICE_CIDR, IP_ADDRESS})

    def restore(self, version: Stored) -> None:
        """Learn at start what a stored object holds; what it cannot hold is told in `lost`.

        An IPAddress says it by its name: at start there are many that nobody else looks at.
        """
        if version.kind == IP_ADDRESS:
            self.services.reserve(version.key[1])
            return
        if version.kind == SERVICE:
            lost = self.services.restore(version.obj)
            self.lost += [f"{'/'.join(version.key)}: {what}" for what in lost]
        self.stored(version.kind, version.obj)

    def on_read(self, kind: Kind, obj: Json) -> Json:
        """The object with the fields that older versions did not store."""
        return fill_on_read(obj, self.config.families) if kind == SERVICE else obj

    @contextmanager
    def trusting(self) -> Iterator[None]:
        """Validation refuses nothing inside: for the server's own objects, which may lead to loopback addresses."""
        self._trusting = True
        try:
            yield
        finally:
            self._trusting = False

    def _check(self, kind: Kind, obj: Json, causes: list[Cause]) -> None:
        if causes and not self._trusting:
            raise invalid(kind, obj["metadata"].get("name") or "", causes)


def _prepared(obj: Json, txn: Transaction, *, dry_run: bool) -> Prepared:
    if dry_run:
        txn.revert()
    return Prepared(obj, txn.commit, txn.revert)


def _any_name(_: str) -> list[str]:
    """The name was judged when the object was created."""
    return []


def _service_status(_: Json) -> Json:
    return {"loadBalancer": {}}


def _pod_status(pod: Json) -> Json:
    """Pending, unless the Pod brings a status that says something.

    Differs: kube-apiserver drops it. Without a kubelet, a manifest is the one place to say how a Pod is.
    """
    status = {key: value for key, value in (pod.get("status") or {}).items() if value}
    brought = any(status.get(key) for key in ("phase", "podIP", "podIPs", "conditions"))
    return {"phase": "Pending", **(status if brought else {}), "qosClass": qos_class(pod)}


def _counted(kind: Kind, new: Json, old: Json | None) -> Json:
    return counted_template(new, old) if kind == DAEMON_SET else new


_NO_REPLICAS: Json = {"replicas": 0}
_NO_DAEMONS: Json = {
    "currentNumberScheduled": 0,
    "desiredNumberScheduled": 0,
    "numberMisscheduled": 0,
    "numberReady": 0,
}
_NO_DISRUPTIONS: Json = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
_FIRST_STATUS: dict[Kind, Callable[[Json], Json]] = {
    DEPLOYMENT: lambda _: {},
    REPLICATION_CONTROLLER: lambda _: _NO_REPLICAS,
    REPLICA_SET: lambda _: _NO_REPLICAS,
    STATEFUL_SET: lambda _: _NO_REPLICAS,
    DAEMON_SET: lambda _: _NO_DAEMONS,
    CLAIM: lambda _: {"phase": "Pending"},
    CRON_JOB: lambda _: {},
    INGRESS: _service_status,
    DISRUPTION_BUDGET: lambda _: _NO_DISRUPTIONS,
    JOB: lambda _: {},
    POD: _pod_status,
    SERVICE: _service_status,
    SERVICE_CIDR: lambda _: {},
    VOLUME: lambda _: {"phase": "Pending"},
}
