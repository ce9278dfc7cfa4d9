"""Pods: the columns that `kubectl get pods` shows, and the strategy.

The status in one word has the precedence of kube-apiserver's printer: a reason of the Pod, then of the first unfinished
init container, then of the containers, then deletion.

Differs: a Pod whose status has podIP but no podIPs shows it; kube-apiserver fills in podIPs when it stores a status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kdns.controlplane.apimachinery.conditions import condition_of, is_true
from kdns.controlplane.apimachinery.human_duration import seconds_of, since
from kdns.controlplane.apimachinery.kinds import POD, Json, Kind
from kdns.controlplane.kinds.columns import AGE, NAME, NONE, Column, Printer, age, name
from kdns.controlplane.kinds.pod.defaults import (
    admitted,
    counted_pod,
    default_pod,
    first_pod_status,
    pod_with_status,
)
from kdns.controlplane.kinds.pod.pod import grace_period_s
from kdns.controlplane.kinds.pod.validation import validate_pod, validate_pod_status
from kdns.controlplane.kinds.strategy import COMMON, DeleteStrategy, Strategy, SubresourceStrategy
from kdns.controlplane.storage.field_selectors import FieldLabels, fields, flag, no_value


@dataclass(slots=True)
class _Count:
    """Sums over containers."""

    ready: int = 0
    restarts: int = 0
    last_restart: str = ""

    def restarted(self, status: Json) -> None:
        self.restarts += status.get("restartCount", 0)
        ended = status.get("lastState", {}).get("terminated", {}).get("finishedAt") or ""
        if (seconds_of(ended) or 0.0) > (seconds_of(self.last_restart) or 0.0):
            self.last_restart = ended


def pod_cells(pod: Json, now_s: float) -> list[Any]:
    spec, status = pod.get("spec", {}), pod.get("status", {})
    initial = spec.get("initContainers", ())
    sidecars = {container["name"] for container in initial if container.get("restartPolicy") == "Always"}
    reason, count = _summary(pod, sidecars)
    if pod.get("metadata", {}).get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in {"Succeeded", "Failed"}:
            reason = "Terminating"
    restarts = str(count.restarts)
    if count.restarts and count.last_restart:
        restarts += f" ({since(count.last_restart, now_s)} ago)"
    addresses = status.get("podIPs") or [{"ip": status.get("podIP")}]
    return [
        name(pod),
        f"{count.ready}/{len(spec.get('containers', ())) + len(sidecars)}",
        reason,
        restarts,
        age(pod, now_s),
        addresses[0].get("ip") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _readiness_gates(pod),
    ]


def _summary(pod: Json, sidecars: set[str]) -> tuple[str, _Count]:
    spec, status = pod.get("spec", {}), pod.get("status", {})
    reason: str = status.get("reason") or status.get("phase") or ""
    if (condition_of(pod, "PodScheduled") or {}).get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    count, of_sidecars = _Count(), _Count()
    waits_for = ""
    for index, container in enumerate(status.get("initContainerStatuses", ())):
        is_sidecar = container.get("name") in sidecars
        count.restarted(container)
        if is_sidecar:
            of_sidecars.restarted(container)
        state = container.get("state", {})
        if "terminated" in state and not state["terminated"].get("exitCode"):
            continue
        if is_sidecar and container.get("started"):
            count.ready += bool(container.get("ready"))
            continue
        waits_for = _initializing(state, index, len(spec.get("initContainers", ())))
        break
    if waits_for and not is_true(pod, "Initialized"):
        return waits_for, count
    of_sidecars.ready = count.ready
    return _running(waits_for or reason, pod, of_sidecars), of_sidecars


def _initializing(state: Json, index: int, total: int) -> str:
    if "terminated" in state:
        return f"Init:{_ended(state['terminated'])}"
    waiting = state.get("waiting", {}).get("reason") or ""
    if waiting and waiting != "PodInitializing":
        return f"Init:{waiting}"
    return f"Init:{index}/{total}"


def _ended(terminated: Json) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _running(reason: str, pod: Json, count: _Count) -> str:
    """The status of a Pod by its containers; the first container with a reason wins."""
    runs = False
    for container in reversed(pod.get("status", {}).get("containerStatuses", ())):
        state = container.get("state", {})
        count.restarted(container)
        if state.get("waiting", {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif "terminated" in state:
            reason = _ended(state["terminated"])
        elif container.get("ready") and "running" in state:
            runs = True
            count.ready += 1
    if reason == "Completed" and runs:
        return "Running" if is_true(pod, "Ready") else "NotReady"
    return reason


def _readiness_gates(pod: Json) -> str:
    gates = pod.get("spec", {}).get("readinessGates", ())
    true = sum(is_true(pod, gate.get("conditionType", "")) for gate in gates)
    return f"{true}/{len(gates)}" if gates else NONE


def pod_conditions(pod: Json) -> list[Json]:
    """Marks the row of a finished Pod, which kubectl dims or hides."""
    ended = {"Succeeded": "The pod has ended and succeeded.", "Failed": "The pod has ended and failed."}
    phase = pod.get("status", {}).get("phase", "")
    if phase not in ended:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": ended[phase]}]


_PODS: Final = Printer(
    (
        NAME,
        Column("Ready", "Containers that are ready, of all containers."),
        Column("Status", "What the Pod is doing, in one word."),
        Column("Restarts", "How often its containers were restarted, and when for the last time."),
        AGE,
        Column("IP", "status.podIP", priority=1),
        Column("Node", "spec.nodeName", priority=1),
        Column("Nominated Node", "status.nominatedNodeName", priority=1),
        Column("Readiness Gates", "spec.readinessGates", priority=1),
    ),
    pod_cells,
    pod_conditions,
)


def _prepare_pod(new: Json, old: Json | None) -> Json:
    pod = admitted(new, old)
    return pod if old else {**pod, "status": first_pod_status(pod)}


STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    POD: Strategy(
        validate_pod,
        _PODS,
        defaults=default_pod,
        prepare=_prepare_pod,
        subresources={"status": SubresourceStrategy(validate_pod_status, pod_with_status)},
        generation=counted_pod,
        field_labels=FieldLabels(
            {
                **COMMON,
                **fields("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
                **fields("status.phase", "status.podIP", "status.nominatedNodeName"),
                "spec.host": fields("spec.nodeName")["spec.nodeName"],
                "spec.hostNetwork": flag("spec.hostNetwork"),
                "status.podIPs": no_value,
            }
        ),
        delete=DeleteStrategy(returns_object=True, grace_s=grace_period_s),
    ),
}
