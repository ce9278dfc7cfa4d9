"""Requests that end in a container: there is none, since Pods are simulated. People are told so, not just 404."""

from __future__ import annotations

from kdns.controlplane.api import Api
from kdns.controlplane.kinds import NODE, POD, SERVICE, Kind
from kdns.controlplane.status import bad_request

_SIMULATED = "Pods are simulated, no container runs"
_MISSING: dict[tuple[Kind, str], str] = {
    (POD, "attach"): f'pod "{{}}" cannot be attached to: {_SIMULATED}',
    (POD, "ephemeralcontainers"): f'pod "{{}}" cannot be debugged: {_SIMULATED}',
    (POD, "exec"): f'pod "{{}}" cannot execute commands: {_SIMULATED}',
    (POD, "log"): f'pod "{{}}" has no log: {_SIMULATED}',
    (POD, "portforward"): f'pod "{{}}" has no ports to forward to: {_SIMULATED}',
    (POD, "proxy"): f'pod "{{}}" cannot be connected to: {_SIMULATED}',
    (SERVICE, "proxy"): f'service "{{}}" cannot be connected to: {_SIMULATED}',
    (NODE, "proxy"): f'node "{{}}" cannot be connected to: {_SIMULATED}, and there is no kubelet',
}
_KINDS = {kind.plural: kind for kind in (NODE, POD, SERVICE)}


def refuse(path: str, api: Api) -> None:
    """400 for a path into a container or through one, 404 where its object is not there; nothing for other paths."""
    match path.strip("/").split("/"):
        case ["api", "v1", "namespaces", namespace, plural, name, subresource, *_]:
            pass
        case ["api", "v1", "nodes" as plural, name, subresource, *_]:
            namespace = ""
        case _:
            return
    kind = _KINDS.get(plural)
    text = _MISSING.get((kind, subresource)) if kind else None
    if kind is None or text is None or bool(namespace) != kind.namespaced:
        return
    plain = name if kind == POD else name.removeprefix("https:").removeprefix("http:").partition(":")[0]
    api.find(kind, namespace, plain)
    raise bad_request(text.format(plain))
