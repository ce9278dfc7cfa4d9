"""What shows an object as one of another kind: subresources (`scale`), and groups that have a form of their own.

A further one is a row in VIEWS or FORM_VIEWS; routes and discovery learn of it by
the kind's `subresources`, and by FORMS in kinds.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kdns.controlplane import events_v1
from kdns.controlplane.kinds import EVENT_V1, Json, Kind
from kdns.controlplane.status import Cause, bad_request, invalid

SCALE = Kind("autoscaling", "v1", "Scale", "scales")
"""The kind of what goes through `scale`; it is not served by itself."""

EVICTION = Kind("policy", "v1", "Eviction", "evictions")
BINDING = Kind("", "v1", "Binding", "bindings")
POSTED = {("Pod", "eviction"): EVICTION, ("Pod", "binding"): BINDING}
"""(kind, subresource) → the kind of what is posted there; nothing can be read back."""

_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


@dataclass(frozen=True, slots=True)
class View:
    """`read` shows a stored object as `kind`; `write` gives the stored object as it is after a view was sent.

    `configured` is what a view that is applied says of an object of its kind. What the view's metadata claims (name,
    uid, resourceVersion) is checked against the object afterwards.
    """

    kind: Kind
    read: Callable[[Json], Json]
    write: Callable[[Json, Json], Json]
    configured: Callable[[Kind, Json], Json]


def view_of(kind: Kind, subresource: str, form: Kind | None = None) -> View | None:
    """The view behind a form or a subresource; None where that is the object itself or a part of it."""
    return FORM_VIEWS[form] if form else VIEWS.get((kind.kind, subresource))


def kind_at(kind: Kind, subresource: str) -> Kind:
    """The kind of what goes in and out at a subresource."""
    view = view_of(kind, subresource)
    return view.kind if view else POSTED.get((kind.kind, subresource), kind)


def scale_of(obj: Json) -> Json:
    """autoscaling/v1 Scale: how many replicas are wanted, how many there are, and what selects them."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    shown = {"replicas": status.get("replicas") or 0, "selector": selector_text(spec.get("selector") or {})}
    wanted = spec.get("replicas") or 0
    return {
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version,
        "metadata": {name: metadata[name] for name in _SHOWN if name in metadata},
        "spec": {"replicas": wanted} if wanted else {},
        "status": {name: value for name, value in shown.items() if value or name == "replicas"},
    }


def scaled(obj: Json, scale: Json) -> Json:
    """The object with the replicas that a Scale asks for; 422 for fewer than none."""
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    name = obj["metadata"]["name"]
    if replicas < 0:
        cause = Cause("spec.replicas", f"Invalid value: {replicas}", "must be greater than or equal to 0")
        raise invalid(SCALE, name, [cause])
    return {**obj, "metadata": {**obj["metadata"], **_claims(scale)}, "spec": {**obj["spec"], "replicas": replicas}}


def scale_configured(kind: Kind, scale: Json) -> Json:
    """What a Scale that is applied says of an object: nothing but its replicas; 400 for what is no Scale."""
    found = scale.get("apiVersion"), scale.get("kind")
    spec = scale.get("spec") or {}
    if found != (SCALE.api_version, SCALE.kind) or not isinstance(spec, dict):
        raise bad_request(f"invalid object type: {scale.get('apiVersion')}, Kind={scale.get('kind')}")
    wanted = {"spec": {"replicas": spec["replicas"]}} if "replicas" in spec else {}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": _claims(scale), **wanted}


def _claims(scale: Json) -> Json:
    sent = scale.get("metadata") or {}
    return {field: sent[field] for field in ("name", "namespace", "uid", "resourceVersion") if sent.get(field)}


def selector_text(selector: Json) -> str:
    """A LabelSelector, or a plain map of labels, as one line that a labelSelector parameter takes."""
    if not {"matchLabels", "matchExpressions"} & set(selector):
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    parts += [(each["key"], _requirement(each)) for each in selector.get("matchExpressions") or ()]
    return ",".join(text for _, text in sorted(parts))


def _requirement(expression: Json) -> str:
    key, values = expression["key"], ",".join(sorted(expression.get("values") or ()))
    match expression["operator"]:
        case "In":
            return f"{key} in ({values})"
        case "NotIn":
            return f"{key} notin ({values})"
        case "Exists":
            return str(key)
        case _:
            return f"!{key}"


_SCALE = View(SCALE, scale_of, scaled, scale_configured)
VIEWS: dict[tuple[str, str], View] = {
    (kind, "scale"): _SCALE for kind in ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController")
}
"""(kind, subresource) → what it shows."""

FORM_VIEWS = {EVENT_V1: View(EVENT_V1, events_v1.shown, events_v1.written, events_v1.configured)}
"""Kind that shows the objects of another → how."""
