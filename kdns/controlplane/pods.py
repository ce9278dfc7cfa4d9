"""The simulated kubelet's decisions: a Pod on a node that nobody runs gets an address and becomes Ready.

It fills in what is missing: node, address, the Ready condition, container statuses. What a manifest brought in its
status, and what clients write into the status later, is kept. Finished Pods and Pods that go away are left alone.
"""

from __future__ import annotations

from ipaddress import ip_address

from kdns.controlplane.ages import seconds_of
from kdns.controlplane.allocate import Choose, Pool
from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.controlplane.endpointpods import is_ready, is_terminating, pod_ips, status_of
from kdns.controlplane.kinds import Json
from kdns.errors import KdnsError

_FINISHED = frozenset({"Succeeded", "Failed"})
_KUBELETS = frozenset({"Ready", "ContainersReady", "Initialized"})
"""Conditions that nobody but a kubelet sets: a Pod that brings one means what it says."""

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


def is_finished(pod: Json) -> bool:
    """Whether the Pod has run to its end."""
    return status_of(pod).get("phase") in _FINISHED


def node_of(pod: Json) -> str:
    """The node that the Pod is on; "" while it is on none."""
    return (pod.get("spec") or {}).get("nodeName") or ""


def is_waiting(pod: Json) -> bool:
    """Whether there is something for a kubelet to do: the Pod is on a node, and not all is said of it, or it goes."""
    if not node_of(pod):
        return False
    if is_terminating(pod):
        return True
    return not is_finished(pod) and (lacks_status(pod) or _gated_otherwise(pod) or is_done(pod))


def lacks_status(pod: Json) -> bool:
    """Whether addresses, readiness or the containers' statuses are missing."""
    conditions = status_of(pod).get("conditions") or []
    ready = any(row.get("type") == "Ready" for row in conditions)
    return not (pod_ips(pod) and ready and status_of(pod).get("containerStatuses"))


def is_done(pod: Json) -> bool:
    """Whether the Pod ends well at once: the work of Jobs is simulated to be done when it begins."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(
        row.get("controller") and row.get("kind") == "Job" and str(row.get("apiVersion", "")).startswith("batch/")
        for row in owners
    )


def leaves_at_s(pod: Json) -> float:
    """When a Pod that goes is gone: after the longest preStop sleep of its containers, and not after its grace."""
    marks, spec = pod["metadata"], pod.get("spec") or {}
    granted_s = marks.get("deletionGracePeriodSeconds") or 0
    sleeps = [
        (((container.get("lifecycle") or {}).get("preStop") or {}).get("sleep") or {}).get("seconds") or 0
        for container in spec.get("containers") or ()
    ]
    end_s = seconds_of(marks["deletionTimestamp"]) or 0.0
    return end_s - granted_s + min(max(sleeps, default=0), granted_s)


def running_status(pod: Json, host_ips: list[str], addresses: list[str], now: str) -> Json:
    """The status of a Pod that runs since `now` (RFC 3339) at `addresses`; what its own status says comes first."""
    given = {key: value for key, value in status_of(pod).items() if value}
    conditions = [row for row in given.get("conditions") or [] if not _says_unscheduled(row)]
    phase = given.get("phase") or "Pending"
    if phase == "Pending" and not any(row.get("type") in _KUBELETS for row in conditions):
        phase = "Running"
    said = [row.get("status") == "True" for row in conditions if row.get("type") == "Ready"]
    ready = said[0] if said else phase == "Running"
    ips = pod_ips(pod) or (host_ips if (pod.get("spec") or {}).get("hostNetwork") else addresses)
    status = {
        **given,
        "phase": phase,
        "hostIP": host_ips[0],
        "hostIPs": [{"ip": ip} for ip in host_ips],
        "podIP": ips[0],
        "podIPs": [{"ip": ip} for ip in ips],
        "startTime": given.get("startTime") or now,
        "conditions": _conditions(conditions, now, ready=ready),
        "containerStatuses": given.get("containerStatuses") or _containers(pod, "containers", now, ready=ready),
        **({"initContainerStatuses": done} if (done := _containers(pod, "initContainers", now, ready=True)) else {}),
    }
    return gated_status({**pod, "status": status}, now)


def _says_unscheduled(row: Json) -> bool:
    return row.get("type") == "PodScheduled" and row.get("status") != "True"


def gated_status(pod: Json, now: str) -> Json:
    """The status with Ready as the Pod's readiness gates have it; without gates, Ready is what it was."""
    problem = _closed_gate(pod)
    if problem is None:
        return status_of(pod)
    reason = {"reason": "ReadinessGatesNotReady", "message": problem} if problem else {}
    return status_of(with_condition(pod, "Ready", "False" if problem else "True", now, **reason))


def _gated_otherwise(pod: Json) -> bool:
    problem = _closed_gate(pod)
    return problem is not None and is_ready(pod) == bool(problem)


def _closed_gate(pod: Json) -> str | None:
    """What keeps a Pod with ready containers from being Ready: "" for nothing, None where gates do not decide."""
    gates = [gate.get("conditionType", "") for gate in (pod.get("spec") or {}).get("readinessGates") or ()]
    by_type = {row.get("type"): row.get("status") for row in status_of(pod).get("conditions") or ()}
    if not gates or by_type.get("ContainersReady") != "True":
        return None
    absent = [
        f'corresponding condition of pod readiness gate "{gate}" does not exist.'
        for gate in gates
        if gate not in by_type
    ]
    closed = [
        f'the status of pod readiness gate "{gate}" is not "True", but {by_type[gate]}'
        for gate in gates
        if by_type.get(gate, "True") != "True"
    ]
    return ", ".join(absent + closed)


def succeeded_status(pod: Json, now: str) -> Json:
    """The status of a Pod whose containers have all done their work."""
    status = status_of(pod)
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": status.get("startTime") or now, "finishedAt": now}
    for name in ("Ready", "ContainersReady"):
        pod = with_condition(pod, name, "False", now, reason="PodCompleted")
    pod = with_condition(pod, "PodReadyToStartContainers", "False", now)
    rows = [
        {**row, "ready": False, "started": False, "state": {"terminated": ended}}
        for row in status.get("containerStatuses") or ()
    ]
    return {**status_of(pod), "phase": "Succeeded", "containerStatuses": rows}


def with_condition(pod: Json, name: str, status: str, now: str, **why: str) -> Json:
    """The Pod with a condition as given; the Pod itself when it has it already."""
    rows = status_of(pod).get("conditions") or []
    found = next((row for row in rows if row.get("type") == name), None)
    said = {key: (found or {}).get(key) for key in ("status", "reason", "message") if (found or {}).get(key)}
    if found and said == {"status": status, **why}:
        return pod
    since = (found or {}).get("lastTransitionTime") if (found or {}).get("status") == status else now
    row = {"type": name, "status": status, "lastTransitionTime": since or now, **why}
    listed = [row if each is found else each for each in rows] if found else [*rows, row]
    return {**pod, "status": {**status_of(pod), "conditions": listed}}


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
