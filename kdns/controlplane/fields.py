"""Field selectors: `status.phase=Running,metadata.name!=a` on the few fields each kind allows.

Which fields: Kubernetes documentation, "Field Selectors", list of supported fields. As by kube-apiserver,
status.podIPs is taken but never set.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from kdns.controlplane.kinds import (
    EVENT,
    JOB,
    NAMESPACE,
    NODE,
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    SECRET,
    SERVICE,
    Json,
    Kind,
)
from kdns.controlplane.status import bad_request

Getter: TypeAlias = Callable[[Json], str]


def _at(path: tuple[str, ...], obj: Json) -> str:
    value: Any = obj
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _flag(path: tuple[str, ...], obj: Json) -> str:
    return _at(path, obj) or "false"


def _count(path: tuple[str, ...], obj: Json) -> str:
    return _at(path, obj) or "0"


def _nothing(_obj: Json) -> str:
    return ""


def _event_source(obj: Json) -> str:
    return _at(("source", "component"), obj) or _at(("reportingComponent",), obj)


def _getters(*paths: str) -> dict[str, Getter]:
    return {path: partial(_at, tuple(path.split("."))) for path in paths}


_NAME = _getters("metadata.name")
_COMMON = _getters("metadata.name", "metadata.namespace")
_REPLICAS = {"status.replicas": partial(_count, ("status", "replicas"))}
_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_BY_KIND: dict[Kind, dict[str, Getter]] = {
    POD: {
        **_COMMON,
        **_getters(
            "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
            "status.phase", "status.podIP", "status.nominatedNodeName",
        ),
        "spec.host": partial(_at, ("spec", "nodeName")),
        "spec.hostNetwork": partial(_flag, ("spec", "hostNetwork")),
        "status.podIPs": _nothing,
    },
    SERVICE: {**_COMMON, **_getters("spec.clusterIP", "spec.type")},
    NAMESPACE: {**_NAME, **_getters("status.phase")},
    NODE: {**_NAME, "spec.unschedulable": partial(_flag, ("spec", "unschedulable"))},
    EVENT: {
        **_COMMON,
        **_getters(*(f"involvedObject.{name}" for name in _INVOLVED), "reason", "reportingComponent", "type"),
        "source": _event_source,
    },
    SECRET: {**_COMMON, **_getters("type")},
    REPLICATION_CONTROLLER: {**_COMMON, **_REPLICAS},
    REPLICA_SET: {**_COMMON, **_REPLICAS},
    JOB: {**_COMMON, "status.successful": partial(_count, ("status", "succeeded"))},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One field compared with one text."""

    getter: Getter
    equal: bool
    value: str


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """All terms must hold; none selects everything.

    `name` is the one name that objects may have, known from their key without reading them; "" for any.
    """

    terms: tuple[FieldTerm, ...] = ()
    name: str = ""

    def matches(self, obj: Json) -> bool:
        """Whether the object is selected; an absent field reads as ""."""
        return all((term.getter(obj) == term.value) == term.equal for term in self.terms)


EVERYTHING = FieldSelector()

_TERM = re.compile(r"(?P<field>[^=!\\,]+)(?P<sign>==|!=|=)(?P<value>(?:\\.|[^\\,])*)")


def parse(kind: Kind, text: str) -> FieldSelector:
    """The selector that `text` spells; blank text selects everything.

    Raises StatusError 400 for a text that cannot be read and for a field that `kind` does not offer.
    """
    if not text:
        return EVERYTHING
    getters = _BY_KIND.get(kind, _COMMON)
    terms, name = [], ""
    for part in re.split(r"(?<!\\),", text):
        if not part:
            continue
        match = _TERM.fullmatch(part)
        if not match:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        getter = getters.get(match["field"])
        if getter is None:
            raise bad_request(_unsupported(kind, match["field"]))
        value = re.sub(r"\\(.)", r"\1", match["value"])
        if match["field"] == "metadata.name" and match["sign"] != "!=" and value and not name:
            name = value
        else:
            terms.append(FieldTerm(getter, match["sign"] != "!=", value))
    return FieldSelector(tuple(terms), name)


def _unsupported(kind: Kind, field: str) -> str:
    if kind == JOB:
        return f'field label "{field}" not supported for batchv1.Job'
    if kind in _BY_KIND:
        return f"field label not supported: {field}"
    return f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'
