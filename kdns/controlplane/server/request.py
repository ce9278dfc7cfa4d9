"""What a request on a resource asks for, as the verbs of the API read it."""

from __future__ import annotations

from dataclasses import dataclass

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.kinds import Kind
from kdns.controlplane.schema.field_validation import Policy


@dataclass(frozen=True, slots=True)
class Request:
    """The resource, and the options of a write. It is a collection if `name` is "".

    `namespace` None means all, or a cluster-scoped kind. Objects are read and written as the kind `served_version`.
    A write without a `manager` adds no managedFields.
    """

    kind: Kind
    namespace: str | None = None
    name: str = ""
    subresource: str = ""
    served_version: Kind | None = None
    manager: str = ""
    dry_run: bool = False
    force: bool = False
    policy: Policy = "Warn"

    @property
    def space(self) -> str:
        """The namespace as a key has it: "" for cluster-scoped objects."""
        return (self.namespace or "") if self.kind.namespaced else ""

    @property
    def key(self) -> Key:
        return self.space, self.name
