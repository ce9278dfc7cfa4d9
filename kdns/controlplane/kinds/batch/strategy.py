"""The strategy of Jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kdns.controlplane.apimachinery.kinds import JOB, Kind
from kdns.controlplane.kinds import warnings
from kdns.controlplane.kinds.apps.columns import TEMPLATE
from kdns.controlplane.kinds.batch.defaults import default_job, with_job_selector
from kdns.controlplane.kinds.batch.validation import validate_job
from kdns.controlplane.kinds.columns import printer_of
from kdns.controlplane.kinds.strategy import COMMON, DeleteStrategy, Strategy, on_create, with_status
from kdns.controlplane.storage.field_selectors import FieldLabels, count

STRATEGIES: Final[Mapping[Kind, Strategy]] = {
    JOB: Strategy(
        validate_job,
        printer_of(
            (
                "Status=@Complete,Failed,Suspended|Running",
                "Completions=status.succeeded|0/spec.completions|1",
                "Active=status.active|0",
                "Age",
                *TEMPLATE,
            )
        ),
        defaults=default_job,
        prepare=on_create(with_job_selector, with_status({})),
        field_labels=FieldLabels(
            {**COMMON, "status.successful": count("status.succeeded")},
            'field label "{}" not supported for Job',
        ),
        delete=DeleteStrategy(orphans=True, warning=warnings.JOBS_ORPHAN, makes_objects=True),
    ),
}
