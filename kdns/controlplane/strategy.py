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
from kdns.controlplane.defaults_pod import qos_class
from kdns.controlplane.families import fill_on_read
from kdns.controlplane.kinds import ENDPOINT_SLICE, ENDPOINTS, EVENT, NAMESPACE, NODE, POD, SERVICE, Json, Kind
from kdns.controlplane.status import Cause, StatusError, invalid
from kdns.controlplane.strategy_service import ServiceAllocator, drop_unneeded
from kdns.controlplane.validation import validate_meta
from kdns.controlplane.validation_endpoints import validate_endpoint_slice, validate_endpoints
from kdns.controlplane.validation_pod import (
    validate_event,
    validate_namespace,
    validate_node,
    validate_pod,
    validate_pod_status,
)
from kdns.controlplane.validation_service import (
    validate_load_balancer_status,
    validate_service,
    validate_service_update,
)

_RULES: dict[Kind, Callable[[Json, Json | None], list[Cause]]] = {
    ENDPOINTS: validate_endpoints,
    ENDPOINT_SLICE: validate_endpoint_slice,
    EVENT: validate_event,
    NAMESPACE: validate_namespace,
    NODE: validate_node,
    POD: validate_pod,
    SERVICE: lambda new, old: validate_service_update(new, old) if old else validate_service(new),
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

    def __init__(self, config: ClusterConfig, choose: Choose) -> None:
        self.config = config
        self.services = ServiceAllocator(config, choose)
        self.lost: list[str] = []
        self._trusting = False

    def create(self, kind: Kind, obj: Json, *, dry_run: bool = False) -> Prepared:
        """The object as it is to be stored for the first time; StatusError 422, or 500 for a full range."""
        new, txn = with_defaults(kind, obj), Transaction()
        with_status = _FIRST_STATUS.get(kind)
        try:
            if kind == SERVICE:
                self.services.create(new, txn, dry_run=dry_run)
            if with_status:
                new = {**new, "status": with_status(new)}
            self._check(kind, new, _RULES[kind](new, None))
        except StatusError:
            txn.revert()
            raise
        return _prepared(new, txn, dry_run=dry_run)

    def update(self, kind: Kind, old: Json, new: Json, *, subresource: str = "", dry_run: bool = False) -> Prepared:
        """The object as it is to replace `old`; for the status subresource only its status counts."""
        txn = Transaction()
        new = with_defaults(kind, new)
        if subresource:
            self._check(kind, new, validate_meta(new, _any_name, namespaced=kind.namespaced))
            if kind == SERVICE and subresource == "status":
                self._check(kind, new, validate_load_balancer_status(new, old))
            if kind == POD and subresource == "status":
                self._check(kind, new, validate_pod_status(new))
            return _prepared(new, txn, dry_run=dry_run)
        try:
            if kind == SERVICE:
                self.services.update(new, old, txn, dry_run=dry_run)
                drop_unneeded(new, old)
            self._check(kind, new, _RULES[kind](new, old))
        except StatusError:
            txn.revert()
            raise
        return _prepared(new, txn, dry_run=dry_run)

    def deleted(self, kind: Kind, obj: Json) -> None:
        """Release what an object held that is gone for good."""
        if kind == SERVICE:
            txn = Transaction()
            self.services.delete(obj, txn)
            txn.commit()

    def restore(self, kind: Kind, obj: Json) -> None:
        """Learn at start what a stored object holds; what it cannot hold is told in `lost`."""
        if kind == SERVICE:
            meta = obj["metadata"]
            lost = self.services.restore(obj)
            self.lost += [f"{meta.get('namespace')}/{meta['name']}: {what}" for what in lost]

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


_FIRST_STATUS: dict[Kind, Callable[[Json], Json]] = {SERVICE: _service_status, POD: _pod_status}
