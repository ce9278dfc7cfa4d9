"""The rules of Namespaces, ConfigMaps, Secrets, ServiceAccounts and Events (kube-apiserver: ValidateConfigMap…)."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping

from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.field_errors import frozen, immutable, invalid_value, invalid_values, required
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.validation import (
    IMMUTABLE,
    finalizer_causes,
    validate_meta,
    validate_meta_update,
)

MAX_BYTES = 1024 * 1024
"""The largest size of the contents of a ConfigMap or Secret."""

_SEALED = "field is immutable when `immutable` is set"
_NEEDED = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}
_TOO_LONG = f"may not be more than {MAX_BYTES} bytes"


def validate_config_map(obj: Json, old: Json | None = None) -> list[Cause]:
    """Validates keys, size, and changes of an immutable ConfigMap."""
    causes = _sealed(obj, old, ("data", "binaryData")) if old else []
    causes += validate_meta(obj, formats.dns_subdomain)
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
    """Validates keys, size, the keys that its type requires, and immutability. Differs: their contents are free."""
    causes: list[Cause] = []
    if old:
        if obj.get("type") != old.get("type"):
            causes.append(immutable("type", obj.get("type"), IMMUTABLE))
        causes += _sealed(obj, old, ("data",))
    causes += validate_meta(obj, formats.dns_subdomain)
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
    causes = validate_meta_update(old, obj)
    if old.get("immutable"):
        causes += [] if obj.get("immutable") else [frozen("immutable", _SEALED)]
        causes += [frozen(field, _SEALED) for field in fields if (obj.get(field) or {}) != (old.get(field) or {})]
    return causes


def validate_service_account(obj: Json, old: Json | None = None) -> list[Cause]:
    """Validates metadata alone."""
    causes = validate_meta_update(old, obj) if old else []
    return causes + validate_meta(obj, formats.dns_subdomain)


def validate_namespace(obj: Json, old: Json | None = None) -> list[Cause]:
    """Checks that a Namespace's name is a DNS label, and that its finalizers are qualified."""
    causes = validate_meta_update(old, obj) if old else []
    causes += validate_meta(obj, formats.dns_label, namespaced=False)
    return causes + ([] if old else validate_namespace_finalizers(obj))


def validate_namespace_finalizers(obj: Json, old: Json | None = None) -> list[Cause]:
    """Validates spec.finalizers, which the subresource `finalize` changes.

    As in kube-apiserver, only its causes have indexes.
    """
    rows = enumerate((obj.get("spec") or {}).get("finalizers") or [])
    paths = ((f"spec.finalizers[{index}]" if old else "spec.finalizers", name) for index, name in rows)
    return [cause for path, name in paths for cause in finalizer_causes(path, name)]


def validate_namespace_status(obj: Json, _old: Json | None = None) -> list[Cause]:
    """Checks that the phase matches whether the Namespace is terminating."""
    going = bool(obj["metadata"].get("deletionTimestamp"))
    wanted, phase = "Terminating" if going else "Active", (obj.get("status") or {}).get("phase")
    if phase == wanted:
        return []
    why = f"may only be '{wanted}' if `deletionTimestamp` is {'not ' if going else ''}empty"
    return [invalid_value("status.Phase", phase, why)]


def validate_event(obj: Json, old: Json | None = None) -> list[Cause]:
    """Checks that an Event is in the namespace of the object that it is about, or in `default` for cluster-scoped
    objects.
    """
    causes = validate_meta_update(old, obj) if old else []
    causes += validate_meta(obj, formats.dns_subdomain)
    about, mine = (obj.get("involvedObject") or {}).get("namespace") or "", obj["metadata"].get("namespace")
    if (about or "default") != mine and not (not about and mine in {"default", "kube-system"}):
        causes.append(invalid_value("involvedObject.namespace", about, "does not match event.namespace"))
    return causes
