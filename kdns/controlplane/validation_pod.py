"""The rules of Pods, Namespaces, Nodes and Events that simulated workloads can break (kube-apiserver: ValidatePod…)."""

from __future__ import annotations

from kdns.controlplane import formats
from kdns.controlplane.causes import duplicate, each, forbidden, invalid_value, required, unsupported
from kdns.controlplane.kinds import Json
from kdns.controlplane.status import Cause
from kdns.controlplane.validation import validate_meta, validate_meta_update
from kdns.controlplane.validation_container import validate_container
from kdns.controlplane.validation_probe import forbid_calls, validate_calls

_RESTARTS = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_CHANGEABLE = frozenset({"activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates"})
FROZEN = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_pod(pod: Json, old: Json | None = None) -> list[Cause]:
    """Every broken rule of a Pod; on update almost all of its spec is for life."""
    causes = validate_meta_update(old, pod) if old else []
    causes += validate_meta(pod, formats.dns_subdomain)
    spec = pod.get("spec") or {}
    causes += validate_pod_spec("spec", spec)
    if old:
        return causes + _changes(spec, old.get("spec") or {})
    return causes + validate_pod_status(pod)


def validate_pod_spec(path: str, spec: Json) -> list[Cause]:
    """The spec of a Pod, also of one in a template at `path`."""
    causes, volumes = _volumes(f"{path}.volumes", spec.get("volumes") or [])
    names: set[str] = set()
    if not spec.get("containers"):
        causes.append(required(f"{path}.containers"))
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or []):
            at, name = f"{path}.{field}[{index}]", container.get("name") or ""
            causes += validate_container(at, container, volumes)
            causes += [duplicate(f"{at}.name", name)] if name in names else []
            names |= {name} - {""}
            if field == "containers" or container.get("restartPolicy") == "Always":
                causes += validate_calls(at, container, spec.get("terminationGracePeriodSeconds"))
            else:
                causes += forbid_calls(at, container)
    for field, values in (("restartPolicy", _RESTARTS), ("dnsPolicy", _DNS_POLICIES)):
        if spec.get(field) not in values:
            causes.append(unsupported(f"{path}.{field}", spec.get(field), values))
    for field, rule in (
        ("hostname", formats.dns_label),
        ("subdomain", formats.dns_label),
        ("nodeName", formats.dns_subdomain),
    ):
        if value := spec.get(field):
            causes += each(f"{path}.{field}", value, rule(value))
    return causes


def validate_pod_status(pod: Json) -> list[Cause]:
    """Addresses of a Pod's status that are none."""
    status = pod.get("status") or {}
    rows = enumerate(status.get("podIPs") or [])
    addresses = [(f"status.podIPs[{index}].ip", row.get("ip")) for index, row in rows]
    addresses += [("status.podIP", status.get("podIP"))]
    return [cause for field, found in addresses if found for cause in each(field, found, formats.ip_problems(found))]


def _volumes(path: str, volumes: list[Json]) -> tuple[list[Cause], set[str]]:
    """What is wrong with the names of a Pod's volumes, and the names."""
    causes: list[Cause] = []
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        where, name = f"{path}[{index}].name", volume.get("name") or ""
        causes += each(where, name, formats.dns_label(name)) if name else [required(where)]
        causes += [duplicate(where, name)] if name in names else []
        names |= {name} - {""}
    return causes, names


def _changes(spec: Json, stored: Json) -> list[Cause]:
    """What must stay: compared without images and the few fields that may change.

    A node may be given once: that is how binding looks to a client that writes the whole Pod.
    """
    return [] if _fixed(spec, stored) == _fixed(stored, stored) else [forbidden("spec", FROZEN)]


def _fixed(spec: Json, stored: Json) -> Json:
    fixed = {key: value for key, value in spec.items() if key not in _CHANGEABLE and value not in (None, "", [])}
    for field in ("initContainers", "containers"):
        if field in fixed:
            fixed[field] = [{**container, "image": ""} for container in fixed[field]]
    if not stored.get("nodeName"):
        fixed.pop("nodeName", None)
    return fixed


def validate_namespace(obj: Json, old: Json | None = None) -> list[Cause]:
    """A Namespace's name is a DNS label."""
    causes = validate_meta_update(old, obj) if old else []
    return causes + validate_meta(obj, formats.dns_label, namespaced=False)


def validate_event(obj: Json, old: Json | None = None) -> list[Cause]:
    """An Event is in the namespace of the object that it is about, or in `default` for cluster-scoped objects."""
    causes = validate_meta_update(old, obj) if old else []
    causes += validate_meta(obj, formats.dns_subdomain)
    about, mine = (obj.get("involvedObject") or {}).get("namespace") or "", obj["metadata"].get("namespace")
    if (about or "default") != mine and not (not about and mine in {"default", "kube-system"}):
        causes.append(invalid_value("involvedObject.namespace", about, "does not match event.namespace"))
    return causes
