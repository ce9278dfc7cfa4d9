"""The kinds of CustomResourceDefinitions: a stored definition changes the catalogue, at once and everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Any, Final

import msgspec

from kdns.controlplane.apimachinery.conditions import is_true
from kdns.controlplane.apimachinery.errors import Cause, method_not_allowed
from kdns.controlplane.apimachinery.human_duration import since
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.apimachinery.structural import Schema, merged, parsed
from kdns.controlplane.kinds.catalogue import Catalogue
from kdns.controlplane.kinds.columns import DEFAULT, NAME, Column, Printer, name
from kdns.controlplane.kinds.conversion import ScalePaths, VersionConversion, version_conversion
from kdns.controlplane.kinds.custom import jsonpath
from kdns.controlplane.kinds.custom.definition import (
    CLEANUP,
    default_definition,
    is_complete,
    status_of,
    validate_definition,
)
from kdns.controlplane.kinds.strategy import COMMON, NAMED, Hooks, Strategy, SubresourceStrategy, on_create
from kdns.controlplane.kinds.validation import validate_metadata
from kdns.controlplane.schema.custom.rules import rule_paths
from kdns.controlplane.schema.custom.types import defaulted
from kdns.controlplane.schema.custom.validation import Validator
from kdns.controlplane.storage.field_selectors import FieldLabels, fields
from kdns.controlplane.storage.object_meta import content, is_terminating
from kdns.spelling import listed

_AGE: Final[Json] = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def printer_of(columns: Sequence[Json]) -> Printer:
    """additionalPrinterColumns; without any, the age."""
    rows = [(column["jsonPath"], column["type"]) for column in columns or (_AGE,)]

    def cells(obj: Json, now_s: float) -> list[Any]:
        return [name(obj), *(_cell(jsonpath.first(path, obj), kind, now_s) for path, kind in rows)]

    return Printer((NAME, *map(_column, columns or (_AGE,))), cells)


def _column(column: Json) -> Column:
    path = column["jsonPath"]
    about = column.get("description") or f"The field {path}."
    return Column(
        column["name"], about, column.get("priority") or 0, column["type"], column.get("format") or "", is_text=True
    )


def _cell(value: Any, kind: str, now_s: float) -> Any:
    match kind, value:
        case _, None:
            return None
        case "string", dict() | list():
            return msgspec.json.encode(value).decode()
        case "string", bool():
            return str(value).lower()
        case "string", _:
            return str(value)
        case "date", str():
            return since(value, now_s)
        case "boolean", bool():
            return value
        case "integer", int() | float() if not isinstance(value, bool):
            return int(value)
        case "number", int() | float() if not isinstance(value, bool):
            return value
    return None


_PLACES_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class _Version:
    """One served version of a definition."""

    source: Json
    schema: Schema

    @property
    def subresources(self) -> tuple[str, ...]:
        subresources = self.source.get("subresources") or {}
        return tuple(name for name in ("status", "scale") if name in subresources)


class CustomKinds:
    """The kinds of the definitions in one catalogue.

    The `Kind` of a resource, and of each of its versions, stays the same value while the server runs, even if the
    definition changes, or is deleted and recreated. So objects, watches and references stay valid. Objects are stored
    in the version that was the storage version at first.

    A mixed kind has objects of several versions from earlier starts, or versions with different schemas.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._kinds: dict[str, Kind] = {}
        self._versions: dict[tuple[Kind, str], Kind] = {}
        self._mixed: set[Kind] = set()
        self._served: dict[str, Kind] = {}
        self._sources: dict[str, Mapping[str, _Version]] = {}

    def strategy(self) -> Strategy:
        return Strategy(
            validate_definition,
            DEFAULT,
            defaults=default_definition,
            prepare=self._prepare,
            subresources={"status": SubresourceStrategy(prepare=self._prepare)},
            field_labels=FieldLabels(NAMED),
            warnings=warnings_of,
            hooks=Hooks(lambda _, old, new: self.define(new) if new else self.undefine(old or {})),
        )

    def _status(self, definition: Json, before: Json) -> Json:
        if not is_complete(definition):
            return before  # validation refuses it
        own = self._kinds.get(definition["metadata"]["name"])
        group = definition["spec"]["group"]
        others = (kind for kind in self._catalogue if kind.group == group and kind.stored_kind is not own)
        return status_of(definition, others, before)

    def _prepare(self, new: Json, old: Json | None) -> Json:
        """Sets the status that follows from the definition; a client may set storedVersions and conditions."""
        if old is None:
            new = _with_finalizer(new)
            return {**new, "status": self._status(new, {})}
        status = self._status(new, new.get("status") or {})
        return {**new, "status": status} if status else new

    def define(self, definition: Json) -> None:
        """Serves the kind of a stored definition if it is established, in place of an earlier definition's."""
        definition_name, status = definition["metadata"]["name"], definition.get("status") or {}
        if not is_true(definition, "Established"):
            return
        spec, names = definition["spec"], {**definition["spec"]["names"], **status["acceptedNames"]}
        before = self._sources.get(definition_name) or {}
        versions = {
            version["name"]: _version_of(version, before.get(version["name"]))
            for version in spec["versions"]
            if version["served"] or version["storage"]
        }
        storage = next(version["name"] for version in spec["versions"] if version["storage"])
        self.undefine(definition)
        self._sources[definition_name] = versions
        kind = self._kinds.get(definition_name)
        if kind is None:
            kind = self._kinds[definition_name] = Kind(spec["group"], storage, names["kind"], names["plural"])
            if list(status["storedVersions"]) != [storage]:
                self._mixed.add(kind)
        own = versions.get(kind.version, versions[storage])
        _follow(kind, spec, names, own)
        others = [other.schema for other in versions.values() if other.source["schema"] != own.source["schema"]]
        if others:  # the stored objects may have the fields of each version
            self._mixed.add(kind)
            kind.schema = reduce(merged, others, own.schema)
        served = [self._version(kind, version["name"]) for version in spec["versions"] if version["served"]]
        for served_kind in served:
            _follow(served_kind, spec, names, versions[served_kind.version])
        converted = [served_kind for served_kind in served if served_kind is not kind]
        conversions = [_conversion(other, versions[other.version].source) for other in converted]
        strategies = {other: _strategy(other, versions[other.version], definition) for other in converted}
        self._catalogue.put(kind, _strategy(kind, own, definition), served, conversions, strategies)
        self._served[definition_name] = kind

    def _version(self, kind: Kind, name: str) -> Kind:
        """The kind of a served version: the stored kind itself if its objects are of this version."""
        if name == kind.version and kind not in self._mixed:
            return kind
        return self._versions.setdefault((kind, name), replace(kind, version=name, stored_as=kind))

    def define_new(self, definition: Json) -> None:
        """Serves the kind of a definition that is not stored, if it is valid and its names are free."""
        full = default_definition(definition)
        if validate_definition(full, None):
            return
        self.define({**full, "status": self._status(full, {})})

    def undefine(self, definition: Json) -> None:
        self._sources.pop(definition["metadata"]["name"], None)
        if kind := self._served.pop(definition["metadata"]["name"], None):
            self._catalogue.remove(kind)


def _version_of(source: Json, before: _Version | None) -> _Version:
    """An unchanged schema is not parsed again."""
    if before and before.source["schema"] == source["schema"]:
        return replace(before, source=source)
    return _Version(source, parsed(source["schema"]["openAPIV3Schema"]))


def _with_finalizer(definition: Json) -> Json:
    metadata = definition["metadata"]
    finalizers = metadata.get("finalizers") or []
    if CLEANUP in finalizers:
        return definition
    return {**definition, "metadata": {**metadata, "finalizers": [*finalizers, CLEANUP]}}


def _follow(kind: Kind, spec: Json, names: Json, version: _Version) -> None:
    kind.namespaced = spec["scope"] == "Namespaced"
    kind.kind, kind.singular, kind.list_kind = names["kind"], names["singular"], names["listKind"]
    kind.short_names = tuple(names.get("shortNames") or ())
    kind.categories = tuple(names.get("categories") or ())
    kind.subresources, kind.schema, kind.source = version.subresources, version.schema, version.source
    kind.deprecation = _deprecation(kind, version.source)


def _deprecation(kind: Kind, version: Json) -> str:
    if not version.get("deprecated"):
        return ""
    return version.get("deprecationWarning") or f"{kind.api_version} {kind.kind} is deprecated"


def _conversion(kind: Kind, version: Json) -> VersionConversion:
    printer = printer_of(version.get("additionalPrinterColumns") or ())
    return version_conversion(kind, _field_labels(kind, version), printer)


def _field_labels(kind: Kind, version: Json) -> FieldLabels:
    paths = [row["jsonPath"].removeprefix(".") for row in version.get("selectableFields") or ()]
    return FieldLabels({**(COMMON if kind.namespaced else NAMED), **fields(*paths)})


def _strategy(kind: Kind, version: _Version, definition: Json) -> Strategy:
    schema, has_status = version.schema, "status" in version.subresources
    ends, validator = is_terminating(definition), cache(lambda: Validator(schema))

    def validate(new: Json, old: Json | None) -> list[Cause]:
        causes = validate_metadata(new, old, namespaced=kind.namespaced, any_finalizer=True)
        return causes + validate_values(new, old)

    def validate_values(new: Json, _old: Json | None) -> list[Cause]:
        return validator().causes(new)

    def prepare_create(obj: Json) -> Json:
        if ends:
            raise method_not_allowed()
        return {name: value for name, value in obj.items() if name != "status"} if has_status else obj

    scale = (version.source.get("subresources") or {}).get("scale")
    return Strategy(
        validate,
        printer_of(version.source.get("additionalPrinterColumns") or ()),
        defaults=lambda obj: defaulted(schema, obj),
        prepare=on_create(prepare_create),
        subresources=dict.fromkeys(("status", "scale"), SubresourceStrategy(validate_values)),
        generation=content if has_status else _all_but_metadata,
        field_labels=_field_labels(kind, version.source),
        allow_unconditional_update=False,
        scale=_scale_paths(scale) if scale else ScalePaths(),
    )


def _all_but_metadata(obj: Json) -> Json:
    return {name: value for name, value in obj.items() if name != "metadata"}


def _scale_paths(scale: Mapping[str, Any]) -> ScalePaths:
    def names(field: str) -> Sequence[str]:
        return tuple(jsonpath.field_names(scale.get(field) or ""))

    return ScalePaths(names("specReplicasPath"), names("statusReplicasPath"), names("labelSelectorPath"), is_text=True)


def warnings_of(definition: Json) -> Iterable[str]:
    """Parts of a definition without effect: columns that stay empty, and rules in CEL, by their fields."""
    for version in (definition.get("spec") or {}).get("versions") or ():
        for column in version.get("additionalPrinterColumns") or ():
            if not jsonpath.is_supported(path := column["jsonPath"]):
                yield f"{version['name']}: column {column['name']} stays empty: unsupported JSONPath {path}"
        places = list(rule_paths(version["schema"]["openAPIV3Schema"]))
        if places:
            shown = listed((place or "the object" for place in places), _PLACES_MAX)
            yield f"{version['name']}: x-kubernetes-validations are not evaluated: those of {shown}"
