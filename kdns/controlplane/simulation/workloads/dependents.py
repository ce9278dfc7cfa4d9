"""The objects that the workloads of one kind own, or could adopt."""

from __future__ import annotations

from dataclasses import dataclass, field

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.gc.owners import controller_of


@dataclass(slots=True)
class Dependents:
    """Objects of one kind; they are shared with the store and never changed here."""

    _owners: dict[Key, str] = field(default_factory=dict)
    _objects: dict[str, dict[Key, Json]] = field(default_factory=dict)

    def apply(self, key: Key, obj: Json | None) -> Json | None:
        """None for a deleted object. Returns the previous object."""
        old = None
        if (owner := self._owners.pop(key, None)) is not None:
            old = self._objects[owner].pop(key)
            if not self._objects[owner]:
                del self._objects[owner]
        if obj is not None:
            owner = self._owners[key] = _owner_of(obj)
            self._objects.setdefault(owner, {})[key] = obj
        return old

    def controlled_by(self, owner: Json) -> list[Json]:
        return [*self._objects.get(owner["metadata"]["uid"], {}).values()]

    def orphans(self, namespace: str) -> list[Json]:
        return [*self._objects.get(f"/{namespace}", {}).values()]


def _owner_of(obj: Json) -> str:
    """The uid of the controller, or the namespace if there is none."""
    controller = controller_of(obj)
    return str(controller["uid"]) if controller else f"/{obj['metadata'].get('namespace', '')}"
