"""Inert kinds: the rows of inert_kinds.txt, and the kinds among them that code names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import Final

from kdns.controlplane.apimachinery.kinds import Json, Kind


@dataclass(frozen=True, slots=True)
class InertKind:
    """One row of the file; `defaults` are values by path, `columns` are paths by title."""

    kind: Kind
    columns: tuple[str, ...]
    defaults: Mapping[str, object]
    status: Json
    is_counted: bool
    is_returned: bool


def parsed(text: str) -> list[InertKind]:
    """Raises ValueError for a malformed line."""
    blocks: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("  "):
            blocks[-1].append(line.strip())
        elif line and not line.startswith("#"):
            blocks.append([line])
    return [_row(*block) for block in blocks]


def _row(first: str, *lines: str) -> InertKind:
    columns, defaults, status = [], {}, Json()
    for line in lines:
        word, _, argument = line.partition(" ")
        match word:
            case "column":
                columns.append(argument)
            case "default":
                path, _, value = argument.partition(" ")
                defaults[path] = json.loads(value)
            case "status":
                status = json.loads(argument)
            case _:
                raise ValueError(f"expected column, default or status, got {line!r}")
    api_version, kind, plural, *words = first.split()
    group, _, version = api_version.rpartition("/")
    lists = {name: tuple(value.split(",")) for name, _, value in (word.partition("=") for word in words) if value}
    inert = Kind(
        group,
        version,
        kind,
        plural,
        "cluster" not in words,
        lists.get("short", ()),
        lists.get("subresources", ()),
        lists.get("categories", ()),
        is_inert=True,
    )
    return InertKind(inert, tuple(columns), defaults, status, "uncounted" not in words, "returned" in words)


INERT: Final[Mapping[Kind, InertKind]] = {
    row.kind: row
    for row in parsed(resources.files("kdns.controlplane.apimachinery").joinpath("inert_kinds.txt").read_text("utf-8"))
}
"""The rows by kind, in the order of the file."""


def _named(api_version: str, name: str) -> Kind:
    return next(kind for kind in INERT if (kind.api_version, kind.kind) == (api_version, name))


CLAIM: Final = _named("v1", "PersistentVolumeClaim")
VOLUME: Final = _named("v1", "PersistentVolume")
CRON_JOB: Final = _named("batch/v1", "CronJob")
LEASE: Final = _named("coordination.k8s.io/v1", "Lease")
API_SERVICE: Final = _named("apiregistration.k8s.io/v1", "APIService")
RESOURCE_SLICE: Final = _named("resource.k8s.io/v1", "ResourceSlice")
AUTOSCALER: Final = _named("autoscaling/v2", "HorizontalPodAutoscaler")
AUTOSCALER_V1: Final = replace(AUTOSCALER, version="v1", stored_as=AUTOSCALER)
