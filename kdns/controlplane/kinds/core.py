"""Namespaces, ConfigMaps, Secrets, ServiceAccounts and Events (kube-apiserver: ValidateConfigMap and others)."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.field_errors import frozen, immutable, invalid_value, invalid_values, required
from kdns.controlplane.apimachinery.human_duration import since
from kdns.controlplane.apimachinery.kinds import CONFIG_MAP, EVENT, NAMESPACE, SECRET, SERVICE_ACCOUNT, Json, Kind
from kdns.controlplane.kinds.columns import Column, Printer, name, printer_of
from kdns.controlplane.kinds.strategy import COMMON, NAMED, DeleteStrategy, Strategy, SubresourceStrategy, on_create
from kdns.controlplane.kinds.validation import (
    IMMUTABLE,
    finalizer_causes,
    validate_metadata,
)
from kdns.controlplane.storage.field_selectors import FieldLabels, component_of, fields


def event_cells(event: Json, now_s: float) -> list[Any]:
    subject, series = event.get("involvedObject", {}), event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("firstTimestamp"))
    return [
        since(next(filter(None, times), event.get("eventTime")), now_s),
        event.get("type", ""),
        event.get("reason", ""),
        "/".join(filter(None, (subject.get("kind", "").lower(), subject.get("name")))),
        event.get("message", "").strip(),
        name(event),
    ]


_NAMESPACES: Final = printer_of(("Status=status.phase", "Age"))
_CONFIG_MAPS: Final = printer_of(("Data=#data+binaryData", "Age"))
_SECRETS: Final = printer_of(("Type=type", "Data=#data", "Age"))
_SERVICE_ACCOUNTS: Final = printer_of(("Secrets=#secrets", "Age"))
_EVENTS: Final = Printer(
    (
        Column("Last Seen", "lastTimestamp"),
        Column("Type", "type"),
        Column("Reason", "reason"),
        Column("Object", "involvedObject"),
        Column("Message", "message"),
        Column("Name", "metadata.name", priority=1, format="name"),
    ),
    event_cells,
)


def default_secret(obj: Json) -> Json:
    """The type is Opaque; stringData is merged into data; whitespace in data is removed."""
    text = {key: b64encode((value or "").encode()).decode() for key, value in (obj.get("stringData") or {}).items()}
    binary = {key: "".join((value or "").split()) for key, value in (obj.get("data") or {}).items()}
    others = {key: value for key, value in obj.items() if key not in {"stringData", "data", "type"}}
    data = {**binary, **text}
    return {**others, **({"data": data} if data else {}), "type": obj.get("type") or "Opaque"}


CONTENT_FINALIZER: Final = "kubernetes"
"""In spec.finalizers until the content of the Namespace is deleted. Owners of other finalizers remove those."""

_NAME_LABEL: Final = "kubernetes.io/metadata.name"


def default_namespace(obj: Json) -> Json:
    meta, spec = obj.get("metadata") or {}, obj.get("spec") or {}
    labels = {**(meta.get("labels") or {}), _NAME_LABEL: meta.get("name", "")}
    status = obj.get("status") or {}
    return {
        **obj,
        "metadata": {**meta, "labels": labels},
        "spec": spec,
        "status": {**status, "phase": status.get("phase") or "Active"},
    }


def new_namespace(obj: Json) -> Json:
    spec, finalizers = obj["spec"], namespace_finalizers(obj)
    listed = finalizers if CONTENT_FINALIZER in finalizers else [*finalizers, CONTENT_FINALIZER]
    return {**obj, "spec": {**spec, "finalizers": listed}, "status": {"phase": "Active"}}


def namespace_finalizers(obj: Json) -> list[str]:
    return list((obj.get("spec") or {}).get("finalizers") or ())


def terminating_namespace(obj: Json) -> Json:
    return {**obj, "status": {**(obj.get("status") or {}), "phase": "Terminating"}}


MAX_BYTES = 1024 * 1024
"""Of the contents of a ConfigMap or Secret."""

_SEALED = "field is immutable when `immutable` is set"
_NEEDED = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}
_TOO_LONG = f"may not be more than {MAX_BYTES} bytes"


def validate_config_map(obj: Json, old: Json | None = None) -> list[Cause]:
    causes = validate_metadata(obj, old) + (_sealed(obj, old, ("data", "binaryData")) if old else [])
    text, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    causes += _keys("data", text)
    for key in text:
        if key in binary:
            causes.append(invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
    causes += _keys("binaryData", binary)
    if sum(len(value.encode()) for value in text.values()) + _decoded_bytes(binary) > MAX_BYTES:
        causes.append(Cause("[]", "Too long", _TOO_LONG))
    return causes


def validate_secret(obj: Json, old: Json | None = None) -> list[Cause]:
    """Checks keys, size, the keys that the type requires, and immutability. Differs: their contents are not checked."""
    causes = validate_metadata(obj, old)
    if old:
        if obj.get("type") != old.get("type"):
            causes.append(immutable("type", obj.get("type"), IMMUTABLE))
        causes += _sealed(obj, old, ("data",))
    contents = obj.get("data") or {}
    causes += _keys("data", contents)
    if _decoded_bytes(contents) > MAX_BYTES:
        causes.append(Cause("data", "Too long", _TOO_LONG))
    needed = _NEEDED.get(obj.get("type") or "", ())
    return causes + [required(f"data[{key}]") for key in needed if key not in contents]


def _keys(field: str, contents: Mapping[str, str]) -> list[Cause]:
    return [cause for key in contents for cause in invalid_values(f"{field}[{key}]", key, formats.config_key(key))]


def _decoded_bytes(contents: Mapping[str, str]) -> int:
    return sum(len(b64decode(value)) for value in contents.values())


def _sealed(obj: Json, old: Json, fields: tuple[str, ...]) -> list[Cause]:
    causes: list[Cause] = []
    if old.get("immutable"):
        causes += [] if obj.get("immutable") else [frozen("immutable", _SEALED)]
        causes += [frozen(field, _SEALED) for field in fields if (obj.get(field) or {}) != (old.get(field) or {})]
    return causes


def validate_namespace(obj: Json, old: Json | None = None) -> list[Cause]:
    causes = validate_metadata(obj, old, formats.dns_label, namespaced=False)
    return causes + ([] if old else validate_namespace_finalizers(obj))


def validate_namespace_finalizers(obj: Json, old: Json | None = None) -> list[Cause]:
    """spec.finalizers, which the subresource `finalize` changes.

    Only there do causes have indexes, as in kube-apiserver.
    """
    rows = enumerate((obj.get("spec") or {}).get("finalizers") or [])
    paths = ((f"spec.finalizers[{index}]" if old else "spec.finalizers", name) for index, name in rows)
    return [cause for path, name in paths for cause in finalizer_causes(path, name)]


def validate_namespace_status(obj: Json, _old: Json | None = None) -> list[Cause]:
    is_terminating = bool(obj["metadata"].get("deletionTimestamp"))
    expected, phase = "Terminating" if is_terminating else "Active", (obj.get("status") or {}).get("phase")
    if phase == expected:
        return []
    why = f"may only be '{expected}' if `deletionTimestamp` is {'not ' if is_terminating else ''}empty"
    return [invalid_value("status.Phase", phase, why)]


def validate_event(obj: Json, old: Json | None = None) -> list[Cause]:
    """An Event is in the namespace of its object, or in `default` for a cluster-scoped object."""
    causes = validate_metadata(obj, old)
    about, mine = (obj.get("involvedObject") or {}).get("namespace") or "", obj["metadata"].get("namespace")
    if (about or "default") != mine and not (not about and mine in {"default", "kube-system"}):
        causes.append(invalid_value("involvedObject.namespace", about, "does not match event.namespace"))
    return causes


_INVOLVED: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    NAMESPACE: Strategy(
        validate_namespace,
        _NAMESPACES,
        subresources={
            "status": SubresourceStrategy(validate_namespace_status),
            "finalize": SubresourceStrategy(validate_namespace_finalizers),
        },
        defaults=default_namespace,
        prepare=on_create(new_namespace),
        generation=None,
        field_labels=FieldLabels({**NAMED, **fields("status.phase")}),
        delete=DeleteStrategy(collection=False, protected=frozenset({"default", "kube-public", "kube-system"})),
    ),
    CONFIG_MAP: Strategy(validate_config_map, _CONFIG_MAPS, generation=None),
    SECRET: Strategy(
        validate_secret,
        _SECRETS,
        defaults=default_secret,
        generation=None,
        field_labels=FieldLabels({**COMMON, **fields("type")}),
    ),
    SERVICE_ACCOUNT: Strategy(
        validate_metadata, _SERVICE_ACCOUNTS, generation=None, delete=DeleteStrategy(returns_object=True)
    ),
    EVENT: Strategy(
        validate_event,
        _EVENTS,
        generation=None,
        field_labels=FieldLabels(
            {
                **COMMON,
                **fields(*(f"involvedObject.{name}" for name in _INVOLVED), "reason", "reportingComponent", "type"),
                "source": component_of,
            }
        ),
        allow_create_on_update=True,
    ),
}
