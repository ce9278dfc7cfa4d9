"""The rules of PersistentVolumeClaims and PersistentVolumes (kube-apiserver: ValidatePersistentVolumeClaim…).

Differs: a refused change of what is fixed does not list the differences.
"""

from __future__ import annotations

from kdns.controlplane import formats
from kdns.controlplane.causes import each, forbidden, invalid_value, required, unsupported
from kdns.controlplane.kinds import Json
from kdns.controlplane.quantities import quantity
from kdns.controlplane.status import Cause
from kdns.controlplane.validation import IMMUTABLE, validate_meta, validate_meta_update

_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")
_RECLAIM = ("Delete", "Recycle", "Retain")
_FIXED = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
_NO_SOURCES = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)


def validate_claim(obj: Json, old: Json | None = None) -> list[Cause]:
    """Every broken rule of a claim; on update little but its size may change, and only once it is bound."""
    causes = validate_meta_update(old, obj) if old else []
    causes += validate_meta(obj, formats.dns_subdomain)
    causes += validate_claim_spec("spec", obj.get("spec") or {})
    return causes + _claim_changes(obj, old) if old else causes


def validate_claim_spec(path: str, spec: Json) -> list[Cause]:
    """The spec of a claim, also of one in a template."""
    modes = spec.get("accessModes") or []
    causes = [] if modes else [required(f"{path}.accessModes", "at least 1 access mode is required")]
    causes += _access_modes(path, modes)
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    causes += (
        [required(f"{path}.resources[storage]")] if size is None else _positive(f"{path}.resources[storage]", size)
    )
    return causes + _class_and_mode(path, spec)


def _access_modes(path: str, modes: list[str]) -> list[Cause]:
    causes = [unsupported(f"{path}.accessModes", mode, _MODES) for mode in modes if mode not in _MODES]
    if "ReadWriteOncePod" in modes and set(modes) != {"ReadWriteOncePod"}:
        causes.append(forbidden(f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes"))
    return causes


def _positive(path: str, size: object) -> list[Cause]:
    number = quantity(size)
    fits = number is not None and number > 0
    return [] if fits else [invalid_value(path, str(size), "must be greater than zero")]


def _class_and_mode(path: str, spec: Json) -> list[Cause]:
    name = spec.get("storageClassName") or ""
    causes = each(f"{path}.storageClassName", name, formats.dns_subdomain(name)) if name else []
    mode = spec.get("volumeMode")
    return causes + ([] if mode in (None, *_VOLUME_MODES) else [unsupported(f"{path}.volumeMode", mode, _VOLUME_MODES)])


def _claim_changes(obj: Json, old: Json) -> list[Cause]:
    """The volume may be named once; a bound claim may grow, but not below what it has."""
    before, after = old.get("spec") or {}, obj.get("spec") or {}
    bound = (old.get("status") or {}).get("phase") == "Bound"
    free = {"volumeAttributesClassName", *(() if before.get("volumeName") else ("volumeName",))}
    if bound:
        free.add("resources")
    if {k: v for k, v in after.items() if k not in free} != {k: v for k, v in before.items() if k not in free}:
        return [forbidden("spec", _FIXED)]
    wanted = quantity(((after.get("resources") or {}).get("requests") or {}).get("storage")) or 0
    has = quantity(((old.get("status") or {}).get("capacity") or {}).get("storage", 0)) or 0
    if bound and wanted < has:
        return [forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")]
    return []


def validate_volume(obj: Json, old: Json | None = None) -> list[Cause]:
    """Every broken rule of a volume; its source and mode are for life."""
    causes = validate_meta(obj, formats.dns_subdomain, namespaced=False)
    spec = obj.get("spec") or {}
    modes, capacity = spec.get("accessModes") or [], spec.get("capacity") or {}
    causes += _access_modes("spec", modes) if modes else [required("spec.accessModes")]
    if not capacity:
        causes.append(required("spec.capacity"))
    elif set(capacity) != {"storage"}:
        causes.append(unsupported("spec.capacity", capacity, ("storage",)))
    if "storage" in capacity:
        causes += _positive("spec.capacity[storage]", capacity["storage"])
    policy = spec.get("persistentVolumeReclaimPolicy")
    causes += [] if policy in _RECLAIM else [unsupported("spec.persistentVolumeReclaimPolicy", policy, _RECLAIM)]
    causes += _sources(spec)
    causes += _class_and_mode("spec", spec)
    if old:
        causes += validate_meta_update(old, obj) + _volume_changes(spec, old.get("spec") or {})
    return causes


def _sources(spec: Json) -> list[Cause]:
    given = [field for field in spec if field not in _NO_SOURCES and spec[field] is not None]
    if not given:
        return [required("spec", "must specify a volume type")]
    causes = [forbidden(f"spec.{field}", "may not specify more than 1 volume type") for field in given[1:]]
    for field in {"hostPath", "local", "nfs"} & set(given):
        causes += [] if spec[field].get("path") else [required(f"spec.{field}.path")]
    if "local" in given and not (spec.get("nodeAffinity") or {}).get("required"):
        causes.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    return causes


def _volume_changes(spec: Json, stored: Json) -> list[Cause]:
    def source(of: Json) -> Json:
        return {field: value for field, value in of.items() if field not in _NO_SOURCES}

    causes = []
    if source(spec) != source(stored):
        detail = "spec.persistentvolumesource is immutable after creation"
        causes.append(forbidden("spec.persistentvolumesource", detail))
    if spec.get("volumeMode") != stored.get("volumeMode"):
        causes.append(invalid_value("spec.volumeMode", spec.get("volumeMode"), IMMUTABLE))
    return causes
