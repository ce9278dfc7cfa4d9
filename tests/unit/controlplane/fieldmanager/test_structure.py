"""Structures of fields with each list and map type, of the type or of the field."""

from __future__ import annotations

import pytest
from served_kinds import KINDS

from kdns.controlplane.apimachinery.inert import VOLUME
from kdns.controlplane.apimachinery.kinds import POD, SERVICE, Kind
from kdns.controlplane.fieldmanager.structure import ATOMIC, Structure, structure_of
from kdns.controlplane.schema.patch import PatchSchema, patch_schema

BUDGET = next(kind for kind in KINDS if kind.kind == "PodDisruptionBudget")
CORE = "io.k8s.api.core.v1"
PORTS = Structure(
    "list", elements=Structure("struct", f"{CORE}.ServicePort"), keys=(("port", None), ("protocol", "TCP"))
)


@pytest.mark.parametrize(
    ("kind", "path", "structure"),
    [
        (SERVICE, "spec", Structure("struct", f"{CORE}.ServiceSpec")),
        (SERVICE, "spec.type", ATOMIC),
        (SERVICE, "spec.selector", ATOMIC),
        (SERVICE, "spec.ports", PORTS),
        (SERVICE, "metadata.labels", Structure("map", elements=ATOMIC)),
        (SERVICE, "metadata.finalizers", Structure("set", elements=ATOMIC)),
        (POD, "spec.tolerations", ATOMIC),
        (BUDGET, "spec.selector", ATOMIC),
        pytest.param(
            VOLUME, "spec.claimRef", Structure("struct", f"{CORE}.ObjectReference"), id="granular by its field"
        ),
        (SERVICE, "spec.unknown", ATOMIC),
    ],
)
def test_structures(kind: Kind, path: str, structure: Structure) -> None:
    result = structure_of(kind)
    for name in path.split("."):
        result = result.child(name)[1]
    assert result == structure


def test_the_selector_of_a_disruption_budget_is_replaced() -> None:
    spec = patch_schema(BUDGET).child("spec")
    assert spec
    selector = spec.child("selector")
    assert isinstance(selector, PatchSchema)
    assert selector.strategy == ("replace",)
