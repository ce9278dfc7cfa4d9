"""The rules of Pods (kube-apiserver: ValidatePod…), of their containers, and of the probes and hooks in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
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
_ENV_NAME = re.compile(r"[ -<>-~]+")
_HUGE_PAGES = "hugepages-"
_OF_CONTAINERS = frozenset({"cpu", "memory", "ephemeral-storage"})
_HOOKS = ("postStart", "preStop")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_SCHEMES = ("HTTP", "HTTPS")
_NOT_HERE = "may not be set for init containers without restartPolicy=Always"


def validate_pod(pod: Json, old: Json | None = None) -> list[Cause]:
    """On update almost all of the spec is immutable."""
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
            if field == "containers" or container.get("restartPolicy") == "Always":
                causes += _calls(at, container, spec.get("terminationGracePeriodSeconds"))
            else:
                causes += _forbid_calls(at, container)
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
    """At most one address per family."""
    status = pod.get("status") or {}
    rows: list[Json] = status.get("podIPs") or ([{"ip": status["podIP"]}] if status.get("podIP") else [])
    causes: list[Cause] = []
    for index, row in enumerate(rows):
        address = row.get("ip") or ""
        causes += invalid_values(f"status.podIPs[{index}]", address, formats.ip_problems(address))
    families = sorted(address.version for row in rows if (address := parse_address(row.get("ip") or "")))
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
    """Everything is immutable but images and a few other fields.

    nodeName may be set once, which binds the Pod.
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
        causes += _variable(f"{path}.env[{index}]", variable)
    causes += _mounts(f"{path}.volumeMounts", container.get("volumeMounts") or [], volumes)
    if policy not in _PULL_POLICIES:
        causes.append(unsupported(f"{path}.imagePullPolicy", policy, _PULL_POLICIES))
    return [*causes, *_resources(f"{path}.resources", container.get("resources") or {})]


def _container_port(path: str, port: Json, names: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    if name := port.get("name"):
        wrong = formats.port_name(name)
        causes += invalid_values(f"{path}.name", name, wrong)
        causes += [duplicate(f"{path}.name", name)] if not wrong and name in names else []
        names.add(name)
    if not port.get("containerPort"):
        causes.append(required(f"{path}.containerPort"))
    else:
        causes += invalid_values(
            f"{path}.containerPort", port["containerPort"], formats.port_number(port["containerPort"])
        )
    if port.get("hostPort"):
        causes += invalid_values(f"{path}.hostPort", port["hostPort"], formats.port_number(port["hostPort"]))
    return causes + validate_protocol(f"{path}.protocol", port.get("protocol"))


def _variable(path: str, variable: Json) -> list[Cause]:
    name = variable.get("name") or ""
    if not name:
        return [required(f"{path}.name")]
    if not _ENV_NAME.fullmatch(name):
        return [invalid_value(f"{path}.name", name, "a valid environment variable name is printable ASCII without '='")]
    both = variable.get("value") and variable.get("valueFrom")
    return [invalid_value(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")] if both else []


def _mounts(path: str, mounts: list[Json], volumes: Collection[str]) -> list[Cause]:
    """The path of a subPath's cause lacks the index of the mount, as in kube-apiserver."""
    causes: list[Cause] = []
    taken: set[str] = set()
    for index, mount in enumerate(mounts):
        at, name, mount_path = f"{path}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        causes += [] if name else [required(f"{at}.name")]
        causes += [] if name in volumes else [not_found(f"{at}.name", name)]
        causes += [] if mount_path else [required(f"{at}.mountPath")]
        causes += [invalid_value(f"{at}.mountPath", mount_path, "must be unique")] if mount_path in taken else []
        taken.add(mount_path)
        inside = mount.get("subPath") or ""
        causes += [invalid_value(f"{path}.subPath", inside, "must be a relative path")] if inside[:1] == "/" else []
        if ".." in inside.split("/"):
            causes.append(invalid_value(f"{path}.subPath", inside, "must not contain '..'"))
    return causes


def _resources(path: str, resources: Json) -> Iterator[Cause]:
    """Limits and requests name known resources, and no request exceeds its limit.

    Resources that cannot be overcommitted (huge pages, device plugins) have equal requests and limits.
    """
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, amount in limits.items():
        yield from _amount(f"{path}.limits[{name}]", name, amount)
    for name, amount in requests.items():
        yield from _amount(f"{path}.requests[{name}]", name, amount)
        requested, most = quantity(amount) or 0, quantity(limits.get(name, "")) or 0
        exact = _is_extended(name) or name.startswith(_HUGE_PAGES)
        if name in limits and (requested > most or (exact and requested != most)):
            relation = "must be equal to" if exact else "must be less than or equal to"
            detail = f"{relation} {name} limit of {canonical(limits[name])}"
            yield invalid_value(f"{path}.requests", canonical(amount), detail)
        elif exact and name not in limits:
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")


def _amount(path: str, name: str, amount: object) -> Iterator[Cause]:
    wrong = formats.qualified_name(name)
    yield from invalid_values(path, name, wrong)
    if "/" not in name and not name.startswith(_HUGE_PAGES) and name not in _OF_CONTAINERS:
        if not wrong:
            yield invalid_value(path, name, "must be a standard resource type or fully qualified")
        yield invalid_value(path, name, "must be a standard resource for containers")
    number = quantity(amount) or 0
    if number < 0:
        yield invalid_value(path, canonical(amount), "must be greater than or equal to 0")
    if _is_extended(name) and number.denominator != 1:
        yield invalid_value(path, canonical(amount), "must be an integer")


def _is_extended(name: str) -> bool:
    """A vendor's resource, such as GPUs."""
    return "/" in name and "kubernetes.io/" not in name


def _calls(path: str, container: Json, grace_s: int | None) -> list[Cause]:
    """Hooks and probes of a container; `grace_s` is the grace period of its Pod."""
    hooks = container.get("lifecycle") or {}
    causes = []
    for hook in _HOOKS:
        if hooks.get(hook) is not None:
            causes += _handler(f"{path}.lifecycle.{hook}", hooks[hook], grace_s)
    for name in _PROBES:
        if container.get(name) is not None:
            causes += _probe(f"{path}.{name}", container[name], ready=name == "readinessProbe")
    return causes


def _forbid_calls(path: str, container: Json) -> list[Cause]:
    """Only sidecars among init containers may have hooks and probes."""
    return [
        forbidden(f"{path}.{name}", _NOT_HERE) for name in ("lifecycle", *_PROBES) if container.get(name) is not None
    ]


def _probe(path: str, probe: Json, *, ready: bool) -> list[Cause]:
    """Liveness and startup probes need one success; a readiness probe has no grace period."""
    causes = _handler(path, probe, None)
    causes += [
        invalid_value(f"{path}.{field}", probe[field], "must be greater than or equal to 0")
        for field in _COUNTS
        if (probe.get(field) or 0) < 0
    ]
    grace_s = probe.get("terminationGracePeriodSeconds")
    where = f"{path}.terminationGracePeriodSeconds"
    if grace_s is not None and grace_s <= 0:
        causes.append(invalid_value(where, grace_s, "must be greater than 0"))
    if ready and grace_s is not None:
        causes.append(invalid_value(where, grace_s, "must not be set for readinessProbes"))
    successes = probe.get("successThreshold") or 0
    if not ready and successes != 1:
        causes.append(invalid_value(f"{path}.successThreshold", successes, "must be 1"))
    return causes


def _handler(path: str, handler: Json, grace_s: int | None) -> list[Cause]:
    """There must be exactly one handler; further ones are not validated."""
    first, *others = [name for name in _HANDLERS if handler.get(name) is not None] or [""]
    if not first:
        return [required(path, "must specify a handler type")]
    causes = list(_HANDLERS[first](f"{path}.{first}", handler[first], grace_s))
    return causes + [forbidden(f"{path}.{name}", "may not specify more than 1 handler type") for name in others]


def _exec(path: str, call: Json, _: int | None) -> Iterator[Cause]:
    if not call.get("command"):
        yield required(f"{path}.command")


def _http(path: str, call: Json, grace_s: int | None) -> Iterator[Cause]:
    yield from _port(path, call, grace_s)
    if call.get("scheme", "HTTP") not in _SCHEMES:
        yield unsupported(f"{path}.scheme", call["scheme"], _SCHEMES)


def _port(path: str, call: Json, _: int | None) -> Iterator[Cause]:
    port: Any = call.get("port") or 0
    rule = formats.port_name if isinstance(port, str) else formats.port_number
    yield from invalid_values(f"{path}.port", port, rule(port))


def _sleep(path: str, call: Json, grace_s: int | None) -> Iterator[Cause]:
    sleep_s = call.get("seconds") or 0
    if grace_s is not None and not 0 <= sleep_s <= grace_s:
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_s})"
        yield invalid_value(path, sleep_s, detail)


_HANDLERS: dict[str, Callable[[str, Json, int | None], Iterator[Cause]]] = {
    "exec": _exec,
    "httpGet": _http,
    "tcpSocket": _port,
    "grpc": _port,
    "sleep": _sleep,
}
