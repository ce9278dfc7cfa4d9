"""The rules of Pods, Namespaces, Nodes and Events that simulated workloads can break (kube-apiserver: ValidatePod…)."""

from __future__ import annotations

import re

from kdns.controlplane import formats
from kdns.controlplane.causes import duplicate, each, forbidden, invalid_value, required, unsupported
from kdns.controlplane.kinds import Json
from kdns.controlplane.status import Cause
from kdns.controlplane.validation import validate_meta, validate_meta_update
from kdns.controlplane.validation_service import validate_protocol

_RESTARTS = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_POLICIES = ("Always", "IfNotPresent", "Never")
_ENV_NAME = re.compile(r"[ -<>-~]+")
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
    causes = [] if spec.get("containers") else [required(f"{path}.containers")]
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or []):
            causes += _container(f"{path}.{field}[{index}]", container, names)
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
    return causes + _volumes(path, spec)


def validate_pod_status(pod: Json) -> list[Cause]:
    """Addresses of a Pod's status that are none."""
    status = pod.get("status") or {}
    rows = enumerate(status.get("podIPs") or [])
    addresses = [(f"status.podIPs[{index}].ip", row.get("ip")) for index, row in rows]
    addresses += [("status.podIP", status.get("podIP"))]
    return [cause for field, found in addresses if found for cause in each(field, found, formats.ip_problems(found))]


def _container(path: str, container: Json, names: set[str]) -> list[Cause]:
    causes, name = [], container.get("name") or ""
    if name:
        causes += each(f"{path}.name", name, formats.dns_label(name))
        causes += [duplicate(f"{path}.name", name)] if name in names else []
        names.add(name)
    else:
        causes.append(required(f"{path}.name"))
    image = container.get("image") or ""
    if not image:
        causes.append(required(f"{path}.image"))
    elif image != image.strip():
        causes.append(invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace"))
    if container.get("imagePullPolicy") not in _POLICIES:
        causes.append(unsupported(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), _POLICIES))
    port_names: set[str] = set()
    for index, port in enumerate(container.get("ports") or []):
        causes += _port(f"{path}.ports[{index}]", port, port_names)
    for index, variable in enumerate(container.get("env") or []):
        causes += _variable(f"{path}.env[{index}]", variable)
    return causes


def _port(path: str, port: Json, names: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    if name := port.get("name"):
        wrong = formats.port_name(name)
        causes += each(f"{path}.name", name, wrong)
        causes += [duplicate(f"{path}.name", name)] if not wrong and name in names else []
        names.add(name)
    if not port.get("containerPort"):
        causes.append(required(f"{path}.containerPort"))
    else:
        causes += each(f"{path}.containerPort", port["containerPort"], formats.port_number(port["containerPort"]))
    if port.get("hostPort"):
        causes += each(f"{path}.hostPort", port["hostPort"], formats.port_number(port["hostPort"]))
    return causes + validate_protocol(f"{path}.protocol", port.get("protocol"))


def _variable(path: str, variable: Json) -> list[Cause]:
    name = variable.get("name") or ""
    if not name:
        return [required(f"{path}.name")]
    if not _ENV_NAME.fullmatch(name):
        return [invalid_value(f"{path}.name", name, "a valid environment variable name is printable ASCII without '='")]
    both = variable.get("value") and variable.get("valueFrom")
    return [invalid_value(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")] if both else []


def _volumes(at: str, spec: Json) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or []):
        path, name = f"{at}.volumes[{index}].name", volume.get("name") or ""
        causes += each(path, name, formats.dns_label(name)) if name else [required(path)]
        causes += [duplicate(path, name)] if name in names else []
        names.add(name)
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or []):
            for number, mount in enumerate(container.get("volumeMounts") or []):
                if mount.get("name") not in names:
                    where = f"{at}.{field}[{index}].volumeMounts[{number}].name"
                    causes.append(Cause(where, f'Not found: "{mount.get("name")}"', ""))
    return causes


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
