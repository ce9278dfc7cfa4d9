"""The rules of a container: its ports, variables, mounts and resources (kube-apiserver: validateContainerCommon)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from kdns.controlplane import formats
from kdns.controlplane.causes import duplicate, each, invalid_value, not_found, required, unsupported
from kdns.controlplane.kinds import Json
from kdns.controlplane.quantities import canonical, quantity
from kdns.controlplane.status import Cause
from kdns.controlplane.validation_service import validate_protocol

_POLICIES = ("Always", "IfNotPresent", "Never")
_ENV_NAME = re.compile(r"[ -<>-~]+")
_HUGE_PAGES = "hugepages-"
_OF_CONTAINERS = frozenset({"cpu", "memory", "ephemeral-storage"})


def validate_container(path: str, container: Json, volumes: Collection[str]) -> list[Cause]:
    """What holds for every container of a Pod with volumes of these names."""
    name, image, policy = (container.get(field) or "" for field in ("name", "image", "imagePullPolicy"))
    causes = each(f"{path}.name", name, formats.dns_label(name)) if name else [required(f"{path}.name")]
    if not image:
        causes.append(required(f"{path}.image"))
    elif image != image.strip():
        causes.append(invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace"))
    port_names: set[str] = set()
    for index, port in enumerate(container.get("ports") or []):
        causes += _port(f"{path}.ports[{index}]", port, port_names)
    for index, variable in enumerate(container.get("env") or []):
        causes += _variable(f"{path}.env[{index}]", variable)
    causes += _mounts(f"{path}.volumeMounts", container.get("volumeMounts") or [], volumes)
    if policy not in _POLICIES:
        causes.append(unsupported(f"{path}.imagePullPolicy", policy, _POLICIES))
    return [*causes, *_resources(f"{path}.resources", container.get("resources") or {})]


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


def _mounts(path: str, mounts: list[Json], volumes: Collection[str]) -> list[Cause]:
    """A subPath that is wrong is told without the mount's number, as kube-apiserver does it."""
    causes: list[Cause] = []
    taken: set[str] = set()
    for index, mount in enumerate(mounts):
        at, name, place = f"{path}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        causes += [] if name else [required(f"{at}.name")]
        causes += [] if name in volumes else [not_found(f"{at}.name", name)]
        causes += [] if place else [required(f"{at}.mountPath")]
        causes += [invalid_value(f"{at}.mountPath", place, "must be unique")] if place in taken else []
        taken.add(place)
        inside = mount.get("subPath") or ""
        causes += [invalid_value(f"{path}.subPath", inside, "must be a relative path")] if inside[:1] == "/" else []
        if ".." in inside.split("/"):
            causes.append(invalid_value(f"{path}.subPath", inside, "must not contain '..'"))
    return causes


def _resources(path: str, resources: Json) -> Iterator[Cause]:
    """Limits and requests are amounts of known resources, and no request is above its limit.

    What cannot be promised twice, huge pages and the resources of device plugins, is requested exactly as limited.
    """
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, amount in limits.items():
        yield from _amount(f"{path}.limits[{name}]", name, amount)
    for name, amount in requests.items():
        yield from _amount(f"{path}.requests[{name}]", name, amount)
        wanted, most = quantity(amount) or 0, quantity(limits.get(name, "")) or 0
        exact = _is_extended(name) or name.startswith(_HUGE_PAGES)
        if name in limits and (wanted > most or (exact and wanted != most)):
            relation = "must be equal to" if exact else "must be less than or equal to"
            detail = f"{relation} {name} limit of {canonical(limits[name])}"
            yield invalid_value(f"{path}.requests", canonical(amount), detail)
        elif exact and name not in limits:
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")


def _amount(path: str, name: str, amount: object) -> Iterator[Cause]:
    wrong = formats.qualified_name(name)
    yield from each(path, name, wrong)
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
    """A resource that is not Kubernetes' own, such as a vendor's GPUs."""
    return "/" in name and "kubernetes.io/" not in name
