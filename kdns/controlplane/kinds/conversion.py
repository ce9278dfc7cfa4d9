"""Conversions: what reads and writes the stored objects of a kind as objects of another kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds.columns import Printer
from kdns.controlplane.storage.field_selectors import FieldLabels


@dataclass(frozen=True, slots=True)
class Conversion:
    """`read` converts a stored object to `kind`; `write` returns the stored object with the changes of a sent one.

    `configuration` converts a configuration (server-side apply) to one of the stored object. The caller checks name,
    uid and resourceVersion in the metadata of the sent object.
    """

    kind: Kind
    read: Callable[[Json], Json]
    write: Callable[[Json, Json], Json]
    configuration: Callable[[Kind, Json], Json]


@dataclass(frozen=True, slots=True)
class VersionConversion(Conversion):
    """A conversion of whole objects: `stored` converts the result of `read` back to the stored kind.

    `field_labels` are the fields that its selectors may name, `printer` makes its tables; by default they are those of
    the stored kind.
    """

    stored: Callable[[Json], Json]
    field_labels: FieldLabels | None = None
    printer: Printer | None = None
