"""An index of Pods by Node, for controllers that watch both."""

from __future__ import annotations

from dataclasses import dataclass, field

from kdns.cluster.objects import Key


@dataclass(slots=True)
class PodsByNode:
    """Pods by the name of their Node; a Node without Pods has no entry."""

    _on: dict[str, dict[Key, None]] = field(default_factory=dict)

    def on(self, node: str) -> tuple[Key, ...]:
        return tuple(self._on.get(node, ()))

    def put(self, pod: Key, node: str) -> None:
        self._on.setdefault(node, {})[pod] = None

    def remove(self, pod: Key, node: str) -> None:
        pods = self._on[node]
        del pods[pod]
        if not pods:
            del self._on[node]
