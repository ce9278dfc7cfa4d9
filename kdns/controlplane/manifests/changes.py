"""What a pass over the manifests changed, as text: a line per object, and a summary beyond ten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from kdns.controlplane.apimachinery.annotations import MANIFEST_ANNOTATIONS
from kdns.controlplane.apimachinery.kinds import JOB, POD, SERVICE, WORKLOADS, Json, Kind
from kdns.controlplane.cluster_config import ClusterConfig

LINES_MAX: Final = 10
"""Changes of one pass that get a line of their own."""
_FIELDS_MAX: Final = 4
Verb: TypeAlias = Literal["created", "configured", "replaced", "deleted"]
_METADATA: Final = ("labels", "annotations", "finalizers", "ownerReferences")
"""Metadata that a manifest defines; the server sets other fields."""


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """The change of one object, in the words of kubectl; `fields` are those that have other values."""

    path: str
    kind: Kind
    namespace: str
    name: str
    verb: Verb
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        kind = ".".join(filter(None, (self.kind.kind.lower(), self.kind.group)))
        namespace = f" in namespace {self.namespace}" if self.namespace not in ("", "default") else ""
        more = ["…"] if len(self.fields) > _FIELDS_MAX else []
        fields = ", ".join([*self.fields[:_FIELDS_MAX], *more])
        return f"{self.path}: {kind}/{self.name}{namespace} {self.verb}" + (f" ({fields})" if fields else "")


def changed_fields(before: Json, after: Json) -> tuple[str, ...]:
    """Fields that differ, to the depth of `spec.ports`, except those that only the server sets."""
    old, new = (dict(_fields(obj)) for obj in (before, after))
    return tuple(sorted(field for field in old.keys() | new.keys() if old.get(field) != new.get(field)))


def _fields(obj: Json) -> Iterator[tuple[str, object]]:
    for name, value in obj.items():
        if name in ("apiVersion", "kind"):
            continue
        if not isinstance(value, dict):
            yield name, value
            continue
        for below, content in value.items():
            if name != "metadata":
                yield f"{name}.{below}", content
            elif below == "annotations":
                yield (
                    "metadata.annotations",
                    {k: v for k, v in content.items() if k not in MANIFEST_ANNOTATIONS} or None,
                )
            elif below in _METADATA:
                yield f"metadata.{below}", content


@dataclass(slots=True)
class ChangeLog:
    """Collects the changes of a pass over the manifests, and reports them in a bounded number of lines.

    `progress` gets the current step of a pass as text.
    """

    config: ClusterConfig = field(default_factory=ClusterConfig)
    report: Callable[[str], None] = lambda _: None
    progress: Callable[[str], None] = lambda _text: None
    _first: list[ObjectChange] = field(default_factory=list)
    _counts: Counter[str] = field(default_factory=Counter)
    _remarks: list[str] = field(default_factory=list)
    _remarked: set[str] = field(default_factory=set)

    def add(self, change: ObjectChange, obj: Json) -> None:
        """Records the change, and a remark on ignored parts of `obj`, once per kind."""
        if len(self._first) < LINES_MAX:
            self._first.append(change)
        else:
            self._counts[change.verb] += 1
        subject, text = remark(self.config, change.kind, obj)
        if text and subject not in self._remarked and change.verb != "deleted":
            self._remarked.add(subject)
            self._remarks.append(text)

    def end(self, *, is_start: bool = False) -> None:
        """Reports the pass. At the start every object is new, so only the remarks are reported."""
        lines = [] if is_start else [*map(str, self._first)]
        if self._counts and not is_start:
            counts = ", ".join(f"{count} {verb}" for verb, count in self._counts.items())
            lines.append(f"and {self._counts.total()} more: {counts}")
        for line in (*lines, *self._remarks):
            self.report(line)
        self._first, self._counts, self._remarks = [], Counter(), []


def remark(config: ClusterConfig, kind: Kind, obj: Json) -> tuple[str, str]:
    """A remark about simulated or ignored parts of an object: its deduplication key and its text, or two ""."""
    name = "/".join(filter(None, (obj["metadata"].get("namespace"), obj["metadata"]["name"])))
    if kind.is_inert:
        return kind.kind, f"{kind.kind} {name}: stored, nothing acts on it"
    if kind in (POD, JOB, *WORKLOADS):
        pending = "Pods stay Pending: they are not simulated"
        return POD.kind, "Pods are simulated: no containers run" if config.simulate_pods else pending
    if kind is SERVICE and obj.get("spec", {}).get("type") == "LoadBalancer" and not config.lb_pool:
        return "LoadBalancer", f"Service {name}: without --lb-pool its load balancer stays pending"
    return "", ""
