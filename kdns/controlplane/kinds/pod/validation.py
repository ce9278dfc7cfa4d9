"""The rules of Pods (kube-apiserver: ValidatePod…), of their containers, and of the probes and hooks in them.

Differs: what only a kubelet would notice is free, such as the units of extended resources, subPaths and the numbers of
probes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.field_errors import (
    duplicate,
    forbidden,
    frozen,
    invalid_value,
    invalid_values,
    not_found,
    required,
    unsupported,
)
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.apimachinery.quantities import canonical, quantity
from kdns.controlplane.kinds.service.validation import validate_protocol
from kdns.controlplane.kinds.validation import validate_metadata
from kdns.net import parse_address

_RESTARTS = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_CHANGEABLE = frozenset({"activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates"})
FROZEN = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_WITH_PORT = ("httpGet", "tcpSocket", "grpc")
_HANDLERS = ("exec", *_WITH_PORT, "sleep")


def validate_pod(pod: Json, old: Json | None = None) -> list[Cause]:
    """Returns all violated rules of a Pod; on update almost all of its spec is immutable."""
    causes = validate_metadata(pod, old)
    spec = pod.get("spec") or {}
    causes += validate_pod_spec("spec", spec)
    if old:
        return causes + _changes(spec, old.get("spec") or {})
    if spec.get("ephemeralContainers"):
        causes.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    return causes + validate_pod_status(pod)


def validate_pod_spec(path: str, spec: Json) -> list[Cause]:
    causes, volumes = _volumes(f"{path}.volumes", spec.get("volumes") or [])
    names: set[str] = set()
    if not spec.get("containers"):
        causes.append(required(f"{path}.containers"))
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or []):
            at, name = f"{path}.{field}[{index}]", container.get("name") or ""
            causes += _container(at, container, volumes)
            causes += [duplicate(f"{at}.name", name)] if name in names else []
            names |= {name} - {""}
    for field, values in (("restartPolicy", _RESTARTS), ("dnsPolicy", _DNS_POLICIES)):
        if spec.get(field) not in values:
            causes.append(unsupported(f"{path}.{field}", spec.get(field), values))
    for field, rule in (
        ("hostname", formats.dns_label),
        ("subdomain", formats.dns_label),
        ("nodeName", formats.dns_subdomain),
    ):
        if value := spec.get(field):
            causes += invalid_values(f"{path}.{field}", value, rule(value))
    return causes


def validate_pod_status(pod: Json, _old: Json | None = None) -> list[Cause]:
    """Checks that a Pod has at most one address of each family."""
    status = pod.get("status") or {}
    one = [{"ip": status["podIP"]}] if status.get("podIP") else []
    rows: list[Json] = status.get("podIPs") or one
    causes: list[Cause] = []
    for index, row in enumerate(rows):
        address = row.get("ip") or ""
        causes += invalid_values(f"status.podIPs[{index}]", address, formats.ip_problems(address))
    families = sorted(found.version for row in rows if (found := parse_address(row.get("ip") or "")))
    if len(rows) > 1 and families != [4, 6]:
        shown = [{"IP": row.get("ip") or ""} for row in rows]
        causes.append(invalid_value("status.podIPs", shown, "may specify no more than one IP for each IP family"))
    return causes


def _volumes(path: str, volumes: list[Json]) -> tuple[list[Cause], set[str]]:
    causes: list[Cause] = []
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        where, name = f"{path}[{index}].name", volume.get("name") or ""
        causes += invalid_values(where, name, formats.dns_label(name)) if name else [required(where)]
        causes += [duplicate(where, name)] if name in names else []
        names |= {name} - {""}
    return causes, names


def _changes(spec: Json, stored: Json) -> list[Cause]:
    """Checks immutable fields: all except images and a few others.

    nodeName may be set once: so clients bind a Pod by writing it.
    """
    return [] if _fixed(spec, stored) == _fixed(stored, stored) else [frozen("spec", FROZEN)]


def _fixed(spec: Json, stored: Json) -> Json:
    fixed = {key: value for key, value in spec.items() if key not in _CHANGEABLE and value not in (None, "", [])}
    for field in ("initContainers", "containers"):
        if field in fixed:
            fixed[field] = [{**container, "image": ""} for container in fixed[field]]
    if not stored.get("nodeName"):
        fixed.pop("nodeName", None)
    return fixed


def _container(path: str, container: Json, volumes: Collection[str]) -> list[Cause]:
    name, image, policy = (container.get(field) or "" for field in ("name", "image", "imagePullPolicy"))
    causes = invalid_values(f"{path}.name", name, formats.dns_label(name)) if name else [required(f"{path}.name")]
    if not image:
        causes.append(required(f"{path}.image"))
    elif image != image.strip():
        causes.append(invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace"))
    port_names: set[str] = set()
    for index, port in enumerate(container.get("ports") or []):
        causes += _container_port(f"{path}.ports[{index}]", port, port_names)
    for index, variable in enumerate(container.get("env") or []):
        if not variable.get("name"):
            causes.append(required(f"{path}.env[{index}].name"))
    causes += _mounts(f"{path}.volumeMounts", container.get("volumeMounts") or [], volumes)
    if policy not in _PULL_POLICIES:
        causes.append(unsupported(f"{path}.imagePullPolicy", policy, _PULL_POLICIES))
    causes += _resources(f"{path}.resources", container.get("resources") or {})
    for hook in ("postStart", "preStop"):
        causes += _handler(f"{path}.lifecycle.{hook}", (container.get("lifecycle") or {}).get(hook))
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        causes += _handler(f"{path}.{probe}", container.get(probe))
    return causes


def _container_port(path: str, port: Json, names: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    if name := port.get("name"):
        wrong = formats.port_name(name)
        causes += invalid_values(f"{path}.name", name, wrong)
        causes += [duplicate(f"{path}.name", name)] if not wrong and name in names else []
        names.add(name)
    if not port.get("containerPort"):
        causes.append(required(f"{path}.containerPort"))
    for field in ("containerPort", "hostPort"):
        if number := port.get(field):
            causes += invalid_values(f"{path}.{field}", number, formats.port_number(number))
    return causes + validate_protocol(f"{path}.protocol", port.get("protocol"))


def _mounts(path: str, mounts: list[Json], volumes: Collection[str]) -> Iterator[Cause]:
    taken: set[str] = set()
    for index, mount in enumerate(mounts):
        at, name, place = f"{path}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{at}.name")
        if name not in volumes:
            yield not_found(f"{at}.name", name)
        if not place:
            yield required(f"{at}.mountPath")
        if place in taken:
            yield invalid_value(f"{at}.mountPath", place, "must be unique")
        taken.add(place)


def _resources(path: str, resources: Json) -> Iterator[Cause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if (quantity(amount) or 0) < 0:
                yield invalid_value(f"{path}.{field}[{name}]", canonical(amount), "must be greater than or equal to 0")
    for name, amount in requests.items():
        if name in limits and (quantity(amount) or 0) > (quantity(limits[name]) or 0):
            detail = f"must be less than or equal to {name} limit of {canonical(limits[name])}"
            yield invalid_value(f"{path}.requests", canonical(amount), detail)


def _handler(path: str, handler: Json | None) -> Iterator[Cause]:
    """Checks that a probe or hook has exactly one handler, and its port."""
    if handler is None:
        return
    first, *others = [name for name in _HANDLERS if handler.get(name) is not None] or [""]
    if not first:
        yield required(path, "must specify a handler type")
    elif first in _WITH_PORT:
        port: Any = handler[first].get("port") or 0
        rule = formats.port_name if isinstance(port, str) else formats.port_number
        yield from invalid_values(f"{path}.{first}.port", port, rule(port))
    yield from (forbidden(f"{path}.{name}", "may not specify more than 1 handler type") for name in others)
