"""The names of CustomResourceDefinitions: those that were taken are accepted once they are free.

(kube-apiserver: apiextensions, naming controller.)
"""

from __future__ import annotations

from collections.abc import Iterable

from kdns.controlplane.apimachinery.conditions import is_true
from kdns.controlplane.apimachinery.kinds import DEFINITION, Json
from kdns.controlplane.controllers.reconciler import Action, Change, Name, Reconciler, Request, Result


class DefinitionNames(Reconciler):
    """Requests are definitions by name. An update without changes makes the server look at the names again."""

    name = "crd-naming-controller"
    watches = (DEFINITION,)

    def __init__(self) -> None:
        self._refused: dict[str, Json] = {}

    def observe(self, change: Change) -> Iterable[Name]:
        _, (_, name), obj, _ = change
        self._refused.pop(name, None)
        if obj and not is_true(obj, "NamesAccepted"):
            self._refused[name] = obj
        group = name.partition(".")[2]
        return [(other,) for other in self._refused if other != name and other.partition(".")[2] == group]

    def reconcile(self, request: Request) -> Result:
        (name,) = request.name
        definition = self._refused.get(name)
        return Result((Action("update", DEFINITION, definition),)) if definition else Result()
