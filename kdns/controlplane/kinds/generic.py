"""The strategies of inert kinds: they are stored, checked against their schema and printed.

Each has its row of inert_kinds.txt, and few have more. Differs: defaults that follow from other fields, such as those
of Pod templates, are not filled in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.inert import (
    API_SERVICE,
    CRON_JOB,
    INERT,
    LEASE,
    RESOURCE_SLICE,
    InertKind,
)
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds import warnings
from kdns.controlplane.kinds.columns import printer_of
from kdns.controlplane.kinds.defaults import filler
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
from kdns.controlplane.kinds.validation import validate_metadata
from kdns.controlplane.storage.field_selectors import FieldLabels, fields
from kdns.controlplane.storage.object_meta import content


def generic(row: InertKind) -> Strategy:
    """Beside its schema, only an object's metadata is validated."""
    kind = row.kind
    is_rbac = kind.group == "rbac.authorization.k8s.io"
    name = formats.path_segment if is_rbac else formats.dns_subdomain

    def validate(new: Json, old: Json | None) -> list[Cause]:
        return validate_metadata(new, old, name, namespaced=kind.namespaced)

    return Strategy(
        validate,
        printer_of(row.columns),
        defaults=filler(row.defaults),
        prepare=on_create(with_status(row.status)) if "status" in kind.subresources else on_create(),
        generation=content if row.is_counted else None,
        delete=DeleteStrategy(returns_object=row.is_returned),
        warnings=lambda _: (warnings.inert(kind),),
    )


STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    **{kind: generic(row) for kind, row in INERT.items()},
    API_SERVICE: replace(
        generic(INERT[API_SERVICE]),
        subresources={
            "status": SubresourceStrategy(
                prepare=with_metadata_of_old("labels", "annotations", "finalizers", "ownerReferences")
            )
        },
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
