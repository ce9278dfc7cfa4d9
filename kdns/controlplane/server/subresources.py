"""Subresources that act, pods/eviction and pods/binding, and those that are refused.

Pods are simulated and have no containers: requests to connect are refused with that reason, not with 404. Requests for
tokens of ServiceAccounts are refused too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec

from kdns.controlplane.apimachinery.errors import Cause, StatusError, bad_request, conflict
from kdns.controlplane.apimachinery.field_errors import required, unsupported
from kdns.controlplane.apimachinery.kinds import NODE, POD, SERVICE, SERVICE_ACCOUNT, Json, Kind
from kdns.controlplane.kinds.pod.pod import node_of, with_condition
from kdns.controlplane.server.registry import Registry, Request
from kdns.controlplane.storage.object_meta import check_preconditions, is_terminating, timestamp


def evict(registry: Registry, request: Request, eviction: Json) -> None:
    """Deletes the Pod, with the DeleteOptions of the Eviction.

    Differs: no PodDisruptionBudget limits it.
    """
    _check_name("Eviction", eviction, request.name)
    options = {key: value for key, value in (eviction.get("deleteOptions") or {}).items() if value is not None}
    if request.dry_run and options.get("dryRun") not in (None, [], ["All"]):
        sent = " ".join(options["dryRun"])
        raise StatusError(500, "", f"Non-matching dry-run options in request and content: [All] and [{sent}]")
    dry_run = request.dry_run or bool(options.get("dryRun"))
    registry.delete(Request(POD, request.namespace, request.name, dry_run=dry_run), options)


def bind(registry: Registry, request: Request, binding: Json) -> None:
    """Binds the Pod to a scheduler's node. Raises 409 if the Pod is bound, terminating or has scheduling gates."""
    name, subject = request.name, Request(POD, request.namespace, request.name)
    _check_name("Binding", binding, name)
    target, metadata = binding.get("target") or {}, binding.get("metadata") or {}
    if (target.get("kind") or "Node") != "Node":
        raise _unwrapped(unsupported("target.kind", target["kind"], ("Node", "<empty>")))
    if not target.get("name"):
        raise _unwrapped(required("target.name"))
    pod = registry.find(subject).obj
    check_preconditions(
        POD, pod, {field: metadata[field] for field in ("uid", "resourceVersion") if metadata.get(field)}
    )
    if why := _unbindable(pod, name):
        raise conflict(replace(POD, plural="pods/binding"), name, why)
    annotations = {**(pod["metadata"].get("annotations") or {}), **(metadata.get("annotations") or {})}
    labels = {**(pod["metadata"].get("labels") or {}), **(metadata.get("labels") or {})}
    bound_metadata = {**pod["metadata"], "annotations": annotations, "labels": labels}
    bound = {**pod, "metadata": bound_metadata, "spec": {**pod["spec"], "nodeName": target["name"]}}
    bound = registry.update(msgspec.structs.replace(subject, dry_run=request.dry_run), bound).obj
    if not request.dry_run:
        scheduled = with_condition(bound, "PodScheduled", "True", timestamp(registry.now_s()))
        registry.update(msgspec.structs.replace(subject, subresource="status"), scheduled)


def _unbindable(pod: Json, name: str) -> str:
    """Why the Pod cannot be bound; "" if it can."""
    if is_terminating(pod):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if node := node_of(pod):
        return f'pod {name} is already assigned to node "{node}"'
    return f"pod {name} has non-empty .spec.schedulingGates" if pod["spec"].get("schedulingGates") else ""


def _unwrapped(cause: Cause) -> StatusError:
    """500 without the object, as kube-apiserver answers an invalid Binding."""
    return StatusError(500, "", f"{cause.field}: {cause.message}")


def _check_name(kind: str, body: Json, name: str) -> None:
    if (body.get("metadata") or {}).get("name") != name:
        raise bad_request(f"name in URL does not match name in {kind} object")


POSTS: Final[dict[str, Callable[[Registry, Request, Json], None]]] = {"eviction": evict, "binding": bind}
"""Handlers of POST by subresource of a Pod."""


_SIMULATED = "Pods are simulated, no container runs"
_REFUSED: dict[tuple[Kind, str], str] = {
    (POD, "attach"): f'pod "{{}}" cannot be attached to: {_SIMULATED}',
    (POD, "exec"): f'pod "{{}}" cannot execute commands: {_SIMULATED}',
    (POD, "log"): f'pod "{{}}" has no log: {_SIMULATED}',
    (POD, "portforward"): f'pod "{{}}" has no ports to forward to: {_SIMULATED}',
    (POD, "proxy"): f'pod "{{}}" cannot be connected to: {_SIMULATED}',
    (SERVICE, "proxy"): f'service "{{}}" cannot be connected to: {_SIMULATED}',
    (NODE, "proxy"): f'node "{{}}" cannot be connected to: {_SIMULATED}, and there is no kubelet',
    (
        SERVICE_ACCOUNT,
        "token",
    ): 'serviceaccount "{}": TokenRequest is not supported; authenticate with --token-file or --client-ca-file',
}


def refuse(registry: Registry, request: Request) -> None:
    """Raises 400 for a subresource in _REFUSED, 404 if its object does not exist. Other subresources pass."""
    text = _REFUSED.get((request.kind, request.subresource))
    if text is None:
        return
    name = request.name
    if request.subresource == "proxy":  # scheme:name:port
        name = name.removeprefix("https:").removeprefix("http:").partition(":")[0]
    registry.find(msgspec.structs.replace(request, name=name, subresource=""))
    raise bad_request(text.format(name))
