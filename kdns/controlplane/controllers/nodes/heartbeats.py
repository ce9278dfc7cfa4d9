"""The heartbeats of simulated kubelets: the Lease of each Node every 10 s, and its status every five minutes.

A node lifecycle controller beside kdns takes a Node without them for lost. Each Node has its own second, so that the
writes of many are spread. A Node that is not Ready is a simulated failure: its kubelet is silent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from zlib import crc32

from kdns.controlplane.controllers.nodes.node_status import reported_conditions
from kdns.controlplane.controllers.reconciler import Action, Change, Name, Reconciler, Request, Result
from kdns.controlplane.meta.conditions import is_ready
from kdns.controlplane.meta.inert import LEASE
from kdns.controlplane.meta.kinds import NODE, Json
from kdns.controlplane.storage.object_meta import is_terminating, timestamp

NAMESPACE: Final = "kube-node-lease"
LEASE_S: Final = 40
RENEWAL_S: Final = 10
STATUS_S: Final = 300


class Heartbeats(Reconciler):
    """Requests are Nodes by name."""

    name = "kubelet"
    watches = (NODE, LEASE)
    ignores_own_writes_of = frozenset({NODE, LEASE})

    def __init__(self) -> None:
        self._nodes: dict[str, Json] = {}
        self._leases: dict[str, Json] = {}

    def observe(self, change: Change) -> Iterable[Name]:
        """Returns the Node of a Node or Lease."""
        kind, key, obj, _ = change
        namespace, name = key
        if kind == LEASE and namespace != NAMESPACE:
            return ()
        known = self._nodes if kind == NODE else self._leases
        known.pop(name, None)
        if obj is not None:
            known[name] = obj
        return ((name,),) if name in self._nodes else ()

    def reconcile(self, request: Request) -> Result:
        """Renews overdue heartbeats."""
        (name,), now_s = request
        node = self._nodes.get(name)
        if node is None or not is_ready(node) or is_terminating(node):
            return Result()
        due_s = _latest(name, RENEWAL_S, now_s)
        actions = [*self._renewed(node, due_s, now_s), *_reported(node, _latest(name, STATUS_S, now_s), now_s)]
        return Result(actions, requeue_after_s=due_s + RENEWAL_S - now_s)

    def _renewed(self, node: Json, due_s: float, now_s: float) -> Iterable[Action]:
        meta = node["metadata"]
        renewal = {"holderIdentity": meta["name"], "leaseDurationSeconds": LEASE_S, "renewTime": _micro(now_s)}
        lease = self._leases.get(meta["name"])
        if lease is None:
            owner = {"apiVersion": NODE.api_version, "kind": NODE.kind, "name": meta["name"], "uid": meta["uid"]}
            metadata = {"name": meta["name"], "namespace": NAMESPACE, "ownerReferences": [owner]}
            yield Action("create", LEASE, {"metadata": metadata, "spec": renewal})
        elif not _micro(due_s) <= (lease.get("spec") or {}).get("renewTime", "") <= _micro(now_s):
            yield Action("update", LEASE, {**lease, "spec": {**(lease.get("spec") or {}), **renewal}})


def _reported(node: Json, due_s: float, now_s: float) -> Iterable[Action]:
    """Yields the status with new heartbeats, if the last one is overdue, or in the future."""
    status = node["status"]
    beats = (row.get("lastHeartbeatTime") or "" for row in status["conditions"] if row.get("type") == "Ready")
    if not timestamp(due_s) <= min(beats) <= timestamp(now_s):
        conditions = reported_conditions(status["conditions"], timestamp(now_s))
        yield Action("update", NODE, {**node, "status": {**status, "conditions": conditions}}, "status")


def _latest(name: str, period_s: int, now_s: float) -> float:
    """Returns when the periodic work of a Node was last due."""
    phase_s = crc32(name.encode()) % (period_s * 1000) / 1000
    return now_s - (now_s - phase_s) % period_s


def _micro(now_s: float) -> str:
    """Returns a meta/v1 MicroTime."""
    return f"{timestamp(now_s)[:-1]}.{int(now_s % 1 * 1e6):06}Z"
