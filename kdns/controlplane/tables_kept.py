"""Tables of the kinds that applications bring along (kube-apiserver: pkg/printers/internalversion)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kdns.controlplane.ages import human_duration, seconds_of, since
from kdns.controlplane.kinds import (
    CLAIM,
    CONFIG_MAP,
    CRON_JOB,
    DISRUPTION_BUDGET,
    INGRESS,
    INGRESS_CLASS,
    JOB,
    LEASE,
    SECRET,
    SERVICE_ACCOUNT,
    VOLUME,
    Json,
    Kind,
)
from kdns.controlplane.tables_cells import NONE, age, name
from kdns.controlplane.tables_printer import AGE, NAME, Column, Printer
from kdns.controlplane.views import selector_text

_UNSET = "<unset>"
_HOSTS_SHOWN = 3
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_JOB_ENDS = {"Complete": "Complete", "Failed": "Failed"}
_JOB_STATES = {"Suspended": "Suspended", "FailureTarget": "FailureTarget", "SuccessCriteriaMet": "SuccessCriteriaMet"}


def config_map_cells(obj: Json, now_s: float) -> list[Any]:
    """Name, number of keys, age."""
    return [name(obj), len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), age(obj, now_s)]


def secret_cells(obj: Json, now_s: float) -> list[Any]:
    """Name, type, number of keys, age."""
    return [name(obj), obj.get("type", ""), len(obj.get("data") or {}), age(obj, now_s)]


def service_account_cells(obj: Json, now_s: float) -> list[Any]:
    """Name, number of Secrets, age."""
    return [name(obj), len(obj.get("secrets") or ()), age(obj, now_s)]


def _phase(obj: Json) -> str:
    going = obj.get("metadata", {}).get("deletionTimestamp")
    return "Terminating" if going else str((obj.get("status") or {}).get("phase", ""))


def _modes(modes: list[str] | None) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in (modes or ()))


def claim_cells(obj: Json, now_s: float) -> list[Any]:
    """Name, phase, volume and what it offers, classes, age, mode."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    bound = bool(spec.get("volumeName"))
    return [
        name(obj),
        _phase(obj),
        spec.get("volumeName", ""),
        str((status.get("capacity") or {}).get("storage", "")) if bound else "",
        _modes(status.get("accessModes")) if bound else "",
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or _UNSET,
        age(obj, now_s),
        spec.get("volumeMode") or _UNSET,
    ]


def volume_cells(obj: Json, now_s: float) -> list[Any]:
    """Name, what it offers, reclaim policy, phase, claim, classes, reason, age, mode."""
    spec, claim = obj.get("spec") or {}, (obj.get("spec") or {}).get("claimRef")
    return [
        name(obj),
        str((spec.get("capacity") or {}).get("storage", "")),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or _UNSET,
        (obj.get("status") or {}).get("reason", ""),
        age(obj, now_s),
        spec.get("volumeMode") or _UNSET,
    ]


def job_cells(obj: Json, now_s: float) -> list[Any]:
    """Name, state, completions, duration, age; containers, images, selector."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    succeeded, most = status.get("succeeded") or 0, spec.get("parallelism") or 0
    if spec.get("completions") is not None:
        completions = f"{succeeded}/{spec['completions']}"
    else:
        completions = f"{succeeded}/1 of {most}" if most > 1 else f"{succeeded}/1"
    started, ended = seconds_of(status.get("startTime")), seconds_of(status.get("completionTime"))
    duration = "" if started is None else human_duration((now_s if ended is None else ended) - started)
    return [name(obj), _job_state(obj), completions, duration, age(obj, now_s), *_work(spec)]


def _job_state(obj: Json) -> str:
    rows = (obj.get("status") or {}).get("conditions") or ()
    held = {row.get("type") for row in rows if row.get("status") == "True"}
    found = [shown for kind, shown in _JOB_ENDS.items() if kind in held]
    if not found and obj.get("metadata", {}).get("deletionTimestamp"):
        return "Terminating"
    found += [shown for kind, shown in _JOB_STATES.items() if kind in held]
    return found[0] if found else "Running"


def _work(spec: Json) -> list[str]:
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
    named = [",".join(str(each.get(field) or "") for each in containers) for field in ("name", "image")]
    return [*named, selector_text(spec["selector"]) if spec.get("selector") else NONE]


def cron_job_cells(obj: Json, now_s: float) -> list[Any]:
    """Name, schedule, zone, whether it is suspended, running Jobs, last start, age; containers, images, selector."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    last = status.get("lastScheduleTime")
    return [
        name(obj),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        str(bool(spec.get("suspend"))),
        len(status.get("active") or ()),
        since(last, now_s) if last else NONE,
        age(obj, now_s),
        *_work((spec.get("jobTemplate") or {}).get("spec") or {}),
    ]


def ingress_cells(obj: Json, now_s: float) -> list[Any]:
    """Name, class, hosts, addresses, ports, age."""
    spec = obj.get("spec") or {}
    rules = spec.get("rules") or ()
    hosts = [rule["host"] for rule in rules[:_HOSTS_SHOWN] if rule.get("host")]
    more = f" + {len(rules) - _HOSTS_SHOWN} more..." if len(hosts) == _HOSTS_SHOWN < len(rules) else ""
    points = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return [
        name(obj),
        spec.get("ingressClassName") or NONE,
        (",".join(hosts) or "*") + more,
        ",".join(sorted({each.get("ip") or each.get("hostname") or "" for each in points} - {""})),
        "80, 443" if spec.get("tls") else "80",
        age(obj, now_s),
    ]


def ingress_class_cells(obj: Json, now_s: float) -> list[Any]:
    """Name, controller, parameters, age."""
    spec = obj.get("spec") or {}
    given, shown = spec.get("parameters"), NONE
    if given:
        kind = ".".join(filter(None, (given.get("kind"), given.get("apiGroup"))))
        shown = f"{kind}/{given.get('name', '')}"
    return [name(obj), spec.get("controller", ""), shown, age(obj, now_s)]


def lease_cells(obj: Json, now_s: float) -> list[Any]:
    """Name, holder, age."""
    return [name(obj), (obj.get("spec") or {}).get("holderIdentity") or "", age(obj, now_s)]


def disruption_budget_cells(obj: Json, now_s: float) -> list[Any]:
    """Name, limits, allowed disruptions, age."""
    spec = obj.get("spec") or {}
    limits = [
        str(spec[field]) if spec.get(field) is not None else "N/A" for field in ("minAvailable", "maxUnavailable")
    ]
    return [name(obj), *limits, (obj.get("status") or {}).get("disruptionsAllowed") or 0, age(obj, now_s)]


_WORK = (
    Column("Containers", "Names of the Pods' containers.", wide=True),
    Column("Images", "Images of the Pods' containers.", wide=True),
)

KEPT_PRINTERS: Final[Mapping[Kind, Printer]] = {
    CONFIG_MAP: Printer((NAME, Column("Data", "How many keys it has."), AGE), config_map_cells),
    SECRET: Printer((NAME, Column("Type", "type"), Column("Data", "How many keys it has."), AGE), secret_cells),
    SERVICE_ACCOUNT: Printer((NAME, Column("Secrets", "secrets"), AGE), service_account_cells),
    CLAIM: Printer(
        (
            NAME,
            Column("Status", "status.phase"),
            Column("Volume", "spec.volumeName"),
            Column("Capacity", "status.capacity"),
            Column("Access Modes", "status.accessModes"),
            Column("StorageClass", "spec.storageClassName"),
            Column("VolumeAttributesClass", "spec.volumeAttributesClassName"),
            AGE,
            Column("VolumeMode", "spec.volumeMode", wide=True),
        ),
        claim_cells,
    ),
    VOLUME: Printer(
        (
            NAME,
            Column("Capacity", "spec.capacity"),
            Column("Access Modes", "spec.accessModes"),
            Column("Reclaim Policy", "spec.persistentVolumeReclaimPolicy"),
            Column("Status", "status.phase"),
            Column("Claim", "spec.claimRef"),
            Column("StorageClass", "spec.storageClassName"),
            Column("VolumeAttributesClass", "spec.volumeAttributesClassName"),
            Column("Reason", "status.reason"),
            AGE,
            Column("VolumeMode", "spec.volumeMode", wide=True),
        ),
        volume_cells,
    ),
    JOB: Printer(
        (
            NAME,
            Column("Status", "What the Job is doing, in one word."),
            Column("Completions", "Pods that succeeded, of all that must."),
            Column("Duration", "How long the Job ran, or has been running."),
            AGE,
            *_WORK,
            Column("Selector", "spec.selector", wide=True),
        ),
        job_cells,
    ),
    CRON_JOB: Printer(
        (
            NAME,
            Column("Schedule", "spec.schedule"),
            Column("Timezone", "spec.timeZone"),
            Column("Suspend", "spec.suspend"),
            Column("Active", "status.active"),
            Column("Last Schedule", "status.lastScheduleTime"),
            AGE,
            *_WORK,
            Column("Selector", "spec.jobTemplate.spec.selector", wide=True),
        ),
        cron_job_cells,
    ),
    INGRESS: Printer(
        (
            NAME,
            Column("Class", "spec.ingressClassName"),
            Column("Hosts", "Hosts that the rules are for."),
            Column("Address", "status.loadBalancer"),
            Column("Ports", "Ports on which requests arrive."),
            AGE,
        ),
        ingress_cells,
    ),
    INGRESS_CLASS: Printer(
        (NAME, Column("Controller", "spec.controller"), Column("Parameters", "spec.parameters"), AGE),
        ingress_class_cells,
    ),
    DISRUPTION_BUDGET: Printer(
        (
            NAME,
            Column("Min Available", "spec.minAvailable"),
            Column("Max Unavailable", "spec.maxUnavailable"),
            Column("Allowed Disruptions", "status.disruptionsAllowed", type="integer"),
            AGE,
        ),
        disruption_budget_cells,
    ),
    LEASE: Printer((NAME, Column("Holder", "spec.holderIdentity"), AGE), lease_cells),
}
