"""Pods by namespace and labels: a selector is compared once for all Pods of equal labels, as those of a template."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from kdns.cluster.objects import Pod

Labels: TypeAlias = Mapping[str, str]
LabelSet: TypeAlias = frozenset[tuple[str, str]]


class PodIndex:
    """The Pods of one moment. A selector costs as many steps as there are label sets with its rarest label."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._groups: dict[str, dict[LabelSet, list[Pod]]] = {}
        self._having: dict[tuple[str, str], dict[str, dict[LabelSet, None]]] = {}
        for pod in pods:
            labels = frozenset((pod.metadata.labels or {}).items())
            self._groups.setdefault(pod.metadata.namespace, {}).setdefault(labels, []).append(pod)
        for namespace, groups in self._groups.items():
            for labels in groups:
                for label in labels:
                    self._having.setdefault(label, {}).setdefault(namespace, {})[labels] = None

    def groups(self, namespace: str) -> Mapping[LabelSet, list[Pod]]:
        """Returns the Pods of a namespace by their labels."""
        return self._groups.get(namespace, {})

    def count(self, namespace: str) -> int:
        return sum(map(len, self.groups(namespace).values()))

    def matching(self, namespace: str, selector: Labels) -> list[Pod]:
        """Returns the Pods that have all labels of a selector, which is not empty."""
        groups = self.groups(namespace)
        return [pod for labels in self._label_sets(namespace, selector) for pod in groups[labels]]

    def namespaces_of(self, selector: Labels) -> list[str]:
        """Returns the namespaces with Pods that have all labels of a selector, which is not empty."""
        spaces = min((self._having.get(label, {}) for label in selector.items()), key=len)
        return sorted(space for space in spaces if any(self._label_sets(space, selector)))

    def _label_sets(self, namespace: str, selector: Labels) -> Iterator[LabelSet]:
        wanted = frozenset(selector.items())
        having = (self._having.get(label, {}).get(namespace, {}) for label in wanted)
        return (labels for labels in min(having, key=len) if wanted <= labels)
