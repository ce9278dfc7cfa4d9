"""The defaults of generic kinds (kube-apiserver: defaults.go of each API group), and their first status.

Differs: a LimitRange does not say the limits and requests that follow from others, and no claim is given a class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from kdns.controlplane.apimachinery.inert import CRON_JOB, InertKind
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.apps.defaults import default_template
from kdns.controlplane.storage.object_meta import copied

_RBAC: Final = "rbac.authorization.k8s.io"


def _template(*path: str) -> Callable[[Json], Json]:
    """Fills in the defaults of the Pod template at the end of the path."""

    def filled(obj: Json) -> Json:
        name, *rest = path
        if not isinstance(inner := obj.get(name), dict):
            return obj
        return {**obj, name: _template(*rest)(inner) if rest else default_template(inner)}

    return filled


def _policy_types(obj: Json) -> Json:
    spec = obj.get("spec")
    if not isinstance(spec, dict) or spec.get("policyTypes"):
        return obj
    return {**obj, "spec": {**spec, "policyTypes": ["Ingress", *(["Egress"] if spec.get("egress") else [])]}}


def _subjects(obj: Json) -> Json:
    """Sets the RBAC API group of users and groups."""
    if not isinstance(listed := obj.get("subjects"), list):
        return obj
    groups = {"User": _RBAC, "Group": _RBAC}
    rows = [{"apiGroup": groups[each["kind"]], **each} if each.get("kind") in groups else each for each in listed]
    return {**obj, "subjects": rows}


def _counts(*path: str) -> Callable[[Json], Json]:
    """Requests for an exact number of devices are for one, in the claim at the end of the path."""

    def filled(obj: Json) -> Json:
        match obj, path:
            case {"allocationMode": "ExactCount"}, ():
                return {"count": 1, **obj}
            case _, (name, *rest) if isinstance(inner := obj.get(name), dict):
                return {**obj, name: _counts(*rest)(inner)}
            case _, (name, *rest) if isinstance(inner := obj.get(name), list):
                return {**obj, name: [_counts(*rest)(each) for each in inner]}
        return obj

    return filled


_RULES: Final[Mapping[str, tuple[Callable[[Json], Json], ...]]] = {
    "podtemplates": (_template("template"),),
    CRON_JOB.resource: (_template("spec", "jobTemplate", "spec", "template"),),
    "networkpolicies.networking.k8s.io": (_policy_types,),
    f"rolebindings.{_RBAC}": (_subjects,),
    f"clusterrolebindings.{_RBAC}": (_subjects,),
    "resourceclaims.resource.k8s.io": (
        _counts("spec", "devices", "requests", "exactly"),
        _counts("spec", "devices", "requests", "firstAvailable"),
    ),
    "resourceclaimtemplates.resource.k8s.io": (
        _counts("spec", "spec", "devices", "requests", "exactly"),
        _counts("spec", "spec", "devices", "requests", "firstAvailable"),
    ),
}
"""Resource → the defaults that depend on other fields."""


def defaults_of(row: InertKind) -> Callable[[Json], Json]:
    """Fills in the defaults of a generic kind's objects, also in a spec that is absent: in Go it is always there."""
    return partial(_filled, row.defaults, _RULES.get(row.kind.resource, ()))


def _filled(values: Mapping[str, object], rules: tuple[Callable[[Json], Json], ...], obj: Json) -> Json:
    for path, value in values.items():
        obj = _with_value(obj, path.split("."), value)
    for rule in rules:
        obj = rule(obj)
    return obj


def _with_value(obj: Any, path: list[str], value: Any) -> Any:
    """Returns the object with the value at the path, if the parent exists. null, [] and "" count as absent."""
    if not isinstance(obj, dict):
        return obj
    name, *rest = path
    if not rest:
        return obj if obj.get(name) not in (None, [], "") else {**obj, name: copied({name: value})[name]}
    if name.endswith("[]"):
        name = name.removesuffix("[]")
        listed = obj.get(name)
        return {**obj, name: [_with_value(each, rest, value) for each in listed]} if isinstance(listed, list) else obj
    return {**obj, name: _with_value(obj[name], rest, value)} if isinstance(obj.get(name), dict) else obj
