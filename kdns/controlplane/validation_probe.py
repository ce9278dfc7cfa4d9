"""The rules of what a kubelet calls in a container: probes and lifecycle hooks (kube-apiserver: validateProbe…)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kdns.controlplane import formats
from kdns.controlplane.causes import each, forbidden, invalid_value, required, unsupported
from kdns.controlplane.kinds import Json
from kdns.controlplane.status import Cause

_HOOKS = ("postStart", "preStop")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_SCHEMES = ("HTTP", "HTTPS")
_NOT_HERE = "may not be set for init containers without restartPolicy=Always"


def validate_calls(path: str, container: Json, grace_s: int | None) -> list[Cause]:
    """The hooks and probes of a container whose Pod has `grace_s` seconds to end."""
    hooks = container.get("lifecycle") or {}
    causes = []
    for hook in _HOOKS:
        if hooks.get(hook) is not None:
            causes += _handler(f"{path}.lifecycle.{hook}", hooks[hook], grace_s)
    for name in _PROBES:
        if container.get(name) is not None:
            causes += _probe(f"{path}.{name}", container[name], ready=name == "readinessProbe")
    return causes


def forbid_calls(path: str, container: Json) -> list[Cause]:
    """An init container that ends has neither hooks nor probes."""
    return [
        forbidden(f"{path}.{name}", _NOT_HERE) for name in ("lifecycle", *_PROBES) if container.get(name) is not None
    ]


def _probe(path: str, probe: Json, *, ready: bool) -> list[Cause]:
    """Liveness and startup are seen in one success; readiness leads to no end, and so to no grace period."""
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
    """Exactly one way to call; further ones are not looked at."""
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
    yield from each(f"{path}.port", port, rule(port))


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
