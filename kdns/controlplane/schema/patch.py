"""The schema as strategic merge patch reads it: the strategy and the merge key at each place of an object."""

from __future__ import annotations

from dataclasses import dataclass

from kdns.controlplane.apimachinery.kinds import Kind
from kdns.controlplane.schema.schema import fields, type_of
from kdns.controlplane.schema.types import TypeRef


@dataclass(frozen=True, slots=True)
class PatchSchema:
    """The merge rules of one place in an object: of a field, or of the object itself.

    `strategy` holds "merge", "replace" or "retainKeys". Without a strategy objects merge and lists are replaced.
    """

    type: TypeRef
    is_map: bool = False
    strategy: tuple[str, ...] = ()
    merge_key: str = ""

    def child(self, field: str) -> PatchSchema | None:
        """Returns the rules of a field, or of a list's elements; None if the schema has no such field."""
        if self.is_map:
            return PatchSchema(self.type)
        child = fields(self.type).get(field)
        if child is None:
            return None
        return PatchSchema(child.type, child.map_of, child.patch_strategy, child.merge_key)


def patch_schema(kind: Kind) -> PatchSchema:
    """Returns the merge rules of a kind's objects."""
    return PatchSchema(type_of(kind))
