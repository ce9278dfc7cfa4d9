"""Manifests that the API accepts but that will not work: the rules of `kdns check` on a cluster, before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kdns.cluster.objects import EndpointSlice
from kdns.cluster.observed import NetworkPolicy, Workload
from kdns.cluster.readiness import SERVICE_LABEL
from kdns.controlplane.apimachinery.inert import CRON_JOB
from kdns.controlplane.apimachinery.kinds import ENDPOINTS, JOB, SERVICE, WORKLOADS
from kdns.controlplane.manifests.manifest import Manifest, Mistake
from kdns.diagnosis.problem import NOTE, Problem
from kdns.diagnosis.rules import problems
from kdns.diagnosis.view import DECODED, KINDS, ClusterView, Observed

_JOB_NAMES: Final = ("job-name", "batch.kubernetes.io/job-name")


def manifest_problems(manifests: Sequence[Manifest]) -> list[Mistake]:
    """The problems of the Services of manifests that are applied together, without notes."""
    services = {(manifest.namespace, manifest.name): manifest for manifest in manifests if manifest.kind == SERVICE}
    view = ClusterView.holding(_objects(manifests), KINDS, is_running=False)
    return [
        Mistake(services[problem.key], problem.field, _reason(problem))
        for problem in problems(view)
        if problem.severity < NOTE and problem.kind == SERVICE.kind and problem.key in services
    ]


def _reason(problem: Problem) -> str:
    """Leaves out remedies that are commands: they would change the cluster, not the manifest."""
    has_advice = problem.remedy and not problem.remedy.startswith("kubectl ")
    return f"{problem.evidence}; {problem.remedy}" if has_advice else problem.evidence


def _objects(manifests: Sequence[Manifest]) -> Iterator[Observed]:
    """Skips objects that do not decode: they have mistakes, which are reported elsewhere."""
    for manifest in manifests:
        obj = manifest.obj
        metadata = {**obj["metadata"], "namespace": manifest.namespace}
        try:
            if template := _template(manifest, obj):
                spec = {"template": template, "replicas": (_object(obj, "spec") or {}).get("replicas", 1)}
                yield msgspec.convert({"metadata": metadata, "spec": spec, "kind": manifest.kind.kind}, Workload)
            elif manifest.kind == ENDPOINTS:
                yield from _slices(manifest, obj)
            elif (decoded := DECODED.get(manifest.kind.kind)) and decoded not in {Workload, NetworkPolicy}:
                yield msgspec.convert({**obj, "metadata": metadata}, decoded)
        except (msgspec.ValidationError, TypeError):
            continue


def _template(manifest: Manifest, obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The template of an object's Pods, with the labels that its controller adds; None for other kinds."""
    if manifest.kind == CRON_JOB:
        return _object(obj, "spec", "jobTemplate", "spec", "template")
    template = _object(obj, "spec", "template") if manifest.kind in {JOB, *WORKLOADS} else None
    if template is None or manifest.kind != JOB:
        return template
    metadata = _object(template, "metadata") or {}
    labels = {**(metadata.get("labels") or {}), **dict.fromkeys(_JOB_NAMES, manifest.name)}
    return {**template, "metadata": {**metadata, "labels": labels}}


def _slices(manifest: Manifest, obj: Mapping[str, Any]) -> Iterator[EndpointSlice]:
    """A slice per subset of Endpoints, with the fields that rules on manifests read."""
    for number, subset in enumerate(obj.get("subsets") or ()):
        metadata = {
            "name": f"{manifest.name}-{number}",
            "namespace": manifest.namespace,
            "labels": {SERVICE_LABEL: manifest.name},
        }
        rows = [(row, True) for row in subset.get("addresses") or ()]
        rows += [(row, False) for row in subset.get("notReadyAddresses") or ()]
        endpoints = [{"addresses": [row["ip"]], "conditions": {"ready": ready}} for row, ready in rows]
        obj = {"metadata": metadata, "endpoints": endpoints, "ports": subset.get("ports") or ()}
        yield msgspec.convert(obj, EndpointSlice)


def _object(obj: object, *fields: str) -> Mapping[str, Any] | None:
    for field in fields:
        obj = obj.get(field) if isinstance(obj, dict) else None
    return obj if isinstance(obj, dict) else None
