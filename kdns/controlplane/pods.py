"""The simulated kubelet: a Pod that nobody runs gets an address and becomes Ready.

It fills in what is missing: node, address, the Ready condition, container statuses. What a manifest brought in its
status, and what clients write into the status later, is kept. Finished Pods and Pods that go away are left alone.
"""

from __future__ import annotations

from ipaddress import ip_address

from kdns.controlplane.allocate import Choose, Pool
from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.controlplane.endpointpods import is_terminating, pod_ips, status_of
from kdns.controlplane.kinds import Json
from kdns.errors import KdnsError

_FINISHED = frozenset({"Succeeded", "Failed"})
_NODE_RESERVED = 2
"""The network address and the node's own address open each pod range."""


class PodAddressError(KdnsError):
    """The pod range has no address left."""


class PodAddresses:
    """Which Pod has which addresses. No address is given twice while a Pod has it, also by its manifest."""

    def __init__(self, config: ClusterConfig, choose: Choose) -> None:
        self._networks = config.pod_cidrs
        self._pools = [Pool(max(n.num_addresses - _NODE_RESERVED - 1, 0), choose) for n in config.pod_cidrs]
        self._used: dict[str, list[str]] = {}
        self._users: dict[str, int] = {}

    def follow(self, uid: str, pod: Json | None) -> None:
        """Learn what a Pod has now; None when it is gone. Pods of the host's network have nothing of their own."""
        own = pod is not None and not (pod.get("spec") or {}).get("hostNetwork")
        now = pod_ips(pod) if pod and own and status_of(pod).get("phase") not in _FINISHED else []
        before = self._used.pop(uid, [])
        if now:
            self._used[uid] = now
        for address in now:
            self._count(address, 1)
        for address in before:
            self._count(address, -1)

    def choose(self) -> list[str]:
        """A free address of each family; `follow` keeps them once the Pod is written."""
        found = []
        for network, pool in zip(self._networks, self._pools, strict=True):
            offset = pool.take_any()
            if offset is None:
                raise PodAddressError(
                    f"no address is left in {network} for another Pod: delete Pods or widen --pod-cidr"
                )
            pool.free(offset)
            found.append(str(network[_NODE_RESERVED + offset]))
        return found

    def _count(self, address: str, change: int) -> None:
        try:
            parsed = ip_address(address)
        except ValueError:  # nothing that the simulation could give to another Pod
            return
        for network, pool in zip(self._networks, self._pools, strict=True):
            if parsed.version != network.version:
                continue
            offset = int(parsed) - int(network.network_address) - _NODE_RESERVED
            users = self._users.get(address, 0) + change
            self._users[address] = users
            if users > 0 and 0 <= offset < pool.size:
                pool.take(offset)
            elif users <= 0:
                del self._users[address]
                pool.free(offset)


def is_waiting(pod: Json) -> bool:
    """Whether the simulation has to act."""
    if status_of(pod).get("phase") in _FINISHED or is_terminating(pod):
        return False
    return not (pod.get("spec") or {}).get("nodeName") or lacks_status(pod)


def lacks_status(pod: Json) -> bool:
    """Whether addresses, readiness or the containers' statuses are missing."""
    conditions = status_of(pod).get("conditions") or []
    ready = any(row.get("type") == "Ready" for row in conditions)
    return not (pod_ips(pod) and ready and status_of(pod).get("containerStatuses"))


def bound(pod: Json, config: ClusterConfig) -> Json:
    """The Pod on its node: the one it names, else the cluster's only one."""
    spec = pod.get("spec") or {}
    return pod if spec.get("nodeName") else {**pod, "spec": {**spec, "nodeName": config.node_name}}


def running_status(pod: Json, config: ClusterConfig, addresses: list[str], now: str) -> Json:
    """The status of a Pod that runs since `now` (RFC 3339) at `addresses`; what its own status says comes first."""
    given = {key: value for key, value in status_of(pod).items() if value}
    given_conditions = given.get("conditions") or []
    phase = given.get("phase") or "Pending"
    if phase == "Pending" and not given_conditions:
        phase = "Running"
    said = [row.get("status") == "True" for row in given_conditions if row.get("type") == "Ready"]
    ready = said[0] if said else phase == "Running"
    host_ips = list(config.node_addresses)
    ips = pod_ips(pod) or (host_ips if (pod.get("spec") or {}).get("hostNetwork") else addresses)
    return {
        **given,
        "phase": phase,
        "hostIP": host_ips[0],
        "hostIPs": [{"ip": ip} for ip in host_ips],
        "podIP": ips[0],
        "podIPs": [{"ip": ip} for ip in ips],
        "startTime": given.get("startTime") or now,
        "conditions": _conditions(given_conditions, now, ready=ready),
        "containerStatuses": given.get("containerStatuses") or _containers(pod, "containers", now, ready=ready),
        **({"initContainerStatuses": done} if (done := _containers(pod, "initContainers", now, ready=True)) else {}),
    }


def _conditions(given: list[Json], now: str, *, ready: bool) -> list[Json]:
    """The conditions a kubelet reports, in its order; given ones are kept as they are."""
    by_type = {row.get("type"): row for row in given}
    wanted = {
        "PodReadyToStartContainers": True,
        "Initialized": True,
        "Ready": ready,
        "ContainersReady": ready,
        "PodScheduled": True,
    }
    rows = [
        by_type.pop(name, {"type": name, "status": "True" if holds else "False", "lastTransitionTime": now})
        for name, holds in wanted.items()
    ]
    return rows + list(by_type.values())


def _containers(pod: Json, field: str, now: str, *, ready: bool) -> list[Json]:
    running = {"running": {"startedAt": now}}
    finished = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
    rows = []
    for container in (pod.get("spec") or {}).get(field) or []:
        ended = field == "initContainers" and container.get("restartPolicy") != "Always"
        image = container.get("image") or ""
        row = {"name": container["name"], "image": image, "imageID": "", "ready": ready, "restartCount": 0}
        rows.append({**row, "started": not ended, "state": finished if ended else running})
    return rows
