"""Which Pods are on which node, for controllers that follow both."""

from __future__ import annotations

from kdns.cluster.objects import Key


class PodPlaces:
    """Pods by their node's name, in order; a node without Pods takes no room, whether it is there or not."""

    def __init__(self) -> None:
        self._on: dict[str, dict[Key, None]] = {}

    def __len__(self) -> int:
        return len(self._on)

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
