"""The strategies of inert kinds: what nothing in kdns acts on is stored, checked against its schema and printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.formats import Format
from kdns.controlplane.apimachinery.inert import API_SERVICE, CRON_JOB, INERT, LEASE, RESOURCE_SLICE, InertKind
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds import warnings
from kdns.controlplane.kinds.columns import printer_of
from kdns.controlplane.kinds.generic import defaults
from kdns.controlplane.kinds.strategy import (
    NAMED,
    DeleteStrategy,
    Strategy,
    SubresourceStrategy,
    no_warnings,
    on_create,
    with_metadata_of_old,
    with_status,
)
from kdns.controlplane.kinds.validation import validate_meta, validate_meta_update
from kdns.controlplane.storage.field_selectors import FieldLabels, fields
from kdns.controlplane.storage.object_meta import content

_NAMES: Final[dict[str, Format]] = {"rbac.authorization.k8s.io": formats.path_segment}
"""API group → the format of its names, if it is not a DNS subdomain."""


def generic(row: InertKind) -> Strategy:
    """Returns the strategy of a kind that nothing acts on: beside its schema, metadata alone is validated."""
    kind = row.kind
    name = _NAMES.get(kind.group, formats.dns_subdomain)

    def validate(new: Json, old: Json | None) -> list[Cause]:
        causes = validate_meta_update(old, new) if old else []
        return causes + validate_meta(new, name, namespaced=kind.namespaced)

    return Strategy(
        validate,
        printer_of(row.columns),
        defaults=defaults.defaults_of(row),
        prepare=on_create(with_status(row.status)) if "status" in kind.subresources else on_create(),
        generation=content if row.is_counted else None,
        delete=DeleteStrategy(returns_object=row.is_returned),
        warnings=lambda _: (warnings.inert(kind),),
    )


_KEPT: Final = with_metadata_of_old("labels", "annotations", "finalizers", "ownerReferences")

STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    **{kind: generic(row) for kind, row in INERT.items()},
    API_SERVICE: replace(
        generic(INERT[API_SERVICE]),
        subresources={"status": SubresourceStrategy(prepare=_KEPT)},
    ),
    CRON_JOB: replace(generic(INERT[CRON_JOB]), delete=DeleteStrategy(makes_objects=True)),
    RESOURCE_SLICE: replace(
        generic(INERT[RESOURCE_SLICE]),
        field_labels=FieldLabels(
            {**NAMED, **fields("spec.nodeName", "spec.driver")},
            f"field label not supported for {RESOURCE_SLICE.api_version}, Kind=ResourceSlice: {{}}",
        ),
    ),
    LEASE: replace(
        generic(INERT[LEASE]),
        warnings=no_warnings,  # its holders act on it
        allow_create_on_update=True,
        allow_unconditional_update=False,
    ),
}
