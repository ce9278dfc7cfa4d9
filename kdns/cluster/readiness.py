"""Why a Service has no ready endpoint, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kdns.cluster.objects import Endpoint, Key, Pod, Service
from kdns.cluster.observed import ObservedPod, SelectingService
from kdns.cluster.pod_index import PodIndex
from kdns.cluster.state import State
from kdns.spelling import is_misspelling, listed

SHOWN: Final = 3
"""The most objects that a sentence names."""
SERVICE_LABEL: Final = "kubernetes.io/service-name"
_NAME_LABELS: Final = {"app", "name", "run", "k8s-app", "app.kubernetes.io/name"}
"""Labels that have an application's name, and are mistaken for each other."""


class Cause(NamedTuple):
    """A sentence without full stop, and a command that fixes it or shows more, "" for none.

    `meant` is the full name of the object that it is about, or that a misspelt name meant; "" for none.
    """

    text: str
    command: str = ""
    meant: str = ""


def nothing_ready(state: State, service: Service, pods: PodIndex | None = None) -> Cause:
    """Why a Service has no ready endpoint. `pods`, those of the state, save an index for each of many Services."""
    slices = state.slices_of(service.key)
    idle = [endpoint for part in slices for endpoint in part.endpoints or () if not endpoint.is_ready]
    selector = service.spec.selector if isinstance(service, SelectingService) else None
    namespace, name = service.key
    if idle:
        noun = "Pod" if any(endpoint.target_ref for endpoint in idle) else "endpoint"
        verb = "it matches" if noun == "Pod" else "it has"
        clause = "which is not Ready" if len(idle) == 1 else "none of which is Ready"
        names = (endpoint.target_ref.name for endpoint in idle if endpoint.target_ref)
        known = next((other for other in names if (namespace, other) in state.pods), "")
        return Cause(
            f"{verb} {count(len(idle), noun)}, {clause} ({listed(map(endpoint_text, idle), SHOWN)})",
            known and f"kubectl describe pod -n {namespace} {known}",
        )
    if not isinstance(service, SelectingService):
        return Cause("it has no endpoints", f"kubectl describe service -n {namespace} {name}")
    if not selector:
        return _unlabelled(state, service.key)
    return _selects_nothing(state, service, selector, pods or PodIndex(state.pods.values()))


def _unlabelled(state: State, key: Key) -> Cause:
    namespace, name = key
    label = f"{SERVICE_LABEL}={name}"
    if state.slices_of(key):
        return Cause(
            "it has no selector, and its EndpointSlices have no endpoints",
            f"kubectl get endpointslices -n {namespace} -l {label}",
        )
    text = f"it has no selector, and no EndpointSlice carries {label}"
    for (slice_namespace, slice_name), endpoint_slice in state.slices.items():
        owner = endpoint_slice.service_key
        if slice_namespace != namespace or (owner is not None and owner in state.services):
            continue
        has = f"carries {SERVICE_LABEL}={owner[1]}" if owner else "does not carry the label"
        is_near = is_misspelling(owner[1], name) if owner else slice_name.startswith(name)
        if is_near and any(endpoint.is_ready for endpoint in endpoint_slice.endpoints or ()):
            command = f"kubectl label endpointslice -n {namespace} {slice_name} --overwrite {label}"
            return Cause(f"{text}; EndpointSlice {slice_name} {has}", command)
    return Cause(text)


def _selects_nothing(state: State, service: SelectingService, selector: Mapping[str, str], index: PodIndex) -> Cause:
    namespace = service.key[0]
    labels = selector_text(selector)
    if matching := index.matching(namespace, selector):
        states = listed(map(_pod_text, matching), SHOWN)
        return Cause(
            f"selector {labels} matches {count(len(matching), 'Pod')} without a ready address ({states})",
            f"kubectl get pods -n {namespace} -l {labels}",
        )
    text = f'selector {labels} matches 0 of {count(index.count(namespace), "Pod")} in "{namespace}"'
    pods = [pod for group in index.groups(namespace).values() for pod in group]
    mended = mended_selector(index, service.key, selector)
    if mended is not None:
        return _misspelt(state, service, text, pods, mended)
    if others := index.namespaces_of(selector):
        return Cause(f"{text}; Pods in {and_(others[:SHOWN])} have these labels, but a selector sees its own namespace")
    if not pods:
        return Cause(text)
    missing = {label: value for label, value in selector.items() if not index.matching(namespace, {label: value})}
    if missing:
        text = f"{text}; none has {selector_text(missing)}, nor a label like it"
    elif len(selector) > 1:
        text = f"{text}; none has all of these labels"
    return Cause(text, _show_labels(namespace))


def _misspelt(
    state: State, service: SelectingService, text: str, pods: Sequence[Pod], mended: Mapping[str, str]
) -> Cause:
    """The selector has a typo. The command corrects it if that gives the Service a ready endpoint."""
    namespace, name = service.key
    matching = [pod for pod in pods if _has(pod, mended)]
    new = {label: value for label, value in mended.items() if (service.spec.selector or {}).get(label) != value}
    number = len(matching)
    subject = "both have" if number == len(pods) == 2 else f"{number} {'has' if number == 1 else 'have'}"
    text = f"{text}; {subject} {selector_text(new)}"
    if others := [*_other_owners(state, service, matching)]:
        return Cause(f"{text}, for Service {and_(others[:SHOWN])}", _show_labels(namespace))
    if not any(map(_is_usable, matching)):
        return Cause(
            f"{text}, without a ready address ({listed(map(_pod_text, matching), SHOWN)})",
            f"kubectl get pods -n {namespace} -l {selector_text(mended)}",
        )
    return Cause(text, f"kubectl set selector service -n {namespace} {name} {selector_text(mended)}")


def mended_selector(index: PodIndex, key: Key, selector: Mapping[str, str]) -> dict[str, str] | None:
    """The selector of a Service without typos, of several the one with the most Pods; None if it has no typo."""
    namespace, name = key
    mended_for = (_mended_for(dict(labels), selector, name) for labels in index.groups(namespace))
    candidates = {selector_text(mended): mended for mended in mended_for if mended is not None}

    def match_counts(mended: Mapping[str, str]) -> tuple[int, int]:
        matching = index.matching(namespace, mended)
        return sum(map(_is_usable, matching)), len(matching)

    return max(candidates.values(), key=match_counts, default=None)


def _mended_for(labels: Mapping[str, str], selector: Mapping[str, str], name: str) -> dict[str, str] | None:
    """The selector that matches these labels, if only typos keep this one from it.

    A label whose value is the Service's own `name` is near to any value of the selector.
    """
    mended: dict[str, str] = {}
    for label, value in selector.items():
        has = labels.get(label)
        if has is not None and (has in {value, name} or is_misspelling(value, has)):
            mended[label] = has
            continue
        near = [
            other
            for other in labels
            if labels[other] == value and (is_misspelling(label, other) or {label, other} <= _NAME_LABELS)
        ]
        if has is not None or not near:
            return None
        mended[near[0]] = value
    return mended


def _other_owners(state: State, service: Service, pods: Sequence[Pod]) -> Iterator[str]:
    """Other Services that select these Pods already, except related ones such as web-headless of web."""
    namespace, name = service.key
    for (other_namespace, other), known in state.services.items():
        selector = known.spec.selector if isinstance(known, SelectingService) else None
        is_related = other.partition("-")[0] == name.partition("-")[0]
        is_near = other_namespace == namespace and not is_related
        if is_near and selector and any(_has(pod, selector) for pod in pods):
            yield other


def _show_labels(namespace: str) -> str:
    return f"kubectl get pods -n {namespace} --show-labels"


def selector_text(selector: Mapping[str, str]) -> str:
    return ",".join(f"{label}={value}" for label, value in sorted(selector.items()))


def _has(pod: Pod, selector: Mapping[str, str]) -> bool:
    return _labels(pod).items() >= selector.items()


def _is_usable(pod: Pod) -> bool:
    is_ready = isinstance(pod, ObservedPod) and pod.status.is_ready
    return bool(pod.addresses) and is_ready and not pod.metadata.deletion_timestamp


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
    address = endpoint.addresses[0] if endpoint.addresses else "no address"
    return f"{endpoint.target_ref.name}, {address}" if endpoint.target_ref else address


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def and_(words: Iterable[str]) -> str:
    *front, last = words = [*words] or [""]
    return f"{', '.join(front)} and {last}" if front else last
