"""Which Pods are on which node, for controllers that follow both."""

from __future__ import annotations

from dataclasses import dataclass, field

from kdns.cluster.objects import Key


@dataclass(slots=True)
class PodPlaces:
    """Pods by their node's name, in order; a node without Pods takes no room, whether it is there or not."""

    _on: dict[str, dict[Key, None]] = field(default_factory=dict)

    def on(self, node: str) -> tuple[Key, ...]:
        """The Pods on a node."""
        return tuple(self._on.get(node, ()))

    def put(self, pod: Key, node: str) -> None:
        """Note a Pod's node."""
        self._on.setdefault(node, {})[pod] = None

    def remove(self, pod: Key, node: str) -> None:
        """Forget a Pod that is on this node."""
        there = self._on[node]
        del there[pod]
        if not there:
            del self._on[node]
