"""Why a Service has no ready endpoint, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kdns.cluster.objects import Endpoint, Pod, Service
from kdns.cluster.observed import ObservedPod, SelectingService
from kdns.cluster.state import State
from kdns.spelling import closest, listed

SHOWN: Final = 3
"""The most objects that a sentence names."""


class Cause(NamedTuple):
    """A sentence without its full stop, and a command that mends or shows more; "" for none."""

    text: str
    command: str = ""


def nothing_ready(state: State, service: Service) -> Cause:
    """Returns why a Service has no ready endpoint."""
    slices = state.slices_of(service.key)
    idle = [endpoint for one in slices for endpoint in one.endpoints or () if not endpoint.is_ready]
    selector = service.spec.selector if isinstance(service, SelectingService) else None
    namespace, name = service.key
    if idle:
        what = "Pod" if any(endpoint.target_ref for endpoint in idle) else "endpoint"
        verb = "it matches" if what == "Pod" else "it has"
        which = "which is not Ready" if len(idle) == 1 else "none of which is Ready"
        return Cause(
            f"{verb} {count(len(idle), what)}, {which} ({listed(map(endpoint_text, idle), SHOWN)})",
            f"kubectl describe pod -n {namespace} {idle[0].target_ref.name}" if idle[0].target_ref else "",
        )
    if not isinstance(service, SelectingService):
        return Cause("it has no endpoints", f"kubectl describe service -n {namespace} {name}")
    if not selector:
        return Cause(
            f"it has no selector, and no EndpointSlice carries kubernetes.io/service-name={name}"
            if not slices
            else "it has no selector, and its EndpointSlices have no endpoints",
            f"kubectl get endpointslices -n {namespace} -l kubernetes.io/service-name={name}",
        )
    return _selects_nothing(state, service, selector)


def _selects_nothing(state: State, service: Service, selector: Mapping[str, str]) -> Cause:
    namespace, name = service.key
    pods = [pod for pod in state.pods.values() if pod.key[0] == namespace]
    wanted = ",".join(f"{label}={value}" for label, value in sorted(selector.items()))
    matched = [pod for pod in pods if _labels(pod).items() >= selector.items()]
    if matched:
        states = listed(map(_pod_text, matched), SHOWN)
        return Cause(
            f"selector {wanted} matches {count(len(matched), 'Pod')} without a ready address ({states})",
            f"kubectl get pods -n {namespace} -l {wanted}",
        )
    text = f'selector {wanted} matches 0 of {count(len(pods), "Pod")} in "{namespace}"'
    for label, value in selector.items():
        values = {other for pod in pods if (other := _labels(pod).get(label)) is not None}
        near = closest(value, values) or (next(iter(values)) if len(values) == 1 else "")
        if near and near != value:
            have = [pod for pod in pods if _labels(pod).get(label) == near]
            who = "both have" if len(have) == len(pods) == 2 else f"{len(have)} {'has' if len(have) == 1 else 'have'}"
            mended = ",".join(f"{each}={near if each == label else had}" for each, had in sorted(selector.items()))
            return Cause(
                f"{text}; {who} {label}={near}", f"kubectl set selector service -n {namespace} {name} {mended}"
            )
    spaces = sorted({pod.key[0] for pod in state.pods.values() if _labels(pod).items() >= selector.items()})
    where = (
        f"; Pods in {and_(spaces[:SHOWN])} have these labels, but a selector sees its own namespace" if spaces else ""
    )
    return Cause(text + where, f"kubectl get pods -n {namespace} --show-labels")


def _labels(pod: Pod) -> Mapping[str, str]:
    return pod.metadata.labels or {}


def _pod_text(pod: Pod) -> str:
    status = pod.status
    address = pod.addresses[0] if pod.addresses else "no address"
    if pod.metadata.deletion_timestamp:
        return f"{pod.key[1]}, terminating"
    is_ready = isinstance(pod, ObservedPod) and pod.status.is_ready
    return f"{pod.key[1]}, {status.phase or 'Pending'}{'' if is_ready else ', not Ready'}, {address}"


def endpoint_text(endpoint: Endpoint) -> str:
    """Returns the Pod and the address of an endpoint."""
    address = endpoint.addresses[0] if endpoint.addresses else "no address"
    return f"{endpoint.target_ref.name}, {address}" if endpoint.target_ref else address


def count(number: int, what: str) -> str:
    """Returns a number and what it counts."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def and_(words: Iterable[str]) -> str:
    """Returns the words with commas and an "and"."""
    *front, last = words = [*words] or [""]
    return f"{', '.join(front)} and {last}" if front else last
