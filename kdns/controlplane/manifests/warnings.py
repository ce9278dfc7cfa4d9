"""Services that the API accepts but that do not work: selectors without Pods, names that lead nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kdns.controlplane.apimachinery.inert import CRON_JOB
from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, ENDPOINTS, JOB, POD, SERVICE, STATEFUL_SET, WORKLOADS
from kdns.controlplane.manifests.manifest import Manifest, Mistake
from kdns.net import parse_address

_SERVICE_NAME: Final = "kubernetes.io/service-name"
_POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
_POD_INDEX: Final = "apps.kubernetes.io/pod-index"
_JOB_NAMES: Final = ("job-name", "batch.kubernetes.io/job-name")
_CLUSTER_SUFFIX: Final = "svc.cluster.local"


def manifest_warnings(manifests: Sequence[Manifest]) -> list[Mistake]:
    """Returns the warnings about Services of manifests that are applied together."""
    services = [each for each in manifests if each.kind == SERVICE and isinstance(each.obj.get("spec"), dict)]
    pods = [(each.namespace, each, labels) for each in manifests for labels in _pod_labels(each)]
    with_endpoints = set(_with_endpoints(manifests))
    aliases = {(each.namespace, each.name): each for each in services if each.obj["spec"].get("type") == "ExternalName"}
    found: list[Mistake] = []
    for service in services:
        spec = service.obj["spec"]
        if spec.get("type") == "ExternalName":
            found += _of_alias(service, aliases)
        elif (service.namespace, service.name) in with_endpoints:
            continue
        elif selector := spec.get("selector"):
            mine = [(maker, labels) for namespace, maker, labels in pods if namespace == service.namespace]
            if isinstance(selector, dict) and not any(_selects(selector, maker, labels) for maker, labels in mine):
                found.append(Mistake(service, "spec.selector", "matches no Pod and no Pod template of these files"))
        elif spec.get("clusterIP") == "None":
            reason = "is headless, without a selector and without an EndpointSlice in these files: it has no address"
            found.append(Mistake(service, "spec.clusterIP", reason))
    return found


def _pod_labels(manifest: Manifest) -> Iterator[Mapping[str, str]]:
    """Yields the labels of the Pods that an object is or makes, with the labels that its controller adds."""
    obj = manifest.obj
    if manifest.kind == POD:
        yield _labels(obj)
    elif manifest.kind == CRON_JOB:
        yield _labels(_below(obj, "spec", "jobTemplate", "spec", "template"))
    elif manifest.kind == JOB:
        yield {**_labels(_below(obj, "spec", "template")), **dict.fromkeys(_JOB_NAMES, manifest.name)}
    elif manifest.kind in WORKLOADS:
        yield _labels(_below(obj, "spec", "template"))


def _selects(selector: Mapping[str, object], maker: Manifest, labels: Mapping[str, str]) -> bool:
    """Returns whether Pods of these labels match; those of a StatefulSet also have their name and index as labels."""
    if maker.kind == STATEFUL_SET:
        own = {_POD_NAME: f"{maker.name}-", _POD_INDEX: ""}
        rest = {key: value for key, value in selector.items() if key not in own}
        if any(not str(selector[key]).startswith(own[key]) for key in selector.keys() & own.keys()):
            return False
        return rest.items() <= labels.items()
    return selector.items() <= labels.items()


def _with_endpoints(manifests: Iterable[Manifest]) -> Iterator[tuple[str, str]]:
    """Yields the Services whose endpoints are in the files."""
    for each in manifests:
        if each.kind == ENDPOINTS:
            yield each.namespace, each.name
        elif each.kind == ENDPOINT_SLICE:
            yield each.namespace, str(_labels(each.obj).get(_SERVICE_NAME, ""))


def _of_alias(service: Manifest, aliases: Mapping[tuple[str, str], Manifest]) -> Iterator[Mistake]:
    target = service.obj["spec"].get("externalName")
    if not isinstance(target, str):
        return
    if parse_address(target):
        reason = "is an address: DNS answers with a CNAME to a name of these digits; use a Service without a selector"
        yield Mistake(service, "spec.externalName", f"{reason} and an EndpointSlice")
        return
    seen, at = [service], _target(service)
    while at in aliases and aliases[at] not in seen:
        seen.append(aliases[at])
        at = _target(aliases[at])
    if at == (service.namespace, service.name):
        way = " → ".join(f"{each.namespace}/{each.name}" for each in (*seen, service))
        yield Mistake(service, "spec.externalName", f"leads back to itself: {way}")


def _target(service: Manifest) -> tuple[str, str]:
    """Returns the namespace and name of the Service that an ExternalName leads to, ("", "") for a name elsewhere."""
    text = str(service.obj["spec"].get("externalName") or "").lower().removesuffix(".")
    name, _, below = text.partition(".")
    namespace, _, suffix = below.partition(".")
    return (namespace, name) if suffix == _CLUSTER_SUFFIX else ("", "")


def _labels(obj: object) -> dict[str, str]:
    labels = _below(obj, "metadata", "labels")
    return labels if isinstance(labels, dict) else {}


def _below(obj: object, *fields: str) -> object:
    for field in fields:
        obj = obj.get(field) if isinstance(obj, dict) else None
    return obj
